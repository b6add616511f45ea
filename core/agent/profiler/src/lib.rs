//! Runs the profiler in a process: start to stop, its threads, deliveries, pulls and reports; never knows a language, only the trait
//! `Runtime` of the binding that starts it.
//!
//! The folders, each of which uses only those before it: `wall` (sampler of threads that wait), `governor` (limits of the
//! overhead) and `http` (the listener) · `deliver` (encoding and destinations) · `session` (state of one run, and changes of it)
//! · `report` (log lines, statistics, metrics) · `drain` (the drain thread) · `pull` (answers to HTTP requests) · `lifecycle`
//! (the handle: start, stop, update, fork) · `collect` (captures and collections) and `conformance` · `binding` (code that is
//! the same in every binding).

pub mod binding;
mod collect;
#[cfg(feature = "conformance")]
pub mod conformance;
mod deliver;
mod drain;
mod governor;
mod host_log;
#[doc(hidden)]
pub mod http;
mod lifecycle;
pub mod pull;
mod report;
mod session;
pub mod stats;
mod wall;

pub use collect::capture::{CapturedProfile, RunningCapture};
pub use drain::engine_settings::native_frame;
pub use host_log::{is_printed, log, set_log_callback, LogCallback, LogLevel, OUTCOME_PREFIX};
pub use lifecycle::pending_ends::RootSpanEnd;
pub use lifecycle::request::{self, RequestEnd};
pub use lifecycle::ProfilerHandle;
pub use pull::control;
pub use stats::Stats;
