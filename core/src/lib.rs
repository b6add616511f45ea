//! spanprof: a continuous profiler inside the service process. Every sample carries its trace, its span and its labels;
//! profiles are delivered as OTLP or pprof.
//!
//! ```no_run
//! # fn main() -> Result<(), spanprof::Error> {
//! let config = spanprof::Config::builder()
//!     .service_name("checkout")
//!     .sample_rate(100)
//!     .output("flame.html")
//!     .tags([("region", "eu")])
//!     .load()?;
//! let profiler = spanprof::Profiler::start(config)?;
//!
//! let total = spanprof::tag_wrapper([("route", "/cart")], || 1 + 1);
//!
//! profiler.stop();
//! # Ok(())
//! # }
//! ```
//!
//! A program provides nothing, or a [`Config`]. The profiler samples: it does not trace every call, and it is not a debugger.
//! After `start` it never raises an error into the program and never blocks it; losses are counted in [`Profiler::stats`].
//!
//! Names and lines need debug information. With the feature
//! `opentelemetry`, scopes are linked to the active span of the `opentelemetry` crate. With `tracing`, let
//! `tracing-opentelemetry` activate its contexts, or pass `trace_id` and `span_id` as labels.
//!
//! This crate is the Rust binding of the profiler (`spanprof-profiler`), as the packages of Python, Node.js and Java are the
//! bindings of their languages.
#![deny(missing_docs)]

pub mod alloc;
mod api;
#[cfg(feature = "opentelemetry-sdk")]
mod otel;
#[cfg(feature = "pprof")]
pub mod pprof;
#[cfg(feature = "pyroscope")]
pub mod pyroscope;
mod runtime;
pub mod sync;
#[cfg(test)]
mod sync_tests;
#[cfg(feature = "tower")]
pub mod tower;

/// Types of configuration values.
pub mod config {
    pub use spanprof_config::{
        camel_case, from_json, in_camel_case, process_environment, snake_case, BindingOption, Bounds, Clock,
        Compression, Config, ConfigBuilder, ConfigPatch, ConfigSource, ConfigValue, CpuShare, DestinationConfig,
        DestinationType, DutyCycle, Environment, Headers, Key, LinkDetail, NativeFrames, OptionValues, Profiles,
        Protocol, Proxies, RedactionRules, SampleRetention, SecretText, SettingValue, Shape, TailDuration, KEYS,
    };
}

/// The values of [`Profiler::stats`].
pub mod stats {
    pub use spanprof_profiler::stats::{StatDoc, StatKind, StatValue, Stats, OTHER_STATS};
}

pub use api::capture::{capture, capture_future, OpenCapture};
pub use api::labels::{bind, bind_future, tag_future, tag_wrapper, AsLabels, Labels, TagScope, TaggedFuture};
pub use api::profiler::Profiler;
#[cfg(feature = "opentelemetry-sdk")]
pub use otel::SpanProcessor;
#[doc(hidden)]
pub use runtime::NativeRuntime;
pub use spanprof_config::{Config, ConfigPatch, ConfigValue, Error, ErrorKind};
pub use spanprof_export::Secret;
pub use spanprof_profiler::{set_log_callback, CapturedProfile, LogCallback, LogLevel, RequestEnd};
pub use stats::{StatValue, Stats};

/// The unit tests run on it; those of `runtime::allocator_tests` read its profiles.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: alloc::Profiled<std::alloc::System> = alloc::Profiled::new(std::alloc::System);
