//! Encodes closed windows and queues them at the exporter. Runs on the drain thread, and on a host thread only where the
//! program sends a capture. Not here: network and files (`spanprof_export`), the end of a window (`profiler`), the detail that
//! a destination receives (`reduction`).

use std::net::ToSocketAddrs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::deliver::{reduction, sidecar};
use crate::host_log::{log, LogLevel};
use spanprof_aggregate::{ClosedWindow, Resource};
use spanprof_config::{export_destination, Config, DestinationConfig, DestinationType, Error, ErrorKind, Proxies};
use spanprof_export::{
    BufferSettings, DestinationStats, ExportErrorKind, ExportPayload, Exporter, ExporterSettings, LossBaseline,
    MetricsStats, SplitFn,
};
use spanprof_profile::encode::otlp::{self, EncodedRequest, Revision};
use spanprof_profile::encode::{pprof, pyroscope};
use spanprof_profile::kinds;
use spanprof_profile::transform::{refused_label_names, Reduction};
use spanprof_profile::{Attribute, ProfilesData, ResourceProfiles};

/// Age at which a request leaves the disk buffer: Pyroscope refuses profiles that are older than 1 hour.
const BUFFER_MAX_AGE: Duration = Duration::from_secs(50 * 60);
/// Stack size of each exporter thread, which runs the system's resolver and TLS.
const STACK_BYTES: usize = 2 << 20;
/// Keys whose invalid values are detected only when the destinations are set up.
const FALLIBLE_KEYS: [&str; 10] = [
    "certificate",
    "client_certificate",
    "client_key",
    "headers",
    "file_directory",
    "buffer_directory",
    "endpoint",
    "metrics_endpoint",
    "metrics_headers",
    "destinations",
];
/// A receiver that restarts refuses the connections of one or two requests.
const METRICS_FAILURES_BEFORE_WARNING: u64 = 3;
/// Keys that are only valid together.
const MUTUAL_TLS: [&str; 2] = ["client_certificate", "client_key"];

/// Encodes each closed window once per destination group, and queues it at the exporter.
pub(crate) struct WindowDelivery {
    exporter: Exporter,
    /// Taken before the first window.
    start: LossBaseline,
    groups: Vec<DestinationGroup>,
    /// Of the resource, for side-cars.
    deployment: Vec<Attribute>,
    label_names_checked: AtomicBool,
    /// Whether the warning about each receiver of metrics was logged.
    metrics_warned: Vec<AtomicBool>,
}

/// Indices of the destinations that receive the same profiles.
struct DestinationGroup {
    reduction: Reduction,
    files: Vec<usize>,
    otlp: Vec<usize>,
    pyroscope: Vec<usize>,
}

/// Time of a window, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct WindowTime {
    start_unix_ns: u64,
    end_unix_ns: u64,
}

impl WindowTime {
    fn start_unix_ms(self) -> u64 {
        self.start_unix_ns / 1_000_000
    }
}

fn kind_of(kind: ExportErrorKind) -> ErrorKind {
    match kind {
        ExportErrorKind::Setting => ErrorKind::InvalidConfig,
        ExportErrorKind::File => ErrorKind::InvalidDestination,
        ExportErrorKind::System => ErrorKind::System,
    }
}

impl WindowDelivery {
    /// Starts the exporter; `None` when there is no destination. A value of an environment variable or a file that makes a
    /// destination unusable (a missing certificate, a read-only directory) is reset in `config` with a warning.
    ///
    /// # Errors
    /// When a value in code is invalid, or the system refuses a thread.
    pub fn start(config: &mut Config, resource: &Resource) -> Result<Option<Self>, Error> {
        let problem = match Self::start_as_configured(config, resource) {
            Ok(delivery) => return Ok(delivery),
            // A value that is ignored would not help.
            Err(problem) if problem.kind == ErrorKind::System => return Err(problem),
            Err(problem) => problem,
        };
        let from_environment: Vec<_> =
            FALLIBLE_KEYS.into_iter().filter(|key| config.is_set_outside_code(key)).collect();
        // Nearly always a single key is the cause; the last attempt resets all of them.
        let single = from_environment.iter().map(|key| vec![*key]);
        for keys in single.chain([from_environment.clone()]) {
            let mut reduced = config.clone();
            let append_name = |mut names: String, key: &&str| {
                let source = config.sources.get(*key).map(ToString::to_string).unwrap_or_default();
                names.push_str(&format!("{}{key} ({source})", if names.is_empty() { "" } else { ", " }));
                names
            };
            let names = keys.iter().fold(String::new(), append_name);
            for key in keys.iter().flat_map(|key| {
                if key.starts_with("client_") {
                    &MUTUAL_TLS[..]
                } else {
                    std::slice::from_ref(key)
                }
            }) {
                reduced.reset(key);
            }
            if let Ok(delivery) = Self::start_as_configured(&reduced, resource) {
                log(LogLevel::Warning, &format!("spanprof: {}; {names} is ignored", problem.message));
                *config = reduced;
                return Ok(delivery);
            }
        }
        let without_proxy = Config { proxy: Proxies::default(), ..config.clone() };
        if let (true, Ok(delivery)) =
            (config.proxy != without_proxy.proxy, Self::start_as_configured(&without_proxy, resource))
        {
            log(LogLevel::Warning, &format!("spanprof: {}; the variables for proxies are ignored", problem.message));
            *config = without_proxy;
            return Ok(delivery);
        }
        Err(problem)
    }

    fn start_as_configured(config: &Config, resource: &Resource) -> Result<Option<Self>, Error> {
        let configured = config.effective_destinations();
        let metrics = config.metrics_receivers().receivers;
        if configured.is_empty() && metrics.is_empty() {
            return Ok(None);
        }
        let groups = groups(&configured, config);
        let destinations = configured.into_iter().map(|destination| export_destination(destination, config)).collect();
        let settings = ExporterSettings {
            queue_max_bytes: config.queue_max_bytes as usize,
            buffer: config.buffer_directory.as_ref().map(|directory| BufferSettings {
                directory: directory.into(),
                service: resource.service_name.clone(),
                max_bytes: config.buffer_max_bytes,
                max_age: BUFFER_MAX_AGE,
                split: Some(otlp::split_encoded),
            }),
            metrics: metrics.into_iter().map(|receiver| export_destination(receiver, config)).collect(),
            start_thread: |name, body| spanprof_os::start_own_thread(name, STACK_BYTES, body).map(drop),
            look_up: |host, port| spanprof_os::exclude_forks(|| Ok((host, port).to_socket_addrs()?.collect())),
            ..ExporterSettings::default()
        };
        let exporter = Exporter::start(destinations, settings)
            .map_err(|error| Error::new(kind_of(error.kind), error.message, error.hint))?;
        let start = exporter.loss_baseline();
        let deployment = resource.deployment.clone();
        let metrics_warned = exporter.metrics_stats().iter().map(|_| AtomicBool::new(false)).collect();
        let label_names_checked = AtomicBool::new(false);
        Ok(Some(Self { exporter, start, groups, deployment, label_names_checked, metrics_warned }))
    }

    /// Encodes a window once per group of destinations and queues it. Never waits.
    pub fn send(&self, window: ClosedWindow, max_profile_size: usize) {
        let time = WindowTime {
            start_unix_ns: window.start_unix_ns,
            end_unix_ns: window.start_unix_ns.saturating_add(window.duration_ns),
        };
        self.check_label_names(&window.data);
        let Some((last, others)) = self.groups.split_last() else { return };
        for group in others {
            self.send_to(group, window.data.clone(), time, max_profile_size);
        }
        self.send_to(last, window.data, time, max_profile_size);
    }

    fn send_to(&self, group: &DestinationGroup, data: ProfilesData, time: WindowTime, max_profile_size: usize) {
        let data = group.reduction.apply(data);
        let time_unix_ms = time.start_unix_ms();
        if !group.files.is_empty() {
            let WindowTime { start_unix_ns, end_unix_ns } = time;
            let sidecar = Some(sidecar::json(&data.resources, &self.deployment, start_unix_ns, end_unix_ns));
            for file in files(&data, time_unix_ms) {
                let file = ExportPayload { sidecar: sidecar.clone(), ..file };
                for index in &group.files {
                    self.exporter.enqueue(*index, file.clone());
                }
            }
        }
        if !group.pyroscope.is_empty() {
            let requests = pyroscope::encode(data.clone(), max_profile_size);
            self.enqueue_requests(&group.pyroscope, requests, time_unix_ms, None);
        }
        if !group.otlp.is_empty() && otlp::has_values(&data) {
            let requests = otlp::encode_split(data, Revision::One, max_profile_size);
            self.enqueue_requests(&group.otlp, requests, time_unix_ms, Some(otlp::split_encoded));
        }
    }

    fn enqueue_requests(
        &self,
        destinations: &[usize],
        requests: Vec<EncodedRequest>,
        time_unix_ms: u64,
        split: Option<SplitFn>,
    ) {
        for EncodedRequest { body, samples } in requests {
            for index in destinations {
                let payload = ExportPayload {
                    body: body.clone(),
                    profile_type: None,
                    time_unix_ms,
                    samples: samples as u64,
                    split,
                    sidecar: None,
                };
                self.exporter.enqueue(*index, payload);
            }
        }
    }

    /// Warns once about label names for which Pyroscope 1.x refuses the request.
    fn check_label_names(&self, data: &ProfilesData) {
        if self.label_names_checked.load(Ordering::Relaxed) || self.groups.iter().all(|group| group.otlp.is_empty()) {
            return;
        }
        let refused = refused_label_names(data);
        if !refused.is_empty() {
            self.label_names_checked.store(true, Ordering::Relaxed);
            log(LogLevel::Warning, &refused_names_line(&refused));
        }
    }

    /// Whether profiles have a destination, beside metrics.
    pub fn has_destinations(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The losses so far, from which [`WindowDelivery::flush`] counts.
    pub fn loss_baseline(&self) -> LossBaseline {
        self.exporter.loss_baseline()
    }

    /// Sends immediately; true when everything was delivered in time and nothing was lost since `before`.
    pub fn flush(&self, before: &LossBaseline, timeout: Duration) -> bool {
        self.exporter.flush_since(before, timeout)
    }

    /// Sends the queued windows, then ends the exporter; true when every window since the start was delivered. Does not wait
    /// for an unreachable receiver.
    pub fn stop(&self, timeout: Duration) -> bool {
        self.exporter.stop_since(&self.start, timeout)
    }

    pub fn stats(&self) -> Vec<DestinationStats> {
        self.exporter.stats()
    }

    /// Sends a request with metrics to each receiver of metrics. Never waits.
    pub fn send_metrics(&self, body: Vec<u8>) {
        self.exporter.send_metrics(body);
    }

    pub fn metrics_stats(&self) -> Vec<MetricsStats> {
        self.exporter.metrics_stats()
    }

    /// Warns once about each receiver that refuses metrics or cannot be reached several times in a row; at the end of the run also
    /// about one that received none.
    pub fn log_metrics_failures(&self, at_end: bool) {
        let unwarned = |warned: &AtomicBool| !warned.load(Ordering::Relaxed);
        if !self.metrics_warned.iter().any(unwarned) {
            return;
        }
        for (number, (stats, warned)) in self.metrics_stats().iter().zip(&self.metrics_warned).enumerate() {
            let has_none = at_end && stats.sent == 0 && stats.failed > 0;
            let is_failing = has_none || stats.refused || stats.failed_in_a_row >= METRICS_FAILURES_BEFORE_WARNING;
            if is_failing && !warned.swap(true, Ordering::Relaxed) {
                log(LogLevel::Warning, &metrics_failure_line(number, stats));
            }
        }
    }

    /// See [`Exporter::release_locks_in_child`].
    pub fn release_locks_in_child(&self) {
        self.exporter.release_locks_in_child();
    }

    /// See [`Exporter::forget_after_fork`].
    pub fn forget_after_fork(self) {
        self.exporter.forget_after_fork();
    }
}

fn groups(destinations: &[DestinationConfig], config: &Config) -> Vec<DestinationGroup> {
    let mut groups: Vec<DestinationGroup> = Vec::new();
    for (index, destination) in destinations.iter().enumerate() {
        let reduction = reduction::of_destination(destination, config);
        let group = groups.iter().position(|group| group.reduction == reduction).unwrap_or_else(|| {
            groups.push(DestinationGroup { reduction, files: Vec::new(), otlp: Vec::new(), pyroscope: Vec::new() });
            groups.len() - 1
        });
        match destination.destination_type {
            DestinationType::File => groups[group].files.push(index),
            DestinationType::Otlp => groups[group].otlp.push(index),
            DestinationType::Pyroscope => groups[group].pyroscope.push(index),
        }
    }
    groups
}

fn metrics_failure_line(number: usize, stats: &MetricsStats) -> String {
    let reason = stats.last_error.as_deref().unwrap_or("no response");
    if stats.stopped {
        format!("spanprof: no more metrics are sent: {reason}")
    } else {
        format!("spanprof: metrics were not accepted: {reason}; stats() counts failures as metrics.{number}.failed")
    }
}

fn refused_names_line(refused: &[String]) -> String {
    const MAX_NAMES: usize = 5;
    let shown: Vec<_> = refused.iter().take(MAX_NAMES).map(|name| format!("`{}`", name.escape_debug())).collect();
    let more = match refused.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "spanprof: Pyroscope 1.x refuses every request with the label name {}{more}; it accepts ASCII letters, digits (not \
         first), `_` and `.`. Rename the label; Pyroscope 2 and other receivers accept it",
        shown.join(", ")
    )
}

/// One file for each profile type. Types that are measured together (objects and bytes) share a file.
fn files(data: &ProfilesData, time_unix_ms: u64) -> Vec<ExportPayload> {
    let mut names: Vec<&str> = Vec::new();
    for (_, profile) in data.profiles() {
        let name = file_type(profile.type_name());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let payload = |name: &str| {
        let resources = data.resources.iter().map(|resource| ResourceProfiles {
            profiles: resource
                .profiles
                .iter()
                .filter(|profile| file_type(profile.type_name()) == name)
                .cloned()
                .collect(),
            resource: resource.resource.clone(),
            dropped_attributes_count: resource.dropped_attributes_count,
            scope: resource.scope.clone(),
        });
        let part = ProfilesData { dictionary: data.dictionary.clone(), resources: resources.collect() };
        ExportPayload {
            body: pprof::encode(&part),
            profile_type: Some(name.to_owned()),
            time_unix_ms,
            samples: part.sample_count() as u64,
            split: None,
            sidecar: None,
        }
    };
    names.into_iter().map(payload).collect()
}

/// The first part of the name of a file with profiles of a type.
fn file_type(type_name: &str) -> &str {
    kinds::of_type(type_name).map_or(type_name, |kind| kind.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_config::LinkDetail;

    #[test]
    fn destinations_of_equal_detail_share_one_encoding() {
        let entry = |destination_type, link| DestinationConfig { link, ..DestinationConfig::new(destination_type) };
        let destinations = [
            entry(DestinationType::Otlp, None),
            entry(DestinationType::Otlp, Some(LinkDetail::Span)),
            entry(DestinationType::File, None),
        ];
        let indexes = |config: Config| {
            let groups = groups(&destinations, &config);
            let files = |group: &DestinationGroup| group.files.clone();
            groups.iter().map(|group| (group.otlp.clone(), files(group))).collect::<Vec<(_, Vec<_>)>>()
        };
        let files_alone = [(vec![0], vec![]), (vec![1], vec![]), (vec![], vec![2])];
        assert_eq!(indexes(Config::default()), files_alone, "only files have the age of objects in use");
    }

    #[test]
    fn the_warning_about_refused_label_names_lists_five_of_them() {
        let names: Vec<String> = (0..7).map(|number| format!("a-{number}")).collect();
        let line = refused_names_line(&names);
        assert!(line.contains("`a-0`, `a-1`, `a-2`, `a-3`, `a-4` and 2 more;"), "{line}");
    }
}
