//! spanprof: the continuous profiler that lives inside the service.
#![deny(missing_docs)]

pub mod config;
pub mod context;
mod error;
mod host_log;
pub(crate) mod labels;
mod profiler;
pub mod runtime;
pub mod stats;
pub mod sys;

pub use config::{Config, ConfigPatch, ConfigValue};
pub use error::{Error, ErrorKind};
pub use host_log::{set_log_callback, LogCallback, LogLevel};
pub use profiler::Profiler;
pub use stats::{StatValue, Stats};
