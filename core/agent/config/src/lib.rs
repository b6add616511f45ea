//! Turns maps of settings into one typed `Config`, with the same keys in every language; never knows the engine, its clocks and
//! threads, or the operating system.
//!
//! Layers, highest first: code, `SPANPROF_*`, `OTEL_*`, `PYROSCOPE_*`, file, default. The environment is an argument. Called by
//! the profiler, by the bindings and by `spanprof doctor`; stateless. The folders, each of which uses only those before it:
//! `types` (values), `keys` (the table of keys, and checks of several values), `layers` (where values come from), `reference`
//! (generated documents).

mod error;
mod keys;
mod layers;
mod reference;
mod types;

pub use error::{Error, ErrorKind};
pub use keys::binding_options::{BindingOption, OptionValues};
pub use keys::export_destination::export_destination;
pub use keys::key::{Bounds, Key};
pub use keys::key_case::{camel_case, in_camel_case, snake_case};
pub use keys::metrics::MetricsReceivers;
pub use keys::nearest::nearest_key;
pub use keys::nested::{flattened, nearest_nested};
pub use keys::table::{Config, ConfigBuilder, KEYS};
pub use layers::environment::{kill_switch, process_environment, Environment};
pub use layers::file::{line_of_key, read_settings};
pub use layers::json::from_json;
pub use layers::load::ConfigPatch;
pub use layers::running_config::{Burst, RunningConfig};
pub use types::basic_auth::basic_authorization;
pub use types::choices::{
    Clock, Compression, ConfigSource, DestinationConfig, DestinationType, Headers, LinkDetail, NativeFrames, Profiles,
    Protocol, Proxies,
};
pub use types::duty_cycle::DutyCycle;
pub use types::output_format::OutputFormat;
pub use types::pull::PullAddress;
pub use types::redaction::{RedactionRules, SecretText};
pub use types::retention::{CpuShare, SampleRetention, TailDuration};
pub use types::setting::SettingValue;
pub use types::shape::Shape;
pub use types::value::ConfigValue;
pub use types::yaml::value as yaml_value;
