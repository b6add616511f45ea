//! Begin and end: the state machine around the engine. One profiler per process.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, ConfigPatch};
use crate::runtime::Runtime;
use crate::stats::Stats;
use crate::{Error, ErrorKind};
use spanprof_signal::{DropReason, RawSample};

/// A handle to the profiler of this process. Clones are the same profiler; dropping a handle stops nothing.
#[derive(Clone)]
pub struct Profiler {
    config: Arc<Config>,
}

impl Profiler {
    /// Starts the profiler for a language runtime. When it runs already, returns the running one and says so in the log.
    /// When switched off (`enabled=false` or a kill switch) it returns a profiler that does nothing.
    pub fn start_with_runtime(config: Config, runtime: Arc<dyn Runtime>) -> Result<Profiler, Error> {
        config.check()?;
        let _ = runtime;
        Err(Error::new(ErrorKind::System, "the engine is not linked into this build", "build the current revision"))
    }

    /// The profiler of this process, when one was started and not stopped.
    pub fn running() -> Option<Profiler> {
        None
    }

    /// Ends sampling, sends the last window within `stop_timeout`. True when everything was delivered. Doing it again
    /// does nothing.
    pub fn stop(&self) -> bool {
        true
    }

    /// Closes the open window and sends it; true when everything was delivered in time.
    pub fn flush(&self, timeout: Duration) -> bool {
        let _ = timeout;
        true
    }

    /// Changes live keys while running.
    pub fn update(&self, patch: &ConfigPatch) -> Result<(), Error> {
        self.config.patched(patch).map(|_| ())
    }

    /// The profiler's own health.
    pub fn stats(&self) -> Stats {
        Stats::default()
    }

    /// The configuration in force, with the source of each value.
    pub fn config(&self) -> Config {
        Config::clone(&self.config)
    }

    /// Whether samples are being taken.
    pub fn is_running(&self) -> bool {
        false
    }

    /// Announces the current thread, before it runs anything worth sampling. Cheap; optional (others are found by a scan).
    pub fn register_current_thread(&self) {}

    /// The runtime tells of a sample itself (allocation, lock, loop). Never blocks.
    pub fn submit(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let _ = sample;
        Err(DropReason::Disabled)
    }

    /// The ring position that code ending now must be announced with; 0 when not running.
    pub fn ring_position(&self) -> u64 {
        0
    }

    /// The language's after-fork hook, in the child on its only thread: profiles the child if the parent was profiled.
    pub fn after_fork_in_child() {}
}
