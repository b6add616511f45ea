//! Turns the configured address of a receiver, with or without scheme, port or path, into the URL that the exporter
//! requests. Not here: the destination of an address (`check`).

use crate::error::{Error, ErrorKind};
use crate::types::choices::{DestinationConfig, Protocol};

/// Path of profiles at OTLP/HTTP receivers.
pub(crate) const PROFILES_PATH: &str = "/v1development/profiles";
/// Path of metrics there.
const METRICS_PATH: &str = "/v1/metrics";
/// Path of the only method of Pyroscope's push service (Connect protocol).
const PUSH_PATH: &str = "/push.v1.PusherService/Push";
/// Port of OTLP/gRPC (OTLP specification, "OTLP/gRPC Default Port").
pub(crate) const GRPC_PORT: u16 = 4317;
const HTTPS_PORT: u16 = 443;

/// Reason why a text is not valid for its key. Contains no user, password or query.
#[derive(Debug)]
pub(crate) struct UnusableText {
    /// The text and its problem.
    pub message: String,
    /// The remedy.
    pub hint: &'static str,
}

impl UnusableText {
    /// The problem as an error about `key`.
    pub fn into_error(self, key: &str) -> Error {
        Error::new(ErrorKind::InvalidConfig, format!("{key} {}", self.message), self.hint)
    }
}

/// Checks the address: `http://` or `https://`, or `host:port`.
pub(crate) fn check(endpoint: &str) -> Result<(), UnusableText> {
    let shown = spanprof_export::shown_url(endpoint);
    let unusable = |problem: &str| {
        let message = format!("`{shown}` {problem}; expected http://host:4318, https://host:4318 or host:port");
        UnusableText { message, hint: "use http://host:4318 for OTLP/HTTP, http://host:4317 for OTLP/gRPC" }
    };
    match endpoint.split_once("://") {
        Some((scheme, _)) if !["http", "https"].contains(&scheme.to_ascii_lowercase().as_str()) => {
            return Err(unusable(&format!("has the scheme `{scheme}`")));
        }
        None if port_text(endpoint).is_none() => return Err(unusable("has neither a scheme nor a port")),
        _ => {}
    }
    let url = if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
    spanprof_export::check_url(&url).map_err(unusable)
}

/// The explicit port of an address.
pub(crate) fn port(endpoint: &str) -> Option<u16> {
    port_text(endpoint)?.parse().ok()
}

fn port_text(endpoint: &str) -> Option<&str> {
    let after_scheme = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next()?;
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    // The colons of an IPv6 address are inside its brackets.
    let after_host = host_and_port.rsplit_once(']').map_or(host_and_port, |(_, rest)| rest);
    after_host.rsplit_once(':').map(|(_, port)| port)
}

/// The address with a scheme. OTLP/HTTP without a scheme is plain text except on port 443. OTLP/gRPC follows `insecure`, as
/// the OpenTelemetry specification requires; if that is not set, credentials are never sent in plain text.
pub(crate) fn with_scheme(endpoint: &str, protocol: Protocol, destination: &DestinationConfig) -> String {
    if endpoint.contains("://") {
        return endpoint.to_owned();
    }
    let has_credentials = destination.headers.as_ref().is_some_and(|headers| !headers.is_empty())
        || destination.certificate.is_some()
        || destination.client_certificate.is_some()
        || endpoint.contains('@');
    let is_secure = match (protocol, destination.insecure) {
        (Protocol::Grpc, Some(insecure)) => !insecure,
        (Protocol::Grpc, None) => has_credentials || port(endpoint) == Some(HTTPS_PORT),
        (Protocol::HttpProtobuf, _) => port(endpoint) == Some(HTTPS_PORT),
    };
    format!("{}://{endpoint}", if is_secure { "https" } else { "http" })
}

/// Interpretation of the path of an address.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum EndpointForm {
    /// [`PROFILES_PATH`] is appended.
    Base,
    /// Used unchanged.
    Verbatim,
    /// [`PROFILES_PATH`] is appended to an address without a path.
    Guessed,
}

/// The URL that is requested.
pub(crate) fn final_url(endpoint: &str, protocol: Protocol, form: EndpointForm) -> String {
    if protocol == Protocol::Grpc || form == EndpointForm::Verbatim {
        return endpoint.to_owned();
    }
    if form == EndpointForm::Guessed && has_path(endpoint) {
        return endpoint.to_owned();
    }
    format!("{}{PROFILES_PATH}", endpoint.trim_end_matches('/'))
}

/// The metrics URL of an OTLP/HTTP receiver, derived from its profiles URL: `/v1/metrics` instead of
/// `/v1development/profiles` or `/v1/profiles`. `None` for another path.
pub(crate) fn metrics_url(profiles_url: &str) -> Option<String> {
    let path_end = profiles_url.find(['?', '#']).unwrap_or(profiles_url.len());
    let (address, query) = profiles_url.split_at(path_end);
    let paths = [PROFILES_PATH, "/v1/profiles"];
    let base = paths.iter().find_map(|path| address.trim_end_matches('/').strip_suffix(path))?;
    Some(format!("{base}{METRICS_PATH}{query}"))
}

/// Whether an address has a path.
pub(crate) fn has_path(endpoint: &str) -> bool {
    let trimmed = endpoint.trim_end_matches('/');
    trimmed.split_once("://").map_or(trimmed, |(_, rest)| rest).contains('/')
}

/// The URL of Pyroscope's push service below a base URL.
pub(crate) fn push_url(base: &str) -> String {
    let base = base.trim_end_matches('/');
    format!("{}{PUSH_PATH}", base.strip_suffix(PUSH_PATH).unwrap_or(base))
}

/// A URL without user and password, for display.
pub(crate) fn without_userinfo(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..authority_end].rsplit_once('@').map_or(&rest[..authority_end], |(_, host)| host);
    format!("{scheme}{host}{}", &rest[authority_end..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::table::Config;
    use crate::layers::environment::Environment;
    use crate::types::choices::{DestinationType, LinkDetail};
    use crate::types::value::ConfigValue;

    fn destinations(variables: &[(&str, &str)]) -> Vec<(Option<Protocol>, String)> {
        let environment: Environment = variables.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let config = Config::load(&[], &environment).unwrap();
        assert_eq!(config.warnings, [""; 0], "{variables:?}");
        let destinations = config.effective_destinations();
        destinations.into_iter().map(|entry| (entry.protocol, entry.endpoint.unwrap_or_default())).collect()
    }

    #[test]
    fn an_address_without_a_scheme_is_plain_text_and_port_4317_selects_grpc() {
        let grpc = |url: &str| (Some(Protocol::Grpc), url.to_owned());
        let http = |url: &str| (Some(Protocol::HttpProtobuf), url.to_owned());
        let shared = "OTEL_EXPORTER_OTLP_ENDPOINT";
        assert_eq!(destinations(&[(shared, "localhost:4317")]), [grpc("http://localhost:4317")]);
        assert_eq!(destinations(&[(shared, "http://collector:4317")]), [grpc("http://collector:4317")]);
        assert_eq!(destinations(&[(shared, "[::1]:4317")]), [grpc("http://[::1]:4317")]);
        let profiles = "http://localhost:4318/v1development/profiles";
        assert_eq!(destinations(&[(shared, "localhost:4318")]), [http(profiles)]);
        assert_eq!(destinations(&[("SPANPROF_ENDPOINT", "localhost:4318")]), [http(profiles)]);
        assert_eq!(
            destinations(&[(shared, "collector:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]),
            [http("http://collector:4317/v1development/profiles")]
        );
    }

    #[test]
    fn credentials_for_a_grpc_address_without_a_scheme_use_tls_unless_insecure_is_set() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
        let url = |more: &[(&str, &str)]| {
            let mut variables = vec![endpoint];
            variables.extend(more);
            destinations(&variables).remove(0).1
        };
        let token = ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=x");
        assert_eq!(url(&[]), "http://collector:4317");
        assert_eq!(url(&[token]), "https://collector:4317");
        assert_eq!(url(&[("OTEL_EXPORTER_OTLP_INSECURE", "false")]), "https://collector:4317");
        assert_eq!(url(&[token, ("OTEL_EXPORTER_OTLP_INSECURE", "true")]), "http://collector:4317");
    }

    #[test]
    fn a_pyroscope_destination_has_the_url_of_the_push_service_and_links_without_trace_ids() {
        let destination_of = |endpoint: Option<&str>| {
            let entry = DestinationConfig {
                endpoint: endpoint.map(str::to_owned),
                ..DestinationConfig::new(DestinationType::Pyroscope)
            };
            let config = Config { destinations: Some(vec![entry]), ..Config::default() };
            config.effective_destinations().remove(0)
        };
        let push = |base: &str| Some(format!("{base}/push.v1.PusherService/Push"));
        assert_eq!(destination_of(None).endpoint, push("http://localhost:4040"));
        assert_eq!(destination_of(Some("pyroscope:4040")).endpoint, push("http://pyroscope:4040"));
        let cloud = "https://profiles-prod-001.grafana.net";
        assert_eq!(destination_of(Some("https://profiles-prod-001.grafana.net/")).endpoint, push(cloud));
        assert_eq!(destination_of(push("http://alloy:4041/base").as_deref()).endpoint, push("http://alloy:4041/base"));
        assert_eq!(destination_of(None).link, Some(LinkDetail::Span));
        // Port 4317 does not select gRPC.
        assert_eq!(destination_of(Some("pyroscope:4317")).protocol, Some(Protocol::HttpProtobuf));
    }

    #[test]
    fn an_invalid_address_is_an_error_whose_hint_does_not_repeat_it() {
        for text in ["not a url", "unix:///x", "http://host:99999", "localhost", "host:port", "http://", ""] {
            let error = check(text).unwrap_err().into_error("endpoint");
            assert!(error.message.contains("expected http://host:4318"), "{text}: {}", error.message);
            assert!(!error.hint.contains("not a url") && !error.hint.contains("unix"), "{text}: {}", error.hint);
        }
        let in_code = [("endpoint".to_owned(), ConfigValue::from("not a url"))];
        let error = Config::load(&in_code, &Environment::new()).unwrap_err();
        assert!(error.message.starts_with("endpoint (code) `not a url`"), "{}", error.message);
    }

    #[test]
    fn an_address_set_in_the_struct_is_checked_too() {
        let entry = DestinationConfig {
            endpoint: Some("ftp://host".to_owned()),
            ..DestinationConfig::new(DestinationType::Otlp)
        };
        let config = Config { destinations: Some(vec![entry]), ..Config::default() };
        assert!(config.check().unwrap_err().message.contains("has the scheme `ftp`"));
    }
}
