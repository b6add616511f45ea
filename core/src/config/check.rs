//! What must hold between the values of a configuration, and the values derived from several keys. Called last in loading
//! and again by `Profiler`, since a program can fill the struct itself.

use super::keys::Config;
use super::types::{ConfigSource, DestinationConfig, DestinationType, Protocol};
use crate::{Error, ErrorKind};

/// Path that OTLP/HTTP receivers serve the signal under.
pub const PROFILES_PATH: &str = "/v1development/profiles";

impl Config {
    /// Checks the configuration as a whole.
    pub(crate) fn finish(self) -> Result<Config, Error> {
        self.check()?;
        Ok(self)
    }

    /// An error when a value is out of its bounds or the set of values cannot work.
    pub fn check(&self) -> Result<(), Error> {
        if let Some((key, shown)) = self.out_of_bounds() {
            return Err(key.out_of_bounds(&shown, ""));
        }
        if self.enabled && !self.signals && self.cpu && self.sources.contains_key("cpu") && !self.wall {
            return Err(invalid(
                "cpu=true needs signals, but signals=false".to_owned(),
                "set wall=true and leave cpu out, or allow signals".to_owned(),
            ));
        }
        if self.client_key.is_some() != self.client_certificate.is_some() {
            return Err(invalid(
                "client_key and client_certificate belong together, but only one is set".to_owned(),
                "set both to use mutual TLS, or neither".to_owned(),
            ));
        }
        for destination in self.effective_destinations() {
            if destination.destination_type == DestinationType::Otlp {
                self.check_endpoint(&destination)?;
            }
        }
        Ok(())
    }

    fn check_endpoint(&self, destination: &DestinationConfig) -> Result<(), Error> {
        let protocol = destination.protocol.unwrap_or(self.protocol);
        let Some(endpoint) = &destination.endpoint else { return Ok(()) };
        let shown = without_userinfo(endpoint);
        let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match (protocol, scheme.as_deref()) {
            (_, Some("http" | "https")) | (Protocol::Grpc, None) => Ok(()),
            (_, Some(other)) => Err(invalid(
                format!("endpoint `{shown}` has the scheme `{other}`; expected http or https"),
                "write it as http://host:4318 or https://host:4318".to_owned(),
            )),
            (Protocol::HttpProtobuf, None) => Err(invalid(
                format!("endpoint `{shown}` has no scheme; expected http:// or https://"),
                format!("write it as http://{shown}"),
            )),
        }
    }

    /// Every destination with the keys of the top level filled in; URLs are final.
    pub fn effective_destinations(&self) -> Vec<DestinationConfig> {
        let listed = self.destinations.clone().unwrap_or_else(|| {
            let mut implied = Vec::new();
            if self.file_directory.is_some() {
                implied.push(DestinationConfig::new(DestinationType::File));
            }
            if self.endpoint.is_some() || implied.is_empty() {
                implied.push(DestinationConfig::new(DestinationType::Otlp));
            }
            implied
        });
        listed.into_iter().map(|entry| self.filled_in(entry)).collect()
    }

    fn filled_in(&self, mut entry: DestinationConfig) -> DestinationConfig {
        let protocol = *entry.protocol.get_or_insert(self.protocol);
        entry.compression.get_or_insert(self.compression);
        entry.timeout.get_or_insert(self.timeout);
        entry.insecure.get_or_insert(self.insecure);
        entry.keep.get_or_insert(self.file_keep);
        entry.headers.get_or_insert_with(|| self.headers.clone());
        entry.certificate = entry.certificate.or_else(|| self.certificate.clone());
        entry.client_key = entry.client_key.or_else(|| self.client_key.clone());
        entry.client_certificate = entry.client_certificate.or_else(|| self.client_certificate.clone());
        entry.directory = entry.directory.or_else(|| self.file_directory.clone());
        if entry.destination_type == DestinationType::File {
            entry.directory.get_or_insert_with(|| ".".to_owned());
            return entry;
        }
        let own = entry.endpoint.is_some();
        let default = match protocol {
            Protocol::HttpProtobuf => "http://localhost:4318",
            Protocol::Grpc => "http://localhost:4317",
        };
        let endpoint = entry.endpoint.take().or_else(|| self.endpoint.clone()).unwrap_or_else(|| default.to_owned());
        let form = if own { EndpointForm::Guessed } else { self.endpoint_form() };
        entry.endpoint = Some(final_url(&endpoint, protocol, form));
        entry
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

#[derive(Clone, Copy, PartialEq)]
enum EndpointForm {
    /// The signal's path is added.
    Base,
    /// Used as it is.
    Verbatim,
    /// The signal's path is added when there is none.
    Guessed,
}

fn final_url(endpoint: &str, protocol: Protocol, form: EndpointForm) -> String {
    if protocol == Protocol::Grpc || form == EndpointForm::Verbatim {
        return endpoint.to_owned();
    }
    let trimmed = endpoint.trim_end_matches('/');
    let after_scheme = trimmed.split_once("://").map_or(trimmed, |(_, rest)| rest);
    let has_path = after_scheme.contains('/');
    if form == EndpointForm::Guessed && has_path {
        return endpoint.to_owned();
    }
    format!("{trimmed}{PROFILES_PATH}")
}

/// A URL fit to be shown: user and password left out.
pub(crate) fn without_userinfo(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let authority_end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..authority_end].rsplit_once('@').map_or(&rest[..authority_end], |(_, host)| host);
    format!("{scheme}{host}{}", &rest[authority_end..])
}

fn invalid(message: String, hint: String) -> Error {
    Error::new(ErrorKind::InvalidConfig, message, hint)
}
