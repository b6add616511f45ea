//! The table of configuration keys: name, type, default, unit, bounds and documentation. The struct, its validation, the
//! names of the variables, the file reader, the nearest-name hints and the reference page are derived from it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::binding_options::BindingOption;
use super::key::{Bounds, Key};
use crate::error::{Error, ErrorKind};
use crate::types::choices::{
    Clock, Compression, ConfigSource, DestinationConfig, Headers, LinkDetail, NativeFrames, Profiles, Protocol, Proxies,
};
use crate::types::duty_cycle::DutyCycle;
use crate::types::endpoint::{self, UnusableText};
use crate::types::output_format::OutputFormat;
use crate::types::pull::check_pull;
use crate::types::redaction::{RedactionRules, SecretText};
use crate::types::retention::{CpuShare, SampleRetention, TailDuration};
use crate::types::setting::SettingValue;
use crate::types::shape::Shape;
use crate::types::share::percent_hint;
use crate::types::value::{ConfigType, ConfigValue};
use spanprof_export::Secret;
use spanprof_profile::redact::RedactionTarget;

impl Key {
    /// The hint for an invalid value.
    pub(crate) fn hint(&self) -> String {
        let default = Config::default().entries().into_iter().find(|(name, _, _)| *name == self.name);
        let default = default.map(|(_, text, _)| text).filter(|text| !text.is_empty());
        let bounds = self.bounds.map(|bounds| format!("{} to {} {}", bounds.min, bounds.max, self.unit));
        let details =
            [bounds.map(|bounds| bounds.trim_end().to_owned()), default.map(|text| format!("default {text}"))];
        let details = details.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let details = if details.is_empty() { details } else { format!(" ({details})") };
        format!("{}{details}: {}", self.name, self.doc.trim())
    }

    /// The error about a value outside its bounds; `origin` is the source of the value, or empty.
    pub(crate) fn out_of_bounds(&self, shown: &str, origin: &str) -> Error {
        let range = self.range().unwrap_or_default();
        let is_share = |_: &Bounds| self.shape == Shape::Share;
        let percent = self.bounds.filter(is_share).map(|bounds| percent_hint(shown, bounds.max)).unwrap_or_default();
        Error::new(
            ErrorKind::InvalidConfig,
            format!("{}{origin} must lie between {range}, got {shown}{percent}", self.name),
            self.hint(),
        )
    }
}

/// Reads the value of one key.
struct KeyValue {
    text: fn(&Config) -> String,
    magnitude: fn(&Config) -> Option<f64>,
}

/// Reason why a setting is invalid.
pub(crate) enum InvalidSetting {
    UnknownKey,
    /// Not a value of the key's type, with the problem inside the value if known.
    WrongType(&'static Key, Option<String>),
    OutOfBounds(&'static Key),
    /// Not a value of the binding's option.
    Option(&'static BindingOption),
    /// Not the address of a receiver, or not the name of a file.
    Unusable(UnusableText),
}

/// Checks that the extension of a file selects a format.
pub(crate) fn check_output(name: &str) -> Result<(), UnusableText> {
    match OutputFormat::of(name) {
        Some(_) => Ok(()),
        None => Err(UnusableText {
            message: format!("`{name}` has no known format; expected a name that ends in .html, .pb.gz or .folded"),
            hint: "use flame.html for a flame graph in the browser",
        }),
    }
}

type Assignment = Box<dyn Fn(&mut Config) + Send + Sync>;

/// A configuration in code. Setters have the names of the keys; other keys come from the lower layers.
#[derive(Default)]
pub struct ConfigBuilder {
    pub(crate) assignments: Vec<(&'static str, Assignment)>,
}

impl ConfigBuilder {
    fn typed(mut self, key: &'static str, assignment: Assignment) -> Self {
        self.assignments.push((key, assignment));
        self
    }
}

const fn between(min: f64, max: f64) -> Option<Bounds> {
    Some(Bounds { min, max })
}

/// A value for `stats()`, without secrets: user, password and query of a URL, path of the private key.
fn shown(name: &str, text: String) -> String {
    match name {
        "endpoint" | "metrics_endpoint" => {
            let url = endpoint::without_userinfo(&text);
            url.split_once('?').map_or(url.clone(), |(address, _)| address.to_owned())
        }
        // The place of a private key.
        "client_key" if !text.is_empty() => "***".to_owned(),
        _ => text,
    }
}

macro_rules! config_keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr, $unit:literal, $bounds:expr, $live:literal;)+) => {
        /// Every setting of the profiler, typed. [`Config::load`] loads the layers; `Config::default()` has the defaults only.
        #[derive(Clone, PartialEq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $name: $type,)+
            /// Source of each value; a missing key has its default.
            pub sources: BTreeMap<&'static str, ConfigSource>,
            /// Warnings of the loading, for the host's logger: unknown keys, ignored variables.
            pub warnings: Vec<String>,
            /// Variable of the active kill switch.
            pub disabled_by: Option<String>,
            /// The proxies of the environment.
            pub proxy: Proxies,
            /// Settings of the binding.
            pub options: &'static [BindingOption],
            /// Values of these settings that a layer set, as text.
            pub option_values: BTreeMap<&'static str, String>,
        }

        /// Keys and values as in `stats()`, without secrets.
        impl std::fmt::Debug for Config {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.debug_map().entries(self.entries().into_iter().map(|(key, text, _)| (key, text))).finish()
            }
        }

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $($name: $default,)+
                    sources: BTreeMap::new(),
                    warnings: Vec::new(),
                    disabled_by: None,
                    proxy: Proxies::default(),
                    options: &[],
                    option_values: BTreeMap::new(),
                }
            }
        }

        /// Every key, in the order of the reference page.
        pub const KEYS: &[Key] = &[$(Key {
            name: stringify!($name),
            shape: <$type as ConfigType>::SHAPE,
            unit: $unit,
            bounds: $bounds,
            live: $live,
            secret: <$type as ConfigType>::SECRET,
            doc: concat!($($doc),+),
        },)+];

        /// In the order of [`KEYS`]. Functions and a loop need a tenth of the machine code of expressions for each key.
        const VALUES: &[KeyValue] = &[$(KeyValue {
            text: |config| config.$name.to_text(),
            magnitude: |config| config.$name.magnitude(),
        },)+];

        impl Config {
            /// Sets one key; an invalid value leaves the configuration unchanged.
            pub(crate) fn set(&mut self, name: &str, value: &ConfigValue) -> Result<(), InvalidSetting> {
                if let Some(option) = self.options.iter().find(|option| option.name == name) {
                    let text = option.values.text_of(value).ok_or(InvalidSetting::Option(option))?;
                    self.option_values.insert(option.name, text);
                    return Ok(());
                }
                let Some(key) = KEYS.iter().find(|key| key.name == name) else { return Err(InvalidSetting::UnknownKey) };
                match (name, value) {
                    ("endpoint" | "metrics_endpoint", ConfigValue::Text(text)) => endpoint::check(text).map_err(InvalidSetting::Unusable)?,
                    ("output", ConfigValue::Text(text)) => check_output(text).map_err(InvalidSetting::Unusable)?,
                    ("pull", ConfigValue::Text(text)) => check_pull(text).map_err(InvalidSetting::Unusable)?,
                    _ => {}
                }
                match name {
                    $(stringify!($name) => {
                        let typed = <$type>::from_value(value)
                            .ok_or_else(|| InvalidSetting::WrongType(key, <$type>::problem(value)))?;
                        if let (Some(bounds), Some(magnitude)) = (key.bounds, typed.magnitude()) {
                            if !bounds.contain(magnitude) {
                                return Err(InvalidSetting::OutOfBounds(key));
                            }
                        }
                        self.$name = typed;
                    })+
                    _ => return Err(InvalidSetting::UnknownKey),
                }
                Ok(())
            }

            /// Resets one key to its default.
            pub fn reset(&mut self, name: &str) {
                self.reset_to(name, &Config::default());
            }

            /// Sets one key, and its source, to those of another configuration.
            pub(crate) fn reset_to(&mut self, name: &str, other: &Config) {
                match name {
                    $(stringify!($name) => self.$name = other.$name.clone(),)+
                    _ => {}
                }
                match other.sources.get_key_value(name) {
                    Some((name, source)) => drop(self.sources.insert(name, source.clone())),
                    None => drop(self.sources.remove(name)),
                }
            }

            /// The first key whose value is outside its bounds.
            pub(crate) fn out_of_bounds(&self) -> Option<(&'static Key, String)> {
                KEYS.iter().zip(VALUES).find_map(|(key, value)| {
                    let is_outside = !key.bounds?.contain((value.magnitude)(self)?);
                    is_outside.then(|| (key, (value.text)(self)))
                })
            }

            /// Each key with its value as text (secrets masked) and its source.
            pub fn entries(&self) -> Vec<(&'static str, String, ConfigSource)> {
                let source = |name| {
                    let source = self.sources.get(name).or_else(|| self.source_of_implied(name));
                    source.cloned().unwrap_or(ConfigSource::Default)
                };
                let shown = |name, text: String| match name {
                    "tags" => self.shown_pairs(&self.tags, RedactionTarget::LabelValue),
                    "resource_attributes" => self.shown_pairs(&self.resource_attributes, RedactionTarget::Resource),
                    "service_name" => self.shown_service_name(),
                    _ => shown(name, text),
                };
                let entry = |(key, value): (&Key, &KeyValue)| (key.name, shown(key.name, (value.text)(self)), source(key.name));
                KEYS.iter().zip(VALUES).map(entry).collect()
            }
        }

        impl ConfigBuilder {
            $($(#[doc = $doc])+
            pub fn $name(self, value: impl Into<SettingValue<$type>>) -> Self {
                let SettingValue(value) = value.into();
                self.typed(stringify!($name), Box::new(move |config: &mut Config| config.$name = value.clone()))
            })+
        }
    };
}

config_keys! {
    /// Whether to profile. With `false` the profiler takes no samples and waits until `update`, the control endpoint or the watched
    /// file sets it to `true`.
    enabled: bool = true, "", None, true;
    /// `service.name` of the resource; empty: the program's name.
    service_name: String = String::new(), "", None, false;
    /// Additional attributes of the resource, at most 20 in total.
    resource_attributes: BTreeMap<String, String> = BTreeMap::new(), "", None, false;
    /// Static labels on every sample.
    tags: BTreeMap<String, String> = BTreeMap::new(), "", None, true;
    /// CPU samples per second of CPU time of a thread.
    sample_rate: u32 = 100, "Hz", between(1.0, 10_000.0), true;
    /// Clock of the CPU samples. `auto`: perf where the kernel allows it, else timers.
    clock: Clock = Clock::Auto, "", None, false;
    /// Whether to take CPU samples.
    cpu: bool = true, "", None, true;
    /// Whether to take wall-clock samples.
    wall: bool = false, "", None, true;
    /// Wall-clock samples per second of each thread; `sample_rate` when not set. Multiplied by a CPU quota below one processor.
    wall_rate: Option<u32> = None, "Hz", between(1.0, 1_000.0), true;
    /// `all` turns on every profile that this runtime supports, except those that are switched off by their own key.
    profiles: Profiles = Profiles::Default, "", None, false;
    /// Prefixes of paths and packages of own code, such as `/srv/shop`, `shop/` or `com.example.`; a relative path begins at any
    /// directory. Other code is then a library. When not set, own code is known by the paths and packages of libraries.
    own_code: Vec<String> = Vec::new(), "", None, true;
    /// Whether to report pauses for garbage collection, where the runtime supports it.
    gc: bool = true, "", None, true;
    /// Whether to take allocation samples and to show the objects in use. Only where the runtime
    /// supports it.
    heap: bool = true, "", None, true;
    /// Smallest mean number of allocated bytes between two allocation samples. It doubles while there are more than 200 samples per
    /// second, unless `cpu_budget` is 0, and while there are more than `heap_live_samples`.
    heap_interval: u64 = 524_288, "bytes", between(1.0, 67_108_864.0), true;
    /// Maximum number of sampled objects that are in use; with more, the interval doubles and the samples are thinned. Each
    /// takes about 180 bytes.
    heap_live_samples: u32 = 65_536, "samples", between(1024.0, 1_048_576.0), false;
    /// Directory for the objects in use at the last maximum of their bytes. A killed process leaves them there for `spanprof heap
    /// --last-crash`. Requires `heap`. Each process allocates a file of 128 bytes per `heap_live_samples` and removes it when it stops.
    heap_peak_directory: Option<String> = None, "", None, false;
    /// Whether to report waits for locks, where the runtime supports it.
    lock: bool = false, "", None, true;
    /// Waits for a lock of at least this duration are all reported; shorter ones are sampled, with unbiased totals. It doubles while
    /// more than 200 waits per second are reported, unless `cpu_budget` is 0.
    lock_threshold: Duration = Duration::from_micros(10), "s", between(0.0, 3600.0), true;
    /// Whether to report the time in which threads did not run, where the runtime supports it. When not set, only of threads that carry
    /// a span or labels, 25 times a second.
    off_cpu: bool = true, "", None, true;
    /// Whether to report the live threads with their stacks at the end of each window, where the runtime supports it.
    threads: bool = false, "", None, true;
    /// Whether to follow requests without code of the program: the span processor is registered with the OpenTelemetry SDK, whose
    /// resource the profiles adopt; without an SDK, web frameworks get a middleware.
    requests: bool = true, "", None, false;
    /// Duration of a window, whose profile is sent at its end.
    upload_interval: Duration = Duration::from_secs(10), "s", between(0.1, 3600.0), true;
    /// Maximum number of frames in a stack; deeper stacks are truncated at the root and marked.
    max_stack_depth: u32 = 128, "frames", between(16.0, 2048.0), false;
    /// Native functions in stacks of a managed language: `on` shows those of libraries, and of the language's runtime the functions that a
    /// line called; `all` shows all functions of the runtime; `off` shows none above the code of the language.
    native_frames: NativeFrames = NativeFrames::On, "", None, false;
    /// Takes samples (CPU, wall clock, time off CPU, waits for locks) for a part of each period, such as `15s/5m`: totals are those of
    /// this part. The phase is random.
    cpu_duty_cycle: Option<DutyCycle> = None, "", None, true;
    /// As `cpu_duty_cycle`, for allocation samples. Objects in use are those allocated since the last pause.
    heap_duty_cycle: Option<DutyCycle> = None, "", None, true;
    /// Whether each sample keeps its timestamp (larger profiles).
    keep_timestamps: bool = false, "", None, true;
    /// `tail` decides at the end of each request whether its samples keep their timestamps and their span. The samples of other
    /// requests have neither, and count fully in the totals. `all` treats all samples alike. When not set: `tail` if
    /// `tail_duration`, `tail_cpu_share`, `tail_allocated_bytes` or `tail_errors` is set.
    retention: SampleRetention = SampleRetention::All, "", None, true;
    /// With `retention=tail`: keeps requests of at least this duration; `p99`: longer than the 99th percentile of their endpoint.
    tail_duration: TailDuration = TailDuration::Percentile, "s", between(0.0, 86_400.0), true;
    /// With `retention=tail`: keeps requests with at least this CPU time per second of their duration; above 1 on several threads.
    tail_cpu_share: Option<CpuShare> = None, "", between(0.001, 32.0), true;
    /// With `retention=tail`: keeps requests that allocate at least this, as estimated from the allocation samples.
    tail_allocated_bytes: Option<u64> = None, "bytes", between(1.0, 1_099_511_627_776.0), true;
    /// With `retention=tail`: keeps requests that end with an error.
    tail_errors: bool = true, "", None, true;
    /// URL of the OTLP receiver, or `host:port`; `/v1development/profiles` is added to a URL without a path. Without it and without
    /// `file_directory`: `http://localhost:4318`, with gRPC `http://localhost:4317`.
    endpoint: Option<String> = None, "", None, false;
    /// Transport to the receiver; when not set, `grpc` for an endpoint with port 4317.
    protocol: Protocol = Protocol::HttpProtobuf, "", None, false;
    /// Headers or metadata of each request; values are never shown.
    headers: Headers = Headers::default(), "", None, false;
    /// Compression of requests.
    compression: Compression = Compression::Gzip, "", None, false;
    /// Timeout of one request.
    timeout: Duration = Duration::from_secs(10), "s", between(0.001, 600.0), false;
    /// PEM file with the certificate authority to trust instead of the system's.
    certificate: Option<String> = None, "", None, false;
    /// PEM file with the client's private key.
    client_key: Option<String> = None, "", None, false;
    /// PEM file with the client's certificate.
    client_certificate: Option<String> = None, "", None, false;
    /// Plain text (true) or TLS (false) for a gRPC endpoint without a scheme. When not set: TLS for port 443 and where
    /// headers or certificates are configured, plain text otherwise.
    insecure: bool = false, "", None, false;
    /// Detail of the span link of each sample. `span` leaves the trace id empty: Pyroscope 1.20 to 2.0 stores a series for each
    /// trace id; 2.1 and later do not. `none` omits the link.
    link: LinkDetail = LinkDetail::TraceAndSpan, "", None, false;
    /// Several destinations, each a map with `type` (otlp, pyroscope or file) and its own keys; an empty list sends nothing.
    destinations: Option<Vec<DestinationConfig>> = None, "", None, false;
    /// Directory for gzip-compressed pprof files. Without `endpoint` it replaces the receiver, else both are served.
    file_directory: Option<String> = None, "", None, false;
    /// Number of files kept in the directory; the oldest files are removed.
    file_keep: u32 = 100, "files", between(1.0, 1_000_000.0), false;
    /// Time since it was written after which a file is removed from the directory, except the newest one. When not set, age has no
    /// effect.
    file_max_age: Option<Duration> = None, "s", between(60.0, 315_360_000.0), false;
    /// Maximum number of bytes of the files in the directory; beyond it, the oldest files are removed, except the newest one. When
    /// not set, size has no effect.
    file_max_bytes: Option<u64> = None, "bytes", between(65_536.0, 1_099_511_627_776.0), false;
    /// Whether the profiler sends the numbers of `stats()` as OpenTelemetry metrics to each OTLP destination.
    metrics: bool = false, "", None, false;
    /// Interval of the metrics. The first are sent after `upload_interval`, if that is shorter, the last by `stop`.
    metrics_interval: Duration = Duration::from_secs(60), "s", between(0.1, 3600.0), true;
    /// URL of the OTLP receiver of the metrics, or `host:port`; `/v1/metrics` is added to a URL without a path. With it, no other
    /// destination receives metrics.
    metrics_endpoint: Option<String> = None, "", None, false;
    /// Headers or metadata of each request to `metrics_endpoint`, which does not receive `headers`; values are never shown.
    metrics_headers: Headers = Headers::default(), "", None, false;
    /// Whether the default patterns replace passwords, secrets, credentials and tokens by `[REDACTED]`.
    redaction: bool = true, "", None, false;
    /// Rules that remove or replace names, paths, labels and attributes before anything leaves the process. Each is a map with
    /// `where`, `match`, `action`, `with` and `key`. Rules of all sources apply.
    redaction_rules: RedactionRules = RedactionRules::default(), "", None, false;
    /// Key of the hashes of redaction rules. Without it, equal texts have different hashes in each process.
    redaction_hash_key: Option<SecretText> = None, "", None, false;
    /// File for the whole run, written at its end: a flame graph (`.html`), pprof (`.pb.gz`) or folded stacks (`.folded`). Without
    /// `endpoint` it replaces the receiver. Child processes write their own files, with their process id in the name. The file of an
    /// earlier process of the same command, such as a script, is kept under another name: `flame.earlier-1.html`.
    output: Option<String> = None, "", None, false;
    /// Address (`host:port`) at which `go tool pprof` and collectors pull profiles under `/debug/pprof/`; port 0 is any free one.
    /// Without `endpoint` it replaces the receiver. Other addresses than those of this host require `pull_token`.
    pull: Option<String> = None, "", None, false;
    /// Token that each pull must present, as a bearer token or as the password of basic authentication; never shown.
    pull_token: Option<Secret> = None, "", None, false;
    /// Maximum number of bytes queued for a destination; beyond it, the oldest requests are dropped and counted.
    queue_max_bytes: u64 = 16 << 20, "bytes", between(65_536.0, 1_073_741_824.0), false;
    /// Directory in which requests wait on disk until a receiver has accepted them: an outage and the end of the process lose
    /// none. A request is removed 50 minutes after its window began. On a local disk, for this user only. When not set, requests wait in
    /// memory.
    buffer_directory: Option<String> = None, "", None, false;
    /// Maximum number of bytes that a process keeps in `buffer_directory` for a destination, before compression; beyond it,
    /// the oldest requests are dropped and counted.
    buffer_max_bytes: u64 = 256 << 20, "bytes", between(65_536.0, 1_099_511_627_776.0), false;
    /// Maximum size of a request before compression; larger requests are split without loss. Values above 4128768 are lowered to
    /// it, with a warning: receivers refuse messages of more than 4 MiB by default.
    max_profile_size: u64 = 2 << 20, "bytes", between(16_384.0, 1_073_741_824.0), true;
    /// Maximum duration of `stop`, also at the end of the program.
    stop_timeout: Duration = Duration::from_secs(2), "s", between(0.0, 60.0), true;
    /// Whether samples carry `thread.id` and `thread.name`.
    thread_labels: bool = false, "", None, true;
    /// Whether a new thread inherits the labels of the thread that starts it.
    inherit_threads: bool = false, "", None, false;
    /// Whether signals may be used; without them only wall-clock samples are possible.
    signals: bool = true, "", None, false;
    /// Maximum CPU time of the profiler as a share of one core, or of the CPU quota where that is below one processor: its own
    /// threads and its signal handler. Above it, the rates fall, down to 10 Hz, and the profiles cover longer windows. 0: no limit.
    cpu_budget: f64 = 0.01, "", between(0.0, 1.0), true;
    /// Maximum of the adaptive rate. When set, the CPU rate rises from `sample_rate` up to this value while the CPU and the memory
    /// use are below `adaptive_threshold`, and within `cpu_budget`.
    sample_rate_max: Option<u32> = None, "Hz", between(1.0, 10_000.0), true;
    /// CPU or memory use above which the adaptive rate is `sample_rate`. CPU use is a share of the CPU quota, or of all processors
    /// without one; that of the machine if it is higher. Memory use is a share of the memory limit.
    adaptive_threshold: f64 = 0.7, "", between(0.0, 1.0), true;
    /// Whether to shed load above `load_shedding_threshold`. `false` never sheds, `true` without a threshold sheds above 0.9. When not
    /// set, a threshold is sufficient.
    load_shedding: Option<bool> = None, "", None, true;
    /// CPU or memory use above which the profiler sheds load, as for `adaptive_threshold`. The profiles `wall`, `off_cpu`, `threads`
    /// and `lock` pause, `heap_interval` grows 16 times, and the CPU rate falls to 10 Hz. When not set, no load is shed.
    load_shedding_threshold: Option<f64> = None, "", between(0.0, 1.0), true;
    /// YAML file with these keys. Its changes are applied while the profiler runs: within a second in a process that uses the CPU,
    /// within `upload_interval` in an idle one.
    config_file: Option<String> = None, "", None, false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_shown_without_user_password_and_query() {
        let config =
            Config { endpoint: Some("https://user:marker@host:4318/path?key=marker".to_owned()), ..Config::default() };
        let entries = config.entries();
        let shown = entries.iter().find(|(name, _, _)| *name == "endpoint").map(|(_, text, _)| text.as_str());
        assert_eq!(shown, Some("https://host:4318/path"));
    }
}
