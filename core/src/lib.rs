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
//! A program provides nothing, or a [`Config`]; a language provides a [`runtime::Runtime`]. The profiler samples: it does not
//! trace every call, and it is not a debugger. After `start` it never raises an error into the program and never blocks it;
//! losses are counted in [`Profiler::stats`].
//!
//! Native stacks need frame pointers (`-C force-frame-pointers=yes`) and debug information. With the feature
//! `opentelemetry`, scopes are linked to the active span of the `opentelemetry` crate. With `tracing`, let
//! `tracing-opentelemetry` activate its contexts, or pass `trace_id` and `span_id` as labels.
#![deny(missing_docs)]

#[cfg(feature = "native")]
pub mod alloc;
#[doc(hidden)]
pub mod binding;
mod capture;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod conformance;
/// Types of configuration values.
pub mod config {
    pub use spanprof_config::{
        camel_case, from_json, in_camel_case, process_environment, snake_case, BindingOption, Bounds, Clock,
        Compression, Config, ConfigBuilder, ConfigPatch, ConfigSource, ConfigValue, CpuShare, DestinationConfig,
        DestinationType, DutyCycle, Environment, Headers, Key, LabelNames, LinkDetail, OptionValues, Profiles,
        Protocol, Proxies, RedactionRules, SampleRetention, SecretText, SettingValue, TailDuration, KEYS,
    };
}
/// Contexts of threads, for the binding of a language.
pub mod context {
    pub use spanprof_aggregate::context::{
        context_row, extend_labels, format_id, intern_labels, labels_lost, labels_of, merge, merge_label_sets,
        open_context, parse_id, pin_context, with_labels, ContextRow, LabelSetId, Link, PinnedContext,
    };
}
mod delivery;
mod engine_settings;
mod governor;
mod host_log;
mod metrics;
#[cfg(feature = "native")]
mod native;
mod output;
#[cfg(feature = "pprof")]
pub mod pprof;
mod profiler;
#[doc(hidden)]
pub mod pull;
#[cfg(feature = "pyroscope")]
pub mod pyroscope;
mod reduction;
mod request;
mod resource;
/// The interface between the engine and the binding of a language.
pub mod runtime {
    pub use spanprof_aggregate::runtime::{
        capture_nothing, DisabledRuntime, EndedCode, Frame, FrameType, ReportedEvents, Runtime, RuntimeThread,
    };
}
mod sidecar;
#[cfg(feature = "opentelemetry-sdk")]
mod span_processor;
pub mod stats;
#[cfg(feature = "native")]
pub mod sync;
#[cfg(all(test, feature = "native"))]
mod sync_tests;
mod tag;
/// Operating-system access, for bindings.
#[doc(inline)]
pub use spanprof_os as sys;
#[cfg(feature = "tower")]
pub mod tower;

pub use capture::{capture, capture_future, CapturedProfile, OpenCapture};
#[doc(hidden)]
pub use engine_settings::native_frame;
pub use host_log::{set_log_callback, LogCallback, LogLevel, OUTCOME_PREFIX};
#[cfg(feature = "native")]
pub use native::NativeRuntime;
#[doc(hidden)]
pub use profiler::control;
pub use profiler::Profiler;
pub use request::RequestEnd;
#[cfg(feature = "opentelemetry-sdk")]
pub use span_processor::SpanProcessor;
pub use spanprof_config::{Config, ConfigPatch, ConfigValue, Error, ErrorKind};
pub use spanprof_export::Secret;
pub use spanprof_signal::SampleKind;
pub use stats::{StatValue, Stats};
pub use tag::{bind, bind_future, tag_future, tag_wrapper, AsLabels, Labels, TagScope, TaggedFuture};

/// The unit tests run on it; those of `sys::allocator_tests` read its profiles.
#[cfg(all(test, feature = "native"))]
#[global_allocator]
static ALLOCATOR: alloc::Profiled<std::alloc::System> = alloc::Profiled::new(std::alloc::System);
