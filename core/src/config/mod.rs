//! The configuration: one typed struct, the same keys in every language, layered as code > `SPANPROF_*` > `OTEL_*` >
//! `PYROSCOPE_*` > file > default. The environment enters as a value, so nothing here depends on the process. Called by
//! `Profiler` and by the bindings; holds no state.

mod check;
mod destinations;
mod environment;
mod file;
#[cfg(feature = "json")]
mod json;
mod keys;
mod load;
mod reference;
mod types;
mod value;

pub(crate) use environment::kill_switch;
pub(crate) use file::value as yaml_value;
#[cfg(feature = "json")]
pub use json::{from_json, snake_case};
pub use keys::{Bounds, Config, Key, KEYS};
pub use load::{process_environment, ConfigBuilder, ConfigPatch, Environment};
pub use types::{Clock, Compression, ConfigSource, DestinationConfig, DestinationType, Headers, Protocol, Proxies};
pub use value::ConfigValue;
