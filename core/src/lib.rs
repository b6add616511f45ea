//! spanprof: the continuous profiler that lives inside the service.
#![deny(missing_docs)]

pub mod config;
#[doc(hidden)]
pub mod conformance;
pub mod context;
mod delivery;
mod drain;
mod engine;
mod error;
#[doc(hidden)]
pub mod fake;
mod hash;
mod host_log;
mod labels;
mod locations;
#[cfg(feature = "native")]
mod native;
mod own_thread;
mod profiler;
mod random;
mod resource;
pub mod runtime;
mod stacks;
pub mod stats;
pub mod sys;
mod tag;
mod window;

pub use config::{Config, ConfigPatch, ConfigValue};
pub use error::{Error, ErrorKind};
pub use host_log::{set_log_callback, LogCallback, LogLevel};
#[cfg(feature = "native")]
pub use native::NativeRuntime;
pub use profiler::Profiler;
pub use stats::{StatValue, Stats};
pub use tag::{tag_future, tag_wrapper, AsLabels, Labels, TagScope, TaggedFuture};
