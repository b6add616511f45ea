//! Checks that the values of a configuration are consistent, and derives values from several keys. Called at the end of
//! loading and by `Profiler`, since a program can fill the struct itself.

use crate::error::{Error, ErrorKind};
use crate::keys::table::{check_output, Config};
use crate::types::choices::{ConfigSource, DestinationConfig, DestinationType, LinkDetail, Profiles, Protocol};
use crate::types::duty_cycle::DutyCycle;
use crate::types::endpoint::{self, final_url, EndpointForm};
use crate::types::pull::{check_pull, PullAddress};
use crate::types::retention::{SampleRetention, TailDuration};
use spanprof_signal::SampleKind;

/// Largest request, bytes: 4 MiB, the default maximum of gRPC messages, less the names that follow the split.
const MAX_REQUEST_BYTES: u64 = 4_128_768;
/// Use above which `load_shedding=true` without a threshold sheds.
const DEFAULT_SHEDDING_USE: f64 = 0.9;

impl Config {
    /// Checks the loaded configuration. Conflicting values are an error when all come from code; a value of a variable or a
    /// file is dropped with a warning.
    pub(crate) fn finish(mut self) -> Result<Config, Error> {
        self.turn_on_all_profiles();
        self.complete();
        self.warnings.extend(self.ignored_tail_condition());
        if let Some(problem) = self.cpu_without_signals().filter(|_| !self.all_in_code(&["cpu", "signals"])) {
            self.sources.remove("cpu");
            self.warnings.push(format!("{}; CPU samples are off", problem.message));
        }
        if let Some(problem) = self.half_of_mutual_tls() {
            let half = if self.client_key.is_some() { "client_key" } else { "client_certificate" };
            if self.is_set_outside_code(half) {
                self.reset(half);
                self.warnings.push(format!("{}; {half} is ignored", problem.message));
            }
        }
        if let Some(problem) = self.pull_without_token().filter(|_| self.is_set_outside_code("pull")) {
            self.reset("pull");
            self.warnings.push(format!("{}; pull is ignored", problem.message));
        }
        self.check()?;
        Ok(self)
    }

    /// Sets values that follow from others, at the start and after a change.
    pub(crate) fn complete(&mut self) {
        self.turn_on_tail_retention();
        if self.max_profile_size > MAX_REQUEST_BYTES {
            let source = self.sources.get("max_profile_size").map(|source| format!(" ({source})")).unwrap_or_default();
            let size = std::mem::replace(&mut self.max_profile_size, MAX_REQUEST_BYTES);
            self.warnings.push(format!(
                "max_profile_size{source} is {size} bytes; using {MAX_REQUEST_BYTES}, because receivers refuse larger requests \
                 by default. Larger profiles are split without loss"
            ));
        }
    }

    /// Maximum size of a request, bytes.
    #[doc(hidden)]
    pub fn request_bytes(&self) -> u64 {
        self.max_profile_size.min(MAX_REQUEST_BYTES)
    }

    /// The CPU or memory use above which load is shed.
    #[doc(hidden)]
    pub fn shedding_threshold(&self) -> Option<f64> {
        match self.load_shedding {
            Some(false) => None,
            Some(true) => self.load_shedding_threshold.or(Some(DEFAULT_SHEDDING_USE)),
            None => self.load_shedding_threshold,
        }
    }

    /// An error when a value is outside its bounds or values conflict.
    pub fn check(&self) -> Result<(), Error> {
        if let Some((key, shown)) = self.out_of_bounds() {
            return Err(key.out_of_bounds(&shown, ""));
        }
        let conflict = self.cpu_without_signals().or_else(|| self.half_of_mutual_tls());
        if let Some(problem) = conflict.or_else(|| self.pull_without_token()) {
            return Err(problem);
        }
        let entries = self.destinations.iter().flatten().filter_map(|entry| entry.endpoint.as_ref());
        for endpoint in entries.chain(&self.endpoint) {
            endpoint::check(endpoint).map_err(|problem| problem.into_error("endpoint"))?;
        }
        let metrics_endpoint = self.metrics_endpoint.as_deref();
        metrics_endpoint.map_or(Ok(()), endpoint::check).map_err(|problem| problem.into_error("metrics_endpoint"))?;
        self.output.as_deref().map_or(Ok(()), check_output).map_err(|problem| problem.into_error("output"))?;
        self.pull.as_deref().map_or(Ok(()), check_pull).map_err(|problem| problem.into_error("pull"))?;
        Ok(())
    }

    /// Applies `profiles=all` to the keys that no layer set.
    fn turn_on_all_profiles(&mut self) {
        if self.profiles != Profiles::All {
            return;
        }
        let keys = [
            ("wall", &mut self.wall),
            ("gc", &mut self.gc),
            ("heap", &mut self.heap),
            ("lock", &mut self.lock),
            ("off_cpu", &mut self.off_cpu),
            ("threads", &mut self.threads),
        ];
        let source = self.sources.get("profiles").cloned().unwrap_or(ConfigSource::Code);
        for (key, value) in keys {
            if !self.sources.contains_key(key) {
                *value = true;
                self.sources.insert(key, source.clone());
            }
        }
    }

    fn cpu_without_signals(&self) -> Option<Error> {
        let conflict = self.enabled && !self.signals && self.cpu && self.sources.contains_key("cpu") && !self.wall;
        conflict.then(|| {
            invalid("cpu=true requires signals, but signals=false", "set wall=true and omit cpu, or set signals=true")
        })
    }

    /// The parsed address of `pull`.
    #[doc(hidden)]
    pub fn pull_address(&self) -> Option<PullAddress> {
        PullAddress::parse(self.pull.as_deref()?).ok()
    }

    /// Profiles contain names of functions and values of labels: other hosts need the token.
    fn pull_without_token(&self) -> Option<Error> {
        let address = self.pull_address().filter(|address| !address.is_loopback() && self.pull_token.is_none())?;
        let shown = address.shown();
        let message = format!("pull={shown} can be reached from other hosts and requires pull_token");
        Some(invalid(&message, "set pull_token, or use localhost"))
    }

    fn half_of_mutual_tls(&self) -> Option<Error> {
        (self.client_key.is_some() != self.client_certificate.is_some()).then(|| {
            invalid(
                "client_key and client_certificate must be set together, but only one is set",
                "set both to use mutual TLS, or neither",
            )
        })
    }

    /// Whether a layer set the key.
    #[doc(hidden)]
    pub fn is_explicit(&self, key: &str) -> bool {
        self.sources.get(key).is_some_and(|source| *source != ConfigSource::Default)
    }

    /// Whether the time off CPU is that of requests only: of threads that carry a span or labels.
    #[doc(hidden)]
    pub fn has_off_cpu_of_requests_only(&self) -> bool {
        self.off_cpu && !self.is_explicit("off_cpu")
    }

    /// Whether the key was set by a variable or a file, so that it must never stop the program.
    #[doc(hidden)]
    pub fn is_set_outside_code(&self, key: &str) -> bool {
        matches!(self.sources.get(key), Some(ConfigSource::Environment(_) | ConfigSource::File(_)))
    }

    fn all_in_code(&self, keys: &[&str]) -> bool {
        keys.iter().all(|key| matches!(self.sources.get(key), Some(ConfigSource::Code)))
    }

    /// Every destination, with missing keys from the top level and final URLs.
    pub fn effective_destinations(&self) -> Vec<DestinationConfig> {
        let listed = self.destinations.clone().unwrap_or_else(|| {
            let mut implied = Vec::new();
            if self.file_directory.is_some() {
                implied.push(DestinationConfig::new(DestinationType::File));
            }
            if self.endpoint.is_some() || (implied.is_empty() && self.output.is_none() && self.pull.is_none()) {
                implied.push(DestinationConfig::new(DestinationType::Otlp));
            }
            implied
        });
        listed.into_iter().map(|entry| self.completed(entry)).collect()
    }

    pub(crate) fn completed(&self, mut entry: DestinationConfig) -> DestinationConfig {
        entry.compression.get_or_insert(self.compression);
        entry.timeout.get_or_insert(self.timeout);
        let is_pyroscope = entry.destination_type == DestinationType::Pyroscope;
        // Versions up to 2.0 store a series for each trace id.
        let is_link_set = self.link != LinkDetail::TraceAndSpan || self.sources.contains_key("link");
        entry.link.get_or_insert(if is_pyroscope && !is_link_set { LinkDetail::Span } else { self.link });
        entry.keep.get_or_insert(self.file_keep);
        entry.max_age = entry.max_age.or(self.file_max_age);
        entry.max_bytes = entry.max_bytes.or(self.file_max_bytes);
        entry.headers.get_or_insert_with(|| self.headers.clone());
        entry.certificate = entry.certificate.or_else(|| self.certificate.clone());
        entry.client_key = entry.client_key.or_else(|| self.client_key.clone());
        entry.client_certificate = entry.client_certificate.or_else(|| self.client_certificate.clone());
        entry.directory = entry.directory.or_else(|| self.file_directory.clone());
        let has_own_endpoint = entry.endpoint.is_some();
        let endpoint = entry.endpoint.take().or_else(|| self.endpoint.clone());
        if is_pyroscope {
            entry.protocol = Some(Protocol::HttpProtobuf);
        }
        let protocol = *entry.protocol.get_or_insert_with(|| self.protocol_for(endpoint.as_deref()));
        // A value set in the struct has no source.
        let is_insecure_set = self.insecure || self.sources.contains_key("insecure");
        entry.insecure = entry.insecure.or_else(|| is_insecure_set.then_some(self.insecure));
        if entry.destination_type == DestinationType::File {
            entry.directory.get_or_insert_with(|| ".".to_owned());
            return entry;
        }
        let default = match protocol {
            _ if is_pyroscope => "http://localhost:4040",
            Protocol::HttpProtobuf => "http://localhost:4318",
            Protocol::Grpc => "http://localhost:4317",
        };
        let form = if has_own_endpoint { EndpointForm::Guessed } else { self.endpoint_form() };
        let endpoint = endpoint::with_scheme(&endpoint.unwrap_or_else(|| default.to_owned()), protocol, &entry);
        entry.endpoint =
            Some(if is_pyroscope { endpoint::push_url(&endpoint) } else { final_url(&endpoint, protocol, form) });
        entry
    }

    /// The transport of an entry without `protocol`. Port 4317 is the port of OTLP/gRPC and the default of many SDKs: such an
    /// endpoint in a shared variable selects gRPC unless a protocol is set.
    fn protocol_for(&self, endpoint: Option<&str>) -> Protocol {
        let is_set = self.protocol != Protocol::HttpProtobuf || self.sources.contains_key("protocol");
        match endpoint.and_then(endpoint::port) {
            Some(endpoint::GRPC_PORT) if !is_set => Protocol::Grpc,
            _ => self.protocol,
        }
    }

    /// The form of the top-level endpoint, which depends on its source.
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

impl Config {
    /// The duty cycle of each kind that has one.
    #[doc(hidden)]
    pub fn duty_cycles(&self) -> Vec<(SampleKind, DutyCycle)> {
        let cycles = [
            (SampleKind::Cpu, self.cpu, self.cpu_duty_cycle),
            (SampleKind::Wall, self.wall, self.cpu_duty_cycle),
            (SampleKind::OffCpu, self.off_cpu, self.cpu_duty_cycle),
            (SampleKind::Alloc, self.heap, self.heap_duty_cycle),
            (SampleKind::Lock, self.lock, self.cpu_duty_cycle),
        ];
        let of_kind =
            |(kind, is_on, cycle): (SampleKind, bool, Option<DutyCycle>)| Some((kind, cycle.filter(|_| is_on)?));
        cycles.into_iter().filter_map(of_kind).filter(|(_, cycle)| cycle.on < cycle.every).collect()
    }

    /// Turns off the kinds that pause at this time. Returns the time of the next change; `None` without duty cycles.
    #[doc(hidden)]
    pub fn pause_by_duty_cycle(&mut self, now_ns: u64, phase: f64) -> Option<u64> {
        let mut next_ns = None;
        for (kind, cycle) in self.duty_cycles() {
            let (is_on, change_ns) = cycle.at(now_ns, phase);
            next_ns = Some(next_ns.map_or(change_ns, |next_ns: u64| next_ns.min(change_ns)));
            match kind {
                _ if is_on => {}
                SampleKind::Cpu => self.cpu = false,
                SampleKind::Wall => self.wall = false,
                SampleKind::OffCpu => self.off_cpu = false,
                SampleKind::Alloc => self.heap = false,
                _ => self.lock = false,
            }
        }
        next_ns
    }
}

impl Config {
    /// The key of a condition of retention that a layer set.
    fn tail_condition(&self) -> Option<&'static str> {
        let conditions = [
            ("tail_duration", self.tail_duration != TailDuration::Ignored),
            ("tail_cpu_share", self.tail_cpu_share.is_some()),
            ("tail_allocated_bytes", self.tail_allocated_bytes.is_some()),
            ("tail_errors", self.tail_errors),
        ];
        conditions.into_iter().find(|(key, is_on)| *is_on && self.is_explicit(key)).map(|(key, _)| key)
    }

    /// Applies `retention=tail` where a layer set a condition and none set `retention`.
    fn turn_on_tail_retention(&mut self) {
        if !self.is_explicit("retention") && self.tail_condition().is_some() {
            self.retention = SampleRetention::Tail;
        }
    }

    /// As [`Config::turn_on_tail_retention`], after conditions were removed.
    pub(crate) fn reset_implied_retention(&mut self) {
        if !self.is_explicit("retention") {
            self.retention = Config::default().retention;
            self.turn_on_tail_retention();
        }
    }

    /// The source of `retention=tail` that a condition turned on.
    pub(crate) fn source_of_implied(&self, key: &str) -> Option<&ConfigSource> {
        let is_implied = key == "retention" && self.retention == SampleRetention::Tail;
        is_implied.then(|| self.tail_condition()).flatten().and_then(|condition| self.sources.get(condition))
    }

    /// A condition that has no effect because a layer set `retention=all`.
    fn ignored_tail_condition(&self) -> Option<String> {
        let condition = self.tail_condition().filter(|_| self.retention == SampleRetention::All)?;
        let source = |key| self.sources.get(key).map(ToString::to_string).unwrap_or_default();
        let (of_condition, of_retention) = (source(condition), source("retention"));
        Some(format!("{condition} ({of_condition}) has no effect, because of retention=all ({of_retention})"))
    }
}

fn invalid(message: &str, hint: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_export::Secret;
    use std::time::Duration;

    #[test]
    fn only_loopback_addresses_need_no_token() {
        let config = |pull: &str, token: Option<&str>| Config {
            pull: Some(pull.to_owned()),
            pull_token: token.map(Secret::from),
            ..Config::default()
        };
        for pull in ["localhost:0", "127.0.0.1:6060", "127.8.0.1:1", "[::1]:6060"] {
            assert!(config(pull, None).check().is_ok(), "{pull}");
        }
        for pull in ["0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "shop:6060"] {
            let problem = config(pull, None).check().unwrap_err();
            assert!(problem.message.contains(pull) && problem.hint.contains("pull_token"), "{problem:?}");
            assert!(config(pull, Some("marker")).check().is_ok(), "{pull}");
        }
    }

    #[test]
    fn the_token_is_never_shown() {
        let config = Config { pull_token: Some(Secret::from("marker")), ..Config::default() };
        assert!(!format!("{config:?} {:?}", config.entries()).contains("marker"));
        assert!(config.entries().iter().any(|(name, text, _)| *name == "pull_token" && text == "***"));
    }

    #[test]
    fn only_kinds_with_a_duty_cycle_pause() {
        let cpu_duty_cycle = Some(DutyCycle { on: Duration::from_secs(1), every: Duration::from_secs(10) });
        let config = Config { wall: true, lock: true, cpu_duty_cycle, ..Config::default() };
        let at = |now_ns| {
            let mut active = config.clone();
            let next_ns = active.pause_by_duty_cycle(now_ns, 0.0);
            ([active.cpu, active.wall, active.lock, active.heap], next_ns)
        };
        assert_eq!(at(0), ([true; 4], Some(1_000_000_000)));
        assert_eq!(at(1_000_000_000), ([false, false, false, true], Some(10_000_000_000)));
        assert_eq!(Config::default().pause_by_duty_cycle(0, 0.0), None);
    }
}
