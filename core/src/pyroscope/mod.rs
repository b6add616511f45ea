//! The names of the crate `pyroscope` 2 (grafana/pyroscope-rs) with its backend `pprof-rs`, and those of version 0.5: programs
//! written for it run with only the import changed.
//!
//! ```no_run
//! use spanprof::pyroscope;
//!
//! use pyroscope::backend::{pprof_backend, BackendConfig, PprofConfig};
//! use pyroscope::pyroscope::PyroscopeAgentBuilder;
//!
//! # fn main() -> pyroscope::Result<()> {
//! let backend = pprof_backend(PprofConfig { sample_rate: 100 }, BackendConfig::default());
//! let agent = PyroscopeAgentBuilder::new("http://localhost:4040", "checkout", 100, "pyroscope-rs", "2.0.0", backend)
//!     .tags(vec![("region", "eu")])
//!     .build()?;
//! let agent = agent.start()?;
//! let (add_tag, remove_tag) = agent.tag_wrapper();
//! add_tag("route".to_string(), "/cart".to_string())?;
//! // …
//! remove_tag("route".to_string(), "/cart".to_string())?;
//! agent.stop()?.shutdown();
//! # Ok(())
//! # }
//! ```
//!
//! The form of version 0.5, and labels of a closure:
//!
//! ```no_run
//! use spanprof::pyroscope::{self, pprofrs::{pprof_backend, PprofConfig}, PyroscopeAgent};
//!
//! let agent = PyroscopeAgent::builder("http://localhost:4040", "checkout")
//!     .backend(pprof_backend(PprofConfig::new().sample_rate(100)))
//!     .tags(&[("region", "eu")])
//!     .build()
//!     .unwrap();
//! agent.start().unwrap();
//! for id in 0..10_u64 {
//!     pyroscope::tag_wrapper(&[("trace_id", id.to_string())], || { /* work */ });
//! }
//! ```
//!
//! The agent starts [`Profiler`](crate::Profiler) with the equal settings: profiles are sent as OTLP, which Pyroscope accepts from 1.20 on.
//!
//! Differences to the crate `pyroscope`:
//! - Tags belong to the calling thread. `tag_wrapper` and `tag_future` of this crate follow closures and futures.
//! - The application name is the service name. `spy_name`, `spy_version` and `report_pid` have no effect.
//! - Not here: `func`, the backends `jemalloc` and `Backend`, tags of other threads, sessions, timers, the parsers of JSON.

mod agent;
mod builder;
mod error;
mod thread_tags;

use crate::api::labels;

pub use agent::PyroscopeAgent;
pub use error::{PyroscopeError, Result};

/// Runs `work` with labels on every sample of this thread, as [`tag_wrapper`](crate::tag_wrapper) of this crate, whose values are
/// not owned.
pub fn tag_wrapper<K: AsRef<str>, V: AsRef<str>, R>(labels: &[(K, V)], work: impl FnOnce() -> R) -> R {
    let labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
    labels::tag_wrapper(&*labels, work)
}

/// The agent, its states and its builder.
#[allow(clippy::module_inception)] // The path in the crate `pyroscope`.
pub mod pyroscope {
    pub use super::agent::{
        PyroscopeAgent, PyroscopeAgentBare, PyroscopeAgentReady, PyroscopeAgentRunning, PyroscopeAgentState,
    };
    pub use super::builder::{AgentTags, PyroscopeAgentBuilder};
}

/// The backend, of which there is one.
pub mod backend {
    pub use super::builder::{pprof_backend, BackendConfig, PprofBackend, PprofConfig};
}

/// The names of the crate `pyroscope_pprofrs` 0.2.
pub mod pprofrs {
    pub use super::builder::{pprof_backend_of as pprof_backend, PprofConfig};
}
