//! The table of configuration keys: name, type, default, unit, bounds and documentation stand once, here. The struct, its
//! validation, the names of the variables, the file reader, the nearest-name hints and the reference page come from it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::binding_options::BindingOption;
use super::endpoint::{self, UnusableText};
use super::types::{
    Clock, Compression, ConfigSource, DestinationConfig, Headers, LabelNames, LinkDetail, Protocol, Proxies,
};
use super::value::{ConfigType, ConfigValue};
use crate::{Error, ErrorKind};

/// Smallest and largest value of a key, in its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Smallest allowed value.
    pub min: f64,
    /// Largest allowed value.
    pub max: f64,
}

impl Bounds {
    /// Whether a value of the key's unit is allowed.
    pub(crate) fn contain(&self, magnitude: f64) -> bool {
        (self.min..=self.max).contains(&magnitude)
    }
}

/// A key of the configuration, as documented.
#[derive(Clone, Debug)]
pub struct Key {
    /// Name in code, in files and, upper-cased behind `SPANPROF_`, in the environment.
    pub name: &'static str,
    /// What its value is.
    pub type_name: &'static str,
    /// Unit of its value; empty when it has none.
    pub unit: &'static str,
    /// Smallest and largest value.
    pub bounds: Option<Bounds>,
    /// Whether `update` may change it while running.
    pub live: bool,
    /// Whether its value is never shown.
    pub secret: bool,
    /// What it does.
    pub doc: &'static str,
}

impl Key {
    /// The key's variable of the environment.
    pub fn environment_name(&self) -> String {
        format!("SPANPROF_{}", self.name.to_ascii_uppercase())
    }

    /// Its bounds with their unit, as the error messages print them; `None` when it has none.
    pub(crate) fn range(&self) -> Option<String> {
        let bounds = self.bounds?;
        Some(format!("{} and {} {}", bounds.min, bounds.max, self.unit).trim_end().to_owned())
    }

    /// The type of its value and its bounds, for "must be …".
    pub(crate) fn expected(&self) -> String {
        let type_name = super::load::described(self.type_name);
        self.range().map_or(type_name.clone(), |range| format!("{type_name} between {range}"))
    }

    /// The way out for a refused value.
    pub(crate) fn hint(&self) -> String {
        let default = Config::default().entries().into_iter().find(|(name, _, _)| *name == self.name);
        let default = default.map(|(_, text, _)| text).filter(|text| !text.is_empty());
        let bounds = self.bounds.map(|bounds| format!("{} to {} {}", bounds.min, bounds.max, self.unit));
        let facts = [bounds.map(|bounds| bounds.trim_end().to_owned()), default.map(|text| format!("default {text}"))];
        let facts = facts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let facts = if facts.is_empty() { facts } else { format!(" ({facts})") };
        format!("{}{facts}: {}", self.name, self.doc.trim())
    }

    /// Why a value outside its bounds was refused; `origin` is the source of the value, or empty.
    pub(crate) fn out_of_bounds(&self, shown: &str, origin: &str) -> Error {
        let range = self.range().unwrap_or_default();
        Error::new(
            ErrorKind::InvalidConfig,
            format!("{}{origin} must lie between {range}, got {shown}", self.name),
            self.hint(),
        )
    }
}

/// Why a value was refused.
pub(crate) enum Refused {
    /// No such key.
    UnknownKey,
    /// Not a value of the key's type, and what is wrong inside it where that is known.
    WrongType(&'static Key, Option<String>),
    /// Outside the key's bounds.
    OutOfBounds(&'static Key),
    /// Not a value of the binding's option.
    Option(&'static BindingOption),
    /// Not the address of a receiver, or not the name of a file.
    Unusable(UnusableText),
}

const fn between(min: f64, max: f64) -> Option<Bounds> {
    Some(Bounds { min, max })
}

/// A value as `stats()` may show it: the user and password of a URL, and its query, are secrets.
fn shown(name: &str, text: String) -> String {
    match name {
        "endpoint" => {
            let url = endpoint::without_userinfo(&text);
            url.split_once('?').map_or(url.clone(), |(address, _)| address.to_owned())
        }
        _ => text,
    }
}

macro_rules! config_keys {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $default:expr, $unit:literal, $bounds:expr, $live:literal;)+) => {
        /// Every setting of the profiler, typed. [`Config::load`] reads the layers; `Config::default()` reads nothing.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $name: $type,)+
            /// Where each value came from; a key that is missing has its default.
            pub sources: BTreeMap<&'static str, ConfigSource>,
            /// What was noticed while loading: unknown keys, ignored variables. For the host's logger.
            pub warnings: Vec<String>,
            /// The kill switch that is on, by the name of its variable.
            pub disabled_by: Option<String>,
            /// The proxies of the environment.
            pub proxy: Proxies,
            /// What the binding can be told beyond the keys.
            pub options: &'static [BindingOption],
            /// Values of these options that a layer set, as text.
            pub option_values: BTreeMap<&'static str, String>,
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
            type_name: <$type as ConfigType>::TYPE,
            unit: $unit,
            bounds: $bounds,
            live: $live,
            secret: <$type as ConfigType>::SECRET,
            doc: concat!($($doc),+),
        },)+];

        impl Config {
            /// Sets one key; leaves the configuration as it was when the value is refused.
            pub(crate) fn set(&mut self, name: &str, value: &ConfigValue) -> Result<(), Refused> {
                if let Some(option) = self.options.iter().find(|option| option.name == name) {
                    let text = option.values.text_of(value).ok_or(Refused::Option(option))?;
                    self.option_values.insert(option.name, text);
                    return Ok(());
                }
                let Some(key) = KEYS.iter().find(|key| key.name == name) else { return Err(Refused::UnknownKey) };
                match (name, value) {
                    ("endpoint", ConfigValue::Text(text)) => endpoint::check(text).map_err(Refused::Unusable)?,
                    ("output", ConfigValue::Text(text)) => super::check::check_output(text).map_err(Refused::Unusable)?,
                    _ => {}
                }
                match name {
                    $(stringify!($name) => {
                        let typed = <$type>::from_value(value)
                            .ok_or_else(|| Refused::WrongType(key, <$type>::problem(value)))?;
                        if let (Some(bounds), Some(magnitude)) = (key.bounds, typed.magnitude()) {
                            if !bounds.contain(magnitude) {
                                return Err(Refused::OutOfBounds(key));
                            }
                        }
                        self.$name = typed;
                    })+
                    _ => return Err(Refused::UnknownKey),
                }
                Ok(())
            }

            /// Gives one key its default again.
            pub(crate) fn reset(&mut self, name: &str) {
                let default = Config::default();
                match name {
                    $(stringify!($name) => self.$name = default.$name,)+
                    _ => {}
                }
                self.sources.remove(name);
            }

            /// First key whose value, set in code, lies outside its bounds.
            pub(crate) fn out_of_bounds(&self) -> Option<(&'static Key, String)> {
                $(
                    let key = KEYS.iter().find(|key| key.name == stringify!($name))?;
                    if let (Some(bounds), Some(magnitude)) = (key.bounds, self.$name.magnitude()) {
                        if !bounds.contain(magnitude) {
                            return Some((key, self.$name.to_text()));
                        }
                    }
                )+
                None
            }

            /// Each key with its value as text (secrets masked) and where it came from.
            pub fn entries(&self) -> Vec<(&'static str, String, ConfigSource)> {
                let source = |name| self.sources.get(name).cloned().unwrap_or(ConfigSource::Default);
                vec![$((stringify!($name), shown(stringify!($name), self.$name.to_text()), source(stringify!($name))),)+]
            }
        }

        impl super::ConfigBuilder {
            $($(#[doc = $doc])+
            pub fn $name(self, value: impl Into<$type>) -> Self {
                let value: $type = value.into();
                self.typed(stringify!($name), Box::new(move |config: &mut Config| config.$name = value.clone()))
            })+
        }
    };
}

config_keys! {
    /// Whether to profile at all.
    enabled: bool = true, "", None, false;
    /// `service.name` of the resource; empty: the program's name.
    service_name: String = String::new(), "", None, false;
    /// Further attributes of the resource, at most 15 in all.
    resource_attributes: BTreeMap<String, String> = BTreeMap::new(), "", None, false;
    /// Static labels on every sample.
    tags: BTreeMap<String, String> = BTreeMap::new(), "", None, true;
    /// CPU samples per second of CPU time of a thread.
    sample_rate: u32 = 100, "Hz", between(1.0, 10_000.0), true;
    /// What fires the CPU samples.
    clock: Clock = Clock::Auto, "", None, false;
    /// Whether to take CPU samples.
    cpu: bool = true, "", None, true;
    /// Whether to take wall-clock samples.
    wall: bool = false, "", None, true;
    /// Wall-clock samples per second of each thread; `sample_rate` when not set. Multiplied by a CPU quota below one processor.
    wall_rate: Option<u32> = None, "Hz", between(1.0, 1_000.0), true;
    /// Most threads walked per wall-clock tick; when there are more, a random subset stands for all; of threads that go on doing
    /// the same, where the runtime can tell, a quarter of it.
    wall_max_threads: u32 = 64, "threads", between(1.0, 10_000.0), true;
    /// Length of a window, after which its profile is sent.
    upload_interval: Duration = Duration::from_secs(10), "s", between(0.1, 3600.0), true;
    /// Most frames of a stack; deeper stacks are cut at the root side and marked.
    max_stack_depth: u32 = 128, "frames", between(16.0, 2048.0), false;
    /// Most different stacks in a window; further ones become `[too_many_stacks]` and are counted.
    max_stacks: u32 = 32_768, "stacks", between(16.0, 1_048_576.0), true;
    /// Most different label sets of the process; beyond, values become `other` and are counted.
    max_label_sets: u32 = 16_384, "label sets", between(16.0, 65_536.0), true;
    /// Contexts with a span kept at once: those of open scopes, those sampled of late, the newest; what is lost is counted.
    max_contexts: u32 = 65_536, "contexts", between(256.0, 262_144.0), true;
    /// Longest value of a label; longer ones are cut and counted.
    max_label_value_bytes: u32 = 1024, "bytes", between(8.0, 2048.0), true;
    /// Whether each sample keeps its time (larger profiles).
    keep_timestamps: bool = false, "", None, true;
    /// URL of the OTLP receiver, or `host:port`; `/v1development/profiles` is added to one without a path. Without it and without
    /// `file_directory`: `http://localhost:4318`, with gRPC `http://localhost:4317`.
    endpoint: Option<String> = None, "", None, false;
    /// Transport to the receiver; when not set, `grpc` for an endpoint with port 4317.
    protocol: Protocol = Protocol::HttpProtobuf, "", None, false;
    /// Headers or metadata of each request; values are never shown.
    headers: Headers = Headers::default(), "", None, false;
    /// Compression of requests.
    compression: Compression = Compression::Gzip, "", None, false;
    /// Deadline of one request.
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
    /// Whether the resource has `process.pid` and `service.instance.id`. Pyroscope stores a set of series for each process;
    /// without them, all processes of a service on a host share one set.
    instance_attributes: bool = true, "", None, false;
    /// `strict` replaces label names that Pyroscope 1.x refuses (`user-tier` becomes `user_tier`); one such name makes it
    /// refuse the whole request.
    label_names: LabelNames = LabelNames::AsIs, "", None, false;
    /// Several destinations, each a map with `type` (otlp or file) and keys of its own; an empty list sends nothing.
    destinations: Option<Vec<DestinationConfig>> = None, "", None, false;
    /// Directory for gzip-compressed pprof files; alone it replaces the receiver, beside `endpoint` both are served.
    file_directory: Option<String> = None, "", None, false;
    /// Files kept in the directory; beyond, the oldest are removed.
    file_keep: u32 = 100, "files", between(1.0, 1_000_000.0), false;
    /// File for the whole run, written at its end: a flame graph (`.html`), pprof (`.pb.gz`) or folded stacks (`.folded`). Without
    /// `endpoint` it replaces the receiver. Children write files of their own, with their process id in the name.
    output: Option<String> = None, "", None, false;
    /// Most bytes that wait for a destination; beyond, the oldest are dropped and counted.
    queue_max_bytes: u64 = 16 << 20, "bytes", between(65_536.0, 1_073_741_824.0), false;
    /// Largest request before compression; larger ones are split, never cut.
    max_profile_size: u64 = 2 << 20, "bytes", between(16_384.0, 4_128_768.0), true;
    /// Most time that `stop` and the end of the program may take.
    stop_timeout: Duration = Duration::from_secs(2), "s", between(0.0, 60.0), true;
    /// Whether samples carry `thread.id` and `thread.name`.
    thread_labels: bool = false, "", None, true;
    /// Whether samples carry `service.name`, which some collectors lose from the resource.
    service_name_attribute: bool = true, "", None, true;
    /// Whether a new thread starts with the labels of the thread that made it.
    inherit_threads: bool = false, "", None, false;
    /// Whether signals may be used; without them only wall-clock samples are possible.
    signals: bool = true, "", None, false;
    /// YAML file with these keys, read at start.
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
