//! The receivers of the profiler's own metrics: each OTLP destination at its address of metrics, or `metrics_endpoint` instead of
//! them. Called by `spanprof_profiler::deliver`.

use crate::keys::table::Config;
use crate::types::choices::{DestinationConfig, DestinationType, Protocol};
use crate::types::endpoint::{has_path, metrics_url};

/// The receivers of metrics.
#[derive(Debug, Default)]
pub struct MetricsReceivers {
    /// With final URLs.
    pub receivers: Vec<DestinationConfig>,
    /// Addresses of OTLP destinations with a custom path, from which no metrics URL can be derived. Without secrets.
    pub unknown_paths: Vec<String>,
}

impl Config {
    /// The receivers of metrics; none without `metrics`.
    #[doc(hidden)]
    pub fn metrics_receivers(&self) -> MetricsReceivers {
        let mut found = MetricsReceivers::default();
        if !self.metrics {
            return found;
        }
        if let Some(endpoint) = &self.metrics_endpoint {
            found.receivers.push(self.at_metrics_endpoint(endpoint));
            return found;
        }
        let destinations = self.effective_destinations();
        for entry in destinations.into_iter().filter(|entry| entry.destination_type == DestinationType::Otlp) {
            let endpoint = entry.endpoint.clone().unwrap_or_default();
            let url = match entry.protocol {
                Some(Protocol::Grpc) => Some(endpoint.clone()),
                _ => metrics_url(&endpoint),
            };
            let Some(url) = url else {
                found.unknown_paths.push(spanprof_export::shown_url(&endpoint));
                continue;
            };
            // Entries that differ in the detail of their profiles only receive the metrics once.
            let is_same = |known: &DestinationConfig| {
                known.endpoint.as_ref() == Some(&url)
                    && (known.protocol, &known.headers) == (entry.protocol, &entry.headers)
            };
            if !found.receivers.iter().any(is_same) {
                found.receivers.push(DestinationConfig { endpoint: Some(url), ..entry });
            }
        }
        found
    }

    /// An address with a path is one of HTTP, since gRPC has none.
    fn at_metrics_endpoint(&self, endpoint: &str) -> DestinationConfig {
        let entry = DestinationConfig {
            endpoint: Some(endpoint.to_owned()),
            headers: Some(self.metrics_headers.clone()),
            protocol: has_path(endpoint).then_some(Protocol::HttpProtobuf),
            ..DestinationConfig::new(DestinationType::Otlp)
        };
        let mut entry = self.completed(entry);
        if entry.protocol == Some(Protocol::HttpProtobuf) && !has_path(endpoint) {
            entry.endpoint = entry.endpoint.as_deref().and_then(metrics_url);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::environment::Environment;
    use crate::types::value::ConfigValue;

    const HTTP: Option<Protocol> = Some(Protocol::HttpProtobuf);
    const GRPC: Option<Protocol> = Some(Protocol::Grpc);

    fn of(code: &[(&str, &str)], variables: &[(&str, &str)]) -> Config {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let code: Vec<_> = code.iter().map(owned).map(|(key, value)| (key, ConfigValue::Text(value))).collect();
        let config = Config::load(&code, &variables.iter().map(owned).collect::<Environment>()).unwrap();
        assert_eq!(config.warnings, [""; 0]);
        config
    }

    fn urls(config: &Config) -> Vec<(Option<Protocol>, String)> {
        let found = config.metrics_receivers();
        found.receivers.into_iter().map(|entry| (entry.protocol, entry.endpoint.unwrap())).collect()
    }

    #[test]
    fn metrics_are_off_by_default() {
        assert_eq!(urls(&of(&[], &[])), []);
        assert_eq!(urls(&of(&[("metrics_endpoint", "http://c:4318")], &[])), []);
    }

    #[test]
    fn the_address_of_metrics_is_beside_that_of_profiles() {
        let url = |endpoint: &str| urls(&of(&[("metrics", "true"), ("endpoint", endpoint)], &[]));
        let http = |url: &str| vec![(HTTP, url.to_owned())];
        assert_eq!(url("http://c:4318"), http("http://c:4318/v1/metrics"));
        assert_eq!(url("c:4318"), http("http://c:4318/v1/metrics"));
        assert_eq!(url("https://c/v1development/profiles?key=7"), http("https://c/v1/metrics?key=7"));
        assert_eq!(url("https://oneuptime.com/otlp/v1/profiles"), http("https://oneuptime.com/otlp/v1/metrics"));
        assert_eq!(url("https://o.example/api/team/v1/profiles/"), http("https://o.example/api/team/v1/metrics"));
        assert_eq!(url("http://c:4317"), [(GRPC, "http://c:4317".to_owned())]);
        let default = urls(&of(&[("metrics", "true")], &[]));
        assert_eq!(default, http("http://localhost:4318/v1/metrics"));
    }

    #[test]
    fn an_unknown_path_is_reported_without_secrets() {
        let config = of(&[("metrics", "true"), ("endpoint", "https://u:marker@c/own?key=marker")], &[]);
        assert_eq!(urls(&config), []);
        assert_eq!(config.metrics_receivers().unknown_paths, ["https://c/own"]);
    }

    #[test]
    fn each_otlp_destination_receives_metrics_once_and_others_do_not() {
        let list = "[{type: otlp, endpoint: 'http://a'}, {type: otlp, endpoint: 'http://a', link: span}, \
                    {type: pyroscope, endpoint: 'http://p'}, {type: file}, {type: otlp, endpoint: 'http://b:4317'}]";
        let config = of(&[("metrics", "true"), ("destinations", list)], &[]);
        assert_eq!(urls(&config), [(HTTP, "http://a/v1/metrics".to_owned()), (GRPC, "http://b:4317".to_owned())]);
    }

    #[test]
    fn metrics_endpoint_replaces_the_destinations_and_receives_its_own_headers_only() {
        let url = |endpoint: &str| {
            let list = "[{type: otlp, endpoint: 'http://a'}, {type: pyroscope}]";
            let config = of(
                &[
                    ("metrics", "true"),
                    ("metrics_endpoint", endpoint),
                    ("metrics_headers", "x-key=mine"),
                    ("headers", "authorization=marker"),
                    ("destinations", list),
                ],
                &[],
            );
            let receivers = config.metrics_receivers().receivers;
            let headers: Vec<_> = receivers[0].headers.iter().flat_map(|headers| headers.reveal()).collect();
            assert_eq!(headers, [("x-key", "mine")]);
            urls(&config)
        };
        assert_eq!(url("http://m:4318"), [(HTTP, "http://m:4318/v1/metrics".to_owned())]);
        assert_eq!(url("https://m/otlp/v1/metrics"), [(HTTP, "https://m/otlp/v1/metrics".to_owned())]);
        assert_eq!(url("http://m:4317/v1/metrics"), [(HTTP, "http://m:4317/v1/metrics".to_owned())]);
        // Port 4317 without a scheme is gRPC, and headers require TLS.
        assert_eq!(url("m:4317"), [(GRPC, "https://m:4317".to_owned())]);
    }

    #[test]
    fn the_variables_of_opentelemetry_set_address_and_headers() {
        let shared = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=team");
        let on = ("SPANPROF_METRICS", "true");
        assert_eq!(urls(&of(&[], &[on, shared])), [(HTTP, "http://c:4318/v1/metrics".to_owned())]);
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:4318/v1/metrics");
        let profiles = ("OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "authorization=marker");
        let with = |more: &[(&str, &str)]| {
            let config = of(&[], &[&[on, shared, own, headers, profiles][..], more].concat());
            assert_eq!(urls(&config), [(HTTP, "http://m:4318/v1/metrics".to_owned())]);
            let headers = config.metrics_receivers().receivers.remove(0).headers.unwrap();
            headers.reveal().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(with(&[]), ["x-tenant=team"]);
        // As with every signal, the specific variable replaces the shared one.
        assert_eq!(with(&[("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-key=7")]), ["x-key=7"]);
    }

    #[test]
    fn an_unusable_metrics_endpoint_is_an_error_about_its_key_and_secrets_of_a_usable_one_are_not_shown() {
        let load = |endpoint: &str| {
            Config::load(&[("metrics_endpoint".to_owned(), ConfigValue::from(endpoint))], &Environment::new())
        };
        assert!(load("ftp://host").unwrap_err().message.starts_with("metrics_endpoint (code) `ftp://host`"));
        let config = Config { metrics_endpoint: Some("ftp://host".to_owned()), ..Config::default() };
        assert!(config.check().unwrap_err().message.starts_with("metrics_endpoint `ftp://host`"));
        let shown = format!("{:?}", load("https://user:marker@host/v1/metrics?key=marker").unwrap());
        assert!(shown.contains("https://host/v1/metrics") && !shown.contains("marker"), "{shown}");
    }
}
