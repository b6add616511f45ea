//! The configuration: one typed struct, the same keys in every language, layered as code > `SPANPROF_*` > `OTEL_*` >
//! `PYROSCOPE_*` > file > default. The environment is an argument, so this module is independent of the process. Called by
//! `Profiler` and by the bindings; stateless.

mod binding_options;
mod check;
mod destinations;
mod endpoint;
mod environment;
mod file;
#[cfg(feature = "json")]
mod json;
mod key_case;
mod keys;
mod load;
mod reference;
mod types;
mod value;

pub use binding_options::{BindingOption, OptionValues};
pub(crate) use environment::kill_switch;
pub use environment::{process_environment, Environment};
pub(crate) use file::value as yaml_value;
#[cfg(feature = "json")]
pub use json::from_json;
pub use key_case::{camel_case, in_camel_case, snake_case};
pub use keys::{Bounds, Config, ConfigBuilder, Key, KEYS};
pub use load::ConfigPatch;
pub use types::{
    Clock, Compression, ConfigSource, DestinationConfig, DestinationType, Headers, LabelNames, LinkDetail, Profiles,
    Protocol, Proxies,
};
pub use value::ConfigValue;
