//! The configuration: one typed struct, the same keys in every language, layered as code > `SPANPROF_*` > `OTEL_*` >
//! `PYROSCOPE_*` > file > default. The environment is an argument, so this module is independent of the process. Called by
//! `Profiler` and by the bindings; stateless.

mod binding_options;
mod check;
mod destinations;
mod duty_cycle;
mod endpoint;
mod environment;
mod file;
mod json;
mod key;
mod key_case;
mod keys;
mod load;
mod metrics;
mod nearest;
mod nested;
mod pull;
mod redacted_values;
mod redaction;
mod reference;
mod retention;
mod running_config;
mod schema;
mod setting;
mod share;
mod types;
mod value;
mod yaml;

pub use binding_options::{BindingOption, OptionValues};
pub use duty_cycle::DutyCycle;
#[cfg(feature = "pyroscope")]
pub(crate) use environment::base64;
pub(crate) use environment::kill_switch;
pub use environment::{process_environment, Environment};
pub(crate) use file::{line_of_key, read_settings};
pub use json::from_json;
pub use key::{Bounds, Key};
pub use key_case::{camel_case, in_camel_case, snake_case};
pub use keys::{Config, ConfigBuilder, KEYS};
pub use load::ConfigPatch;
pub(crate) use nearest::nearest_key;
pub(crate) use nested::{flattened, nearest_nested};
pub use redaction::{RedactionRules, SecretText};
pub use retention::{CpuShare, SampleRetention, TailDuration};
pub(crate) use running_config::{Burst, RunningConfig};
pub use setting::SettingValue;
pub use types::{
    Clock, Compression, ConfigSource, DestinationConfig, DestinationType, Headers, LabelNames, LinkDetail, Profiles,
    Protocol, Proxies,
};
pub use value::ConfigValue;
#[cfg(feature = "conformance")]
pub(crate) use yaml::value as yaml_value;
