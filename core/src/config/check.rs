//! What must hold between the values of a configuration, and the values derived from several keys. Called last in loading
//! and again by `Profiler`, since a program can fill the struct itself.

use super::endpoint::{self, final_url, EndpointForm, UnusableText};
use super::keys::Config;
use super::types::{ConfigSource, DestinationConfig, DestinationType, Protocol};
use crate::{Error, ErrorKind};

impl Config {
    /// Checks the loaded configuration as a whole. Values that exclude each other are an error when code gave them all;
    /// where a variable or a file gave one of them, that one is dropped with a warning.
    pub(crate) fn finish(mut self) -> Result<Config, Error> {
        if let Some(problem) = self.cpu_without_signals().filter(|_| !self.all_in_code(&["cpu", "signals"])) {
            self.sources.remove("cpu");
            self.warnings.push(format!("{}; CPU samples are off", problem.message));
        }
        if let Some(problem) = self.half_of_mutual_tls() {
            let half = if self.client_key.is_some() { "client_key" } else { "client_certificate" };
            if self.is_from_environment(half) {
                self.reset(half);
                self.warnings.push(format!("{}; {half} is ignored", problem.message));
            }
        }
        self.check()?;
        Ok(self)
    }

    /// An error when a value is out of its bounds or the set of values cannot work.
    pub fn check(&self) -> Result<(), Error> {
        if let Some((key, shown)) = self.out_of_bounds() {
            return Err(key.out_of_bounds(&shown, ""));
        }
        if let Some(problem) = self.cpu_without_signals().or_else(|| self.half_of_mutual_tls()) {
            return Err(problem);
        }
        let entries = self.destinations.iter().flatten().filter_map(|entry| entry.endpoint.as_ref());
        for endpoint in entries.chain(&self.endpoint) {
            endpoint::check(endpoint).map_err(|problem| problem.into_error("endpoint"))?;
        }
        self.output.as_deref().map_or(Ok(()), check_output).map_err(|problem| problem.into_error("output"))?;
        Ok(())
    }

    fn cpu_without_signals(&self) -> Option<Error> {
        let conflict = self.enabled && !self.signals && self.cpu && self.sources.contains_key("cpu") && !self.wall;
        conflict.then(|| {
            invalid("cpu=true needs signals, but signals=false", "set wall=true and leave cpu out, or allow signals")
        })
    }

    fn half_of_mutual_tls(&self) -> Option<Error> {
        (self.client_key.is_some() != self.client_certificate.is_some()).then(|| {
            invalid(
                "client_key and client_certificate belong together, but only one is set",
                "set both to use mutual TLS, or neither",
            )
        })
    }

    /// Whether a variable or a file set the key: then it never stops the program.
    pub(crate) fn is_from_environment(&self, key: &str) -> bool {
        matches!(self.sources.get(key), Some(ConfigSource::Environment(_) | ConfigSource::File(_)))
    }

    fn all_in_code(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| matches!(self.sources.get(key), Some(ConfigSource::Code)))
    }

    /// Every destination with the keys of the top level filled in; URLs are final.
    pub fn effective_destinations(&self) -> Vec<DestinationConfig> {
        let listed = self.destinations.clone().unwrap_or_else(|| {
            let mut implied = Vec::new();
            if self.file_directory.is_some() {
                implied.push(DestinationConfig::new(DestinationType::File));
            }
            if self.endpoint.is_some() || (implied.is_empty() && self.output.is_none()) {
                implied.push(DestinationConfig::new(DestinationType::Otlp));
            }
            implied
        });
        listed.into_iter().map(|entry| self.filled_in(entry)).collect()
    }

    fn filled_in(&self, mut entry: DestinationConfig) -> DestinationConfig {
        entry.compression.get_or_insert(self.compression);
        entry.timeout.get_or_insert(self.timeout);
        entry.link.get_or_insert(self.link);
        entry.instance_attributes.get_or_insert(self.instance_attributes);
        entry.label_names.get_or_insert(self.label_names);
        entry.keep.get_or_insert(self.file_keep);
        entry.headers.get_or_insert_with(|| self.headers.clone());
        entry.certificate = entry.certificate.or_else(|| self.certificate.clone());
        entry.client_key = entry.client_key.or_else(|| self.client_key.clone());
        entry.client_certificate = entry.client_certificate.or_else(|| self.client_certificate.clone());
        entry.directory = entry.directory.or_else(|| self.file_directory.clone());
        let own = entry.endpoint.is_some();
        let endpoint = entry.endpoint.take().or_else(|| self.endpoint.clone());
        let protocol = *entry.protocol.get_or_insert_with(|| self.protocol_for(endpoint.as_deref()));
        // A value filled in by hand has no source.
        let insecure_is_given = self.insecure || self.sources.contains_key("insecure");
        entry.insecure = entry.insecure.or_else(|| insecure_is_given.then_some(self.insecure));
        if entry.destination_type == DestinationType::File {
            entry.directory.get_or_insert_with(|| ".".to_owned());
            return entry;
        }
        let default = match protocol {
            Protocol::HttpProtobuf => "http://localhost:4318",
            Protocol::Grpc => "http://localhost:4317",
        };
        let form = if own { EndpointForm::Guessed } else { self.endpoint_form() };
        let endpoint = endpoint.unwrap_or_else(|| default.to_owned());
        entry.endpoint = Some(final_url(&endpoint::with_scheme(&endpoint, protocol, &entry), protocol, form));
        entry
    }

    /// The transport when an entry names none. Receivers serve OTLP/gRPC on port 4317, and many SDKs default to it: such
    /// an endpoint in a shared variable means gRPC unless a protocol is set.
    fn protocol_for(&self, endpoint: Option<&str>) -> Protocol {
        let is_given = self.protocol != Protocol::HttpProtobuf || self.sources.contains_key("protocol");
        match endpoint.and_then(endpoint::port) {
            Some(endpoint::GRPC_PORT) if !is_given => Protocol::Grpc,
            _ => self.protocol,
        }
    }

    /// How the endpoint of the top level reads depends on who gave it.
    fn endpoint_form(&self) -> EndpointForm {
        match self.sources.get("endpoint") {
            Some(ConfigSource::Environment(name)) if name == "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT" => {
                EndpointForm::Verbatim
            }
            Some(ConfigSource::Environment(name)) if name.starts_with("OTEL_") || name.starts_with("PYROSCOPE_") => {
                EndpointForm::Base
            }
            _ => EndpointForm::Guessed,
        }
    }
}

/// Checks that the name of a file says its format.
pub(super) fn check_output(name: &str) -> Result<(), UnusableText> {
    match crate::output::OutputFormat::of(name) {
        Some(_) => Ok(()),
        None => Err(UnusableText {
            message: format!("`{name}` has no known format; expected a name that ends in .html, .pb.gz or .folded"),
            hint: "for a flame graph in the browser give flame.html",
        }),
    }
}

fn invalid(message: &str, hint: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message, hint)
}
