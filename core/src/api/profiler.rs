//! The handle of Rust programs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::{threads, NativeRuntime};
use spanprof_config::{Config, ConfigPatch, Error};
use spanprof_os::thread_context;
use spanprof_profiler::binding::{ffi_guard, ffi_guard_result, with_running};
use spanprof_profiler::{log, LogLevel, RequestEnd, Stats};

/// Starts the profiler with the runtime of native code.
pub(crate) fn start_native(config: Config) -> Result<spanprof_profiler::ProfilerHandle, Error> {
    threads::allow_signals(config.signals);
    // Scans find other threads, after up to 400 ms of CPU time of the process.
    thread_context::on_new_thread(|| with_running(spanprof_profiler::ProfilerHandle::register_current_thread));
    spanprof_profiler::ProfilerHandle::start_with_runtime(config, Arc::new(NativeRuntime))
}

/// A handle to the profiler of this process. Clones refer to the same profiler; dropping a handle stops nothing.
///
/// In a process that was forked without `exec`, the handles of the parent do nothing: see [`Profiler::after_fork_in_child`].
#[derive(Clone)]
pub struct Profiler(spanprof_profiler::ProfilerHandle);

impl Profiler {
    /// Starts the profiler. If it is already running, returns the running profiler and logs a warning. With `enabled=false` it
    /// takes no samples until [`Profiler::update`] enables it; the next start replaces it. With a kill switch, returns a
    /// profiler that does nothing.
    ///
    /// ```no_run
    /// let config = spanprof::Config::builder().service_name("checkout").load()?;
    /// let profiler = spanprof::Profiler::start(config)?;
    /// spanprof::tag_wrapper([("route", "/cart")], || { /* work */ });
    /// profiler.stop();
    /// # Ok::<(), spanprof::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the configuration is invalid, the system refuses what the profiler needs (a clock, memory, a thread), or another copy of
    /// the library profiles the process.
    pub fn start(config: Config) -> Result<Self, Error> {
        ffi_guard_result(|| start_native(config)).map(Self)
    }

    /// Profiles a process that was forked without `exec`. Call it in the child, after `fork` returned there and before the child
    /// starts threads. Returns the profiler of the child, which has the settings of its parent; `None` if the parent was not
    /// profiled, or if the child cannot be, which logs a warning. Without this call the child is not profiled.
    pub fn after_fork_in_child() -> Option<Self> {
        ffi_guard(None, || spanprof_profiler::ProfilerHandle::after_fork_in_child().map(Self))
    }

    /// Stops sampling and sends the last window within `stop_timeout`. True when every window since the start was delivered.
    /// False in a forked child, for a handle of its parent. Idempotent.
    pub fn stop(&self) -> bool {
        ffi_guard(false, || self.is_of_this_process() && self.0.stop())
    }

    /// As [`Profiler::stop`], within `at_most` if that is shorter than `stop_timeout`: for processes that are exiting.
    pub fn stop_within(&self, at_most: Duration) -> bool {
        ffi_guard(false, || self.is_of_this_process() && self.0.stop_within(at_most))
    }

    /// Closes the open window and sends it; true when everything was delivered in time.
    pub fn flush(&self, timeout: Duration) -> bool {
        ffi_guard(false, || self.is_of_this_process() && self.0.flush(timeout))
    }

    /// Changes live keys while running; `enabled` too. The last writer of a key wins.
    ///
    /// # Errors
    /// When a key cannot change while running, or its value is invalid. No key is changed then.
    pub fn update(&self, patch: &ConfigPatch) -> Result<(), Error> {
        ffi_guard_result(|| self.0.update(patch))
    }

    /// Statistics of the profiler itself.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// The configuration of `start` and `update`, with the source of each value. [`Profiler::stats`] has the values in effect,
    /// which the governor may limit.
    pub fn config(&self) -> Config {
        self.0.config()
    }

    /// Whether samples are being taken.
    pub fn is_running(&self) -> bool {
        self.is_of_this_process() && self.0.is_running()
    }

    /// Logs a warning, once, if this is a forked child and the handle is of its parent.
    fn is_of_this_process(&self) -> bool {
        static WARNED: AtomicBool = AtomicBool::new(false);
        let is_of_parent = self.0.is_of_parent();
        if is_of_parent && !WARNED.swap(true, Ordering::Relaxed) {
            log(
                LogLevel::Warning,
                "spanprof: this handle belongs to the parent of this forked process; call Profiler::after_fork_in_child() in the \
                 child, and use the profiler that it returns",
            );
        }
        !is_of_parent
    }

    /// Reports the end of a request, after its last sample: tail-based retention then decides on the samples. Never blocks. Without
    /// effect with `retention=all`. A report that does not fit into the ring is lost and counted
    /// (`dropped.submit_ring_full`); the request is then released undecided.
    pub fn request_ended(&self, end: &RequestEnd<'_>) {
        self.0.request_ended(end);
    }
}
