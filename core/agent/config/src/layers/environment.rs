//! The settings of environment variables: `SPANPROF_*`, OpenTelemetry's and Pyroscope's. Lower layers come first, so that a
//! later setting wins. Reads a map; only `process_environment` reads the process.

use std::collections::BTreeMap;

use super::declared_resource::declared_resource;
use crate::keys::binding_options::BindingOption;
use crate::keys::nearest::nearest_key;
use crate::keys::table::KEYS;
use crate::types::basic_auth::basic_authorization;
use crate::types::choices::{ConfigSource, Proxies};
use crate::types::value::{baggage_pairs, ConfigType, ConfigValue, Setting};

/// Environment variables by name.
pub type Environment = BTreeMap<String, String>;

/// The variables of this process, without those that are not Unicode.
pub fn process_environment() -> Environment {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Variables of Pyroscope's agents without an equivalent, with the reason.
const PYROSCOPE_IGNORED: [(&str, &str); 12] = [
    ("PYROSCOPE_GC_BEFORE_DUMP", "no collection is requested"),
    ("PYROSCOPE_PROFILER_TYPE", "there is one engine"),
    ("PYROSCOPE_JFR_PROFILER_SETTINGS", "there is one engine"),
    ("PYROSCOPE_AP_LOG_LEVEL", "there is one engine"),
    ("PYROSCOPE_AP_EXTRA_ARGUMENTS", "there is one engine"),
    ("PYROSCOPE_SAMPLING_DURATION", "profiling is continuous"),
    ("PYROSCOPE_SAMPLING_EVENT_ORDER", "profiling is continuous"),
    ("PYROSCOPE_PUSH_QUEUE_CAPACITY", "queue_max_bytes bounds the queue"),
    ("PYROSCOPE_INGEST_MAX_TRIES", "failed requests are retried for 15 minutes"),
    ("PYROSCOPE_EXPORT_COMPRESSION_LEVEL_JFR", "see compression"),
    ("PYROSCOPE_EXPORT_COMPRESSION_LEVEL_LABELS", "see compression"),
    ("PYROSCOPE_LOG_LEVEL", "set the level of the logger"),
];

/// The variable of the active kill switch, if any.
pub fn kill_switch(environment: &Environment) -> Option<String> {
    ["SPANPROF_DISABLED", "OTEL_SDK_DISABLED"]
        .into_iter()
        .find(|name| environment.get(*name).is_some_and(|value| bool::from_value(&value.as_str().into()) == Some(true)))
        .map(str::to_owned)
}

/// The proxies of the environment. Upper-case `HTTP_PROXY` is ignored: in a CGI program it is the request header `Proxy`.
pub(crate) fn proxies(environment: &Environment) -> Proxies {
    let text = |names: [&str; 2]| {
        names.into_iter().find_map(|name| environment.get(name)).filter(|value| !value.trim().is_empty()).cloned()
    };
    Proxies {
        http: text(["http_proxy", "all_proxy"]),
        https: text(["https_proxy", "HTTPS_PROXY"]).or_else(|| text(["all_proxy", "ALL_PROXY"])),
        no_proxy: text(["no_proxy", "NO_PROXY"]).unwrap_or_default(),
    }
}

/// All settings of the environment, lowest precedence first.
pub(crate) fn settings(
    environment: &Environment,
    options: &'static [BindingOption],
    warnings: &mut Vec<String>,
) -> Vec<Setting> {
    let mut layer = EnvironmentLayer { environment, options, settings: Vec::new(), warnings };
    layer.pyroscope();
    layer.opentelemetry();
    layer.own();
    layer.settings
}

struct EnvironmentLayer<'a> {
    environment: &'a Environment,
    options: &'static [BindingOption],
    settings: Vec<Setting>,
    warnings: &'a mut Vec<String>,
}

impl EnvironmentLayer<'_> {
    /// The value of a variable; an empty one counts as unset, as in the OpenTelemetry specification.
    fn text(&self, name: &str) -> Option<String> {
        self.environment.get(name).filter(|value| !value.trim().is_empty()).cloned()
    }

    fn push(&mut self, key: &str, value: ConfigValue, name: &str) {
        let source = ConfigSource::Environment(name.to_owned());
        self.settings.push(Setting { key: key.to_owned(), value, source });
    }

    /// Sets each key from its variable.
    fn texts(&mut self, keys_of_variables: &[(&str, &str)]) {
        for (name, key) in keys_of_variables {
            if let Some(text) = self.text(name) {
                self.push(key, ConfigValue::Text(text), name);
            }
        }
    }

    fn push_map(&mut self, key: &str, pairs: Vec<(String, String)>, name: &str) {
        let pairs = pairs.into_iter().map(|(key, value)| (key, ConfigValue::Text(value))).collect();
        self.push(key, ConfigValue::Map(pairs), name);
    }

    fn own(&mut self) {
        for key in KEYS {
            let name = key.environment_name();
            if let Some(text) = self.text(&name) {
                self.push(key.name, ConfigValue::Text(text), &name);
            }
        }
        for option in self.options {
            let name = format!("SPANPROF_{}", option.name.to_ascii_uppercase());
            if let Some(text) = self.text(&name) {
                self.push(option.name, ConfigValue::Text(text), &name);
            }
        }
        let names = KEYS.iter().map(|key| key.name).chain(self.options.iter().map(|option| option.name));
        let names: Vec<_> = names.map(|name| format!("SPANPROF_{}", name.to_ascii_uppercase())).collect();
        for name in self.environment.keys() {
            if name.starts_with("SPANPROF_") && name != "SPANPROF_DISABLED" && !names.contains(name) {
                let nearest = nearest_key(&name["SPANPROF_".len()..], self.options);
                let hint =
                    nearest.map(|key| format!("; did you mean `SPANPROF_{}`?", key.to_uppercase())).unwrap_or_default();
                self.warnings.push(format!("unknown variable `{name}` is ignored{hint}"));
            }
        }
    }

    fn opentelemetry(&mut self) {
        const SHARED: &[(&str, &str)] = &[
            ("ENDPOINT", "endpoint"),
            ("PROTOCOL", "protocol"),
            ("COMPRESSION", "compression"),
            ("TIMEOUT", "timeout"),
            ("CERTIFICATE", "certificate"),
            ("CLIENT_KEY", "client_key"),
            ("CLIENT_CERTIFICATE", "client_certificate"),
            ("INSECURE", "insecure"),
            ("HEADERS", "headers"),
        ];
        for (suffix, key) in SHARED {
            for prefix in ["OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_PROFILES_"] {
                let name = format!("{prefix}{suffix}");
                let Some(text) = self.text(&name) else { continue };
                // OpenTelemetry's timeouts are in milliseconds, those of spanprof in seconds.
                let text = if *key == "timeout" { format!("{}ms", text.trim()) } else { text };
                self.push(key, ConfigValue::Text(text), &name);
            }
        }
        const METRICS: &[(&str, &str)] = &[
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "metrics_endpoint"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "metrics_headers"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "metrics_headers"),
        ];
        self.texts(METRICS);
        if !self.declared_resource() {
            if let Some(text) = self.text("OTEL_RESOURCE_ATTRIBUTES") {
                self.resource_attributes(&text);
            }
            self.texts(&[("OTEL_SERVICE_NAME", "service_name")]);
        }
        if let Some(text) = self.text("OTEL_PROFILES_EXPORTER") {
            self.profiles_exporter(&text);
        }
    }

    /// The resource of the SDK's configuration file. With one, an SDK reads no other variable.
    fn declared_resource(&mut self) -> bool {
        let name = "OTEL_CONFIG_FILE";
        let Some(path) = self.text(name) else { return false };
        match declared_resource(&path, self.environment) {
            Ok(pairs) => self.push_map("resource_attributes", pairs, name),
            Err(cause) => {
                self.warnings
                    .push(format!("the resource of {name} (`{path}`) could not be read: {cause}; it is ignored"));
                return false;
            }
        }
        true
    }

    fn resource_attributes(&mut self, text: &str) {
        let name = "OTEL_RESOURCE_ATTRIBUTES";
        let Some(pairs) = baggage_pairs(text) else {
            self.warnings.push(format!("{name} must be a list of key=value pairs; it is ignored"));
            return;
        };
        self.push_map("resource_attributes", pairs, name);
    }

    fn profiles_exporter(&mut self, text: &str) {
        let name = "OTEL_PROFILES_EXPORTER";
        let mut destinations = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "none" => {}
                "otlp" | "file" => {
                    destinations.push(ConfigValue::Map(vec![("type".to_owned(), ConfigValue::Text(word.to_owned()))]));
                }
                other => {
                    self.warnings.push(format!("{name} must be otlp, file or none, got `{other}`; it is ignored"));
                    return;
                }
            }
        }
        self.push("destinations", ConfigValue::List(destinations), name);
    }

    fn pyroscope(&mut self) {
        const DIRECT: &[(&str, &str)] = &[
            ("PYROSCOPE_SERVER_ADDRESS", "endpoint"),
            ("PYROSCOPE_APPLICATION_NAME", "service_name"),
            ("PYROSCOPE_AGENT_ENABLED", "enabled"),
            ("PYROSCOPE_UPLOAD_INTERVAL", "upload_interval"),
            ("PYROSCOPE_PROFILE_EXPORT_TIMEOUT", "timeout"),
            ("PYROSCOPE_JAVA_STACK_DEPTH_MAX", "max_stack_depth"),
            ("PYROSCOPE_ALLOC_LIVE", "heap"),
        ];
        self.texts(DIRECT);
        if let Some(text) = self.text("PYROSCOPE_LABELS") {
            match baggage_pairs(&text) {
                Some(pairs) => self.push_map("tags", pairs, "PYROSCOPE_LABELS"),
                None => self.warnings.push("PYROSCOPE_LABELS must be key=value pairs; it is ignored".to_owned()),
            }
        }
        if let Some(text) = self.text("PYROSCOPE_PROFILING_INTERVAL") {
            match interval_seconds(&text).filter(|seconds| *seconds > 0.0) {
                Some(seconds) => {
                    let rate = (1.0 / seconds).round() as i64;
                    self.push("sample_rate", ConfigValue::Int(rate), "PYROSCOPE_PROFILING_INTERVAL");
                }
                None => self.warnings.push("PYROSCOPE_PROFILING_INTERVAL must be like 10ms; it is ignored".to_owned()),
            }
        }
        self.pyroscope_event();
        self.pyroscope_allocations();
        self.pyroscope_locks();
        self.pyroscope_headers();
        let ignored = PYROSCOPE_IGNORED.iter().filter(|(name, _)| self.text(name).is_some());
        let ignored: Vec<_> = ignored.map(|(name, reason)| format!("{name} ({reason})")).collect();
        if !ignored.is_empty() {
            self.warnings.push(format!("variables of Pyroscope without effect: {}", ignored.join(", ")));
        }
    }

    fn pyroscope_event(&mut self) {
        let name = "PYROSCOPE_PROFILER_EVENT";
        match self.text(name).as_deref().map(str::trim) {
            Some("wall") => {
                self.push("wall", ConfigValue::Bool(true), name);
                self.push("cpu", ConfigValue::Bool(false), name);
            }
            None | Some("cpu" | "itimer" | "ctimer") => {}
            Some(other) => {
                let warning = format!("{name} must be cpu, itimer, ctimer or wall, got `{other}`; it is ignored");
                self.warnings.push(warning);
            }
        }
    }

    /// The variable holds the interval, as in `512k`.
    fn pyroscope_allocations(&mut self) {
        let name = "PYROSCOPE_PROFILER_ALLOC";
        let Some(text) = self.text(name) else { return };
        match byte_count(&text) {
            Some(bytes) => {
                self.push("heap", ConfigValue::Bool(true), name);
                self.push("heap_interval", ConfigValue::Int(bytes.clamp(1, 64 << 20)), name);
            }
            None => self.warnings.push(format!("{name} must be like 512k, got `{text}`; it is ignored")),
        }
    }

    /// The variable holds the threshold, as in `10ms`; a bare number is in nanoseconds.
    fn pyroscope_locks(&mut self) {
        let name = "PYROSCOPE_PROFILER_LOCK";
        let Some(text) = self.text(name) else { return };
        let seconds = text.trim().parse::<u64>().map(|ns| ns as f64 * 1e-9).ok().or_else(|| interval_seconds(&text));
        match seconds.filter(|seconds| (0.0..=3600.0).contains(seconds)) {
            Some(seconds) => {
                self.push("lock", ConfigValue::Bool(true), name);
                self.push("lock_threshold", ConfigValue::Float(seconds), name);
            }
            None => self.warnings.push(format!("{name} must be like 10ms, got `{text}`; it is ignored")),
        }
    }

    fn pyroscope_headers(&mut self) {
        let mut pairs = Vec::new();
        let mut last = "";
        if let Some(text) = self.text("PYROSCOPE_HTTP_HEADERS") {
            match json_pairs(&text).or_else(|| baggage_pairs(&text)) {
                Some(headers) => {
                    pairs.extend(headers);
                    last = "PYROSCOPE_HTTP_HEADERS";
                }
                None => self.warnings.push("PYROSCOPE_HTTP_HEADERS must be a map of text; it is ignored".to_owned()),
            }
        }
        if let Some(tenant) = self.text("PYROSCOPE_TENANT_ID") {
            pairs.push(("X-Scope-OrgID".to_owned(), tenant));
            last = "PYROSCOPE_TENANT_ID";
        }
        if let Some(token) = self.text("PYROSCOPE_AUTH_TOKEN") {
            pairs.push(("Authorization".to_owned(), format!("Bearer {token}")));
            last = "PYROSCOPE_AUTH_TOKEN";
        }
        if let Some(user) = self.text("PYROSCOPE_BASIC_AUTH_USER") {
            let password = self.text("PYROSCOPE_BASIC_AUTH_PASSWORD").unwrap_or_default();
            pairs.push(("Authorization".to_owned(), basic_authorization(&user, &password)));
            last = "PYROSCOPE_BASIC_AUTH_USER";
        }
        if !pairs.is_empty() {
            self.push_map("headers", pairs, last);
        }
    }
}

/// Bytes of `512k`, `2m` or a bare number.
fn byte_count(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let units = [("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30), ("", 1)];
    let (number, unit) = units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    number.parse::<u32>().ok().and_then(|number| i64::from(number).checked_mul(unit))
}

/// Seconds of `10ms`, `0.01s`, `100us` or a bare number of milliseconds.
fn interval_seconds(text: &str) -> Option<f64> {
    let text = text.trim();
    for (suffix, factor) in [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("s", 1.0)] {
        if let Some(number) = text.strip_suffix(suffix) {
            return Some(number.trim().parse::<f64>().ok()? * factor);
        }
    }
    Some(text.parse::<f64>().ok()? * 1e-3)
}

/// Parses a flat JSON object of text with the YAML parser.
fn json_pairs(text: &str) -> Option<Vec<(String, String)>> {
    let map: std::collections::BTreeMap<String, String> = serde_norway::from_str(text).ok()?;
    Some(map.into_iter().collect())
}
