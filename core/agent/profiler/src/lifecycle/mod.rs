//! Lifecycle: the state machine of start, stop, flush, update and fork. One profiler per process; each function may be called
//! on any thread, in any order and repeatedly. Not here: the work of the threads (`drain_thread`, `wall`).
//!
//! Rules: after `start` nothing is raised into the host. A forked child takes no lock that a thread of the parent could hold:
//! it replaces the lifecycle lock, and reads only lock-free fields of the parent's session.

pub mod pending_ends;
pub mod request;
mod start_stop;

pub use start_stop::require_memory;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host_log::{log, LogLevel};
use crate::session::current::{current_session, with_lifecycle_lock, CURRENT, LIFECYCLE_LOCK};
use crate::session::session_config::Inherited;
use crate::session::Session;
use crate::stats::Stats;
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::{labels, ClosedWindow};
use spanprof_config::{Config, ConfigPatch, ConfigSource, Error, ErrorKind};
use spanprof_profile::ProfilesData;
use spanprof_signal::{DropReason, RawSample, SampleKind};

/// A handle to the profiler of this process. Clones refer to the same profiler; dropping a handle stops nothing.
#[derive(Clone)]
pub struct ProfilerHandle {
    /// `None` when disabled at start.
    session: Option<Arc<Session>>,
    config: Arc<Config>,
}

impl ProfilerHandle {
    /// Starts the profiler for a language runtime. If it is already running, returns the running profiler and logs a warning.
    /// With `enabled=false` it takes no samples until [`ProfilerHandle::update`] enables it; the next start replaces it. With a kill
    /// switch, returns a profiler that does nothing.
    ///
    /// # Errors
    /// When the configuration is invalid, the system allows no clock, or another copy of the library profiles the process.
    pub fn start_with_runtime(mut config: Config, runtime: Arc<dyn Runtime>) -> Result<ProfilerHandle, Error> {
        // A configuration built in code was not loaded from the environment, but the kill switch applies to it too.
        let by_variable = || spanprof_config::kill_switch(&spanprof_config::process_environment());
        config.disabled_by = config.disabled_by.or_else(by_variable);
        with_lifecycle_lock(|| {
            if let Some(session) = current_session() {
                if !session.was_never_enabled() {
                    log(LogLevel::Warning, "spanprof: start() was called again; the running profiler stays as it is");
                    let config = session.config.requested.load_full();
                    return Ok(ProfilerHandle { session: Some(session), config });
                }
                // It has taken no samples.
                CURRENT.store(None);
                session.stop(Duration::MAX);
                spanprof_os::withdraw_copy();
            }
            forget_parent_session();
            start_session(config, Inherited::default(), runtime)
        })
    }

    /// The running profiler of this process, if any.
    pub fn running() -> Option<ProfilerHandle> {
        let session = current_session()?;
        let config = session.config.requested.load_full();
        Some(ProfilerHandle { session: Some(session), config })
    }

    /// The session of this handle; `None` when disabled, and in a forked child.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|session| session.is_of_this_process())
    }

    /// Whether this handle belongs to the parent of this process: it then refers to threads that do not exist here.
    pub fn is_of_parent(&self) -> bool {
        self.session.is_some() && self.session().is_none()
    }

    /// Stops sampling and sends the last window within `stop_timeout`. True when every window since the start was delivered.
    /// Idempotent.
    pub fn stop(&self) -> bool {
        self.stop_within(Duration::MAX)
    }

    /// As [`ProfilerHandle::stop`], within `at_most` if that is shorter than `stop_timeout`: for processes that are exiting.
    pub fn stop_within(&self, at_most: Duration) -> bool {
        let Some(session) = self.session() else { return true };
        with_lifecycle_lock(|| {
            let current = CURRENT.load();
            if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                return true;
            }
            CURRENT.store(None);
            let delivered = session.stop(at_most);
            spanprof_os::withdraw_copy();
            delivered
        })
    }

    /// Closes the open window and sends it; true when everything was delivered in time.
    pub fn flush(&self, timeout: Duration) -> bool {
        let Some(session) = self.session() else { return true };
        let deadline = Instant::now() + timeout;
        // Taken before the window closes: a receiver may refuse it before the flush begins.
        let delivery = session.outputs.delivery.as_ref().map(|delivery| (delivery, delivery.loss_baseline()));
        session.control.close_window(deadline, session.inbox)
            && delivery
                .is_none_or(|(delivery, before)| delivery.flush(&before, deadline - Instant::now().min(deadline)))
    }

    /// Changes live keys while running; `enabled` too. The last writer of a key wins.
    ///
    /// # Errors
    /// When a key cannot change while running, or its value is invalid. No key is changed then.
    pub fn update(&self, patch: &ConfigPatch) -> Result<(), Error> {
        let source = ConfigSource::Update;
        match self.session() {
            Some(session) => session.replace_running(|running| running.changed(&patch.0, &source)),
            None => self.config.patched(&patch.0, &source).map(drop),
        }
    }

    /// Statistics of the profiler itself.
    pub fn stats(&self) -> Stats {
        crate::report::health::stats(self.session().map(|session| &**session), &self.config)
    }

    /// The configuration of `start` and `update`, with the source of each value. [`ProfilerHandle::stats`] has the values in effect,
    /// which the governor may limit.
    pub fn config(&self) -> Config {
        let config = self.session().map_or_else(|| self.config.clone(), |session| session.config.requested.load_full());
        Config::clone(&config)
    }

    pub(crate) fn max_stack_depth(&self) -> usize {
        self.config.max_stack_depth as usize
    }

    /// Whether samples are being taken.
    pub fn is_running(&self) -> bool {
        self.session().is_some_and(|session| session.is_running())
    }

    /// Registers the current thread at its start. Cheap and optional: a scan of the process finds other threads.
    pub fn register_current_thread(&self) {
        let Some(session) = self.session() else { return };
        session.runtime.register_thread();
        if let Some(clocks) = &*session.sampling.clocks.load() {
            clocks.register_current_thread();
        }
    }

    /// Lets SIGTERM wait for the last window again, after the program restored the default action.
    pub fn delay_termination(&self) {
        if let Some(session) = self.session().filter(|session| session.is_running()) {
            session.delay_termination();
        }
    }

    /// Submits a sample of the runtime (allocation, lock, event loop) and returns its ring position. Never blocks. The
    /// error is the loss reason.
    pub fn submit(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let session = self.session().filter(|session| session.is_running()).ok_or(DropReason::Disabled)?;
        session.inbox.submit(sample).inspect_err(|_| session.counters.submit_dropped.add(1))
    }

    pub(crate) fn begin_capture(&self, number: u32) -> bool {
        self.session().is_some_and(|session| session.is_running() && session.control.begin_capture(number))
    }

    /// See `DrainControl::end_capture`.
    pub(crate) fn end_capture(&self, number: u32, deadline: Option<Instant>) -> Option<ProfilesData> {
        let session = self.session()?;
        session.control.end_capture(number, deadline, session.inbox)
    }

    /// Queues the profile of a capture at every destination; true when it was delivered in time.
    pub(crate) fn send_capture(&self, data: ProfilesData, timeout: Duration) -> bool {
        let Some(session) = self.session() else { return false };
        let delivery = session.outputs.delivery.as_ref().filter(|delivery| delivery.has_destinations());
        let Some(delivery) = delivery else {
            if session.counters.capture_unsent.value() == 0 {
                let line =
                    "spanprof: a capture was not sent, because there is no destination; set endpoint or destinations";
                log(LogLevel::Warning, line);
            }
            session.counters.capture_unsent.add(data.sample_count() as u64);
            return false;
        };
        let before = delivery.loss_baseline();
        delivery.send(ClosedWindow::of_profiles(data), session.config.active.load().request_bytes() as usize);
        delivery.flush(&before, timeout)
    }

    /// The keys of the profiles that are on.
    #[doc(hidden)]
    pub fn profile_types(&self) -> Vec<&'static str> {
        let Some(session) = self.session().filter(|session| session.is_running()) else { return Vec::new() };
        let config = session.config.active.load();
        let keys = [
            ("cpu", config.cpu),
            ("wall", config.wall),
            ("heap", config.heap && session.sampling.no_heap_reason.load().is_none()),
            ("lock", config.lock && session.runtime.submits(SampleKind::Lock)),
            ("off_cpu", config.off_cpu),
            ("gc", config.gc && session.runtime.submits(SampleKind::Gc)),
            ("threads", config.threads),
        ];
        keys.into_iter().filter(|(_, is_on)| *is_on).map(|(key, _)| key).collect()
    }

    /// The ring position to report for code that ends now; 0 when not running.
    pub fn ring_position(&self) -> u64 {
        self.session().map_or(0, |session| session.inbox.ring().head())
    }

    /// The language's after-fork hook, called in the child on its only thread: profiles the child if the parent was profiled.
    /// The parent's handles are invalid in the child; [`ProfilerHandle::running`] returns a valid one.
    ///
    /// The parent's connection to each destination stays open in the child, unused, until the child exits or calls `exec`.
    /// It belongs to threads that only exist in the parent.
    pub fn after_fork_in_child() -> Option<ProfilerHandle> {
        labels::tables().after_fork_in_child();
        // The child may have started a profiler before this hook.
        if let Some(started) = Self::running() {
            return Some(started);
        }
        // Needed if the parent forked during its first start, before it could detect forks.
        LIFECYCLE_LOCK.reset();
        let parent_session = forget_parent_session()?;
        if !parent_session.is_alive() {
            return None;
        }
        let (settings, runtime) = (parent_session.config.settings.load_full(), parent_session.runtime.clone());
        let inherited =
            Inherited { burst: settings.burst().cloned(), watched: parent_session.config.watched.load_full() };
        let config = settings.lasting().clone();
        let started = with_lifecycle_lock(|| start_session(config, inherited, runtime));
        match started {
            Ok(profiler) => {
                if let Some(session) = &profiler.session {
                    session.counters.forks.add(1);
                }
                Some(profiler)
            }
            Err(error) => {
                log(LogLevel::Warning, &format!("spanprof: this forked process is not profiled: {}", error.line()));
                None
            }
        }
    }
}

/// Detaches the parent's session in a forked child. Its locks may be held and its threads do not exist, so none of its code
/// may run again, not even a destructor.
fn forget_parent_session() -> Option<ManuallyDrop<Arc<Session>>> {
    let parent_session = ManuallyDrop::new(CURRENT.swap(None)?);
    parent_session.runtime.after_fork_in_child();
    if let Some(delivery) = &parent_session.outputs.delivery {
        delivery.release_locks_in_child();
    }
    Some(parent_session)
}

/// Starts a session and makes it the current one. Requires the lifecycle lock.
fn start_session(config: Config, inherited: Inherited, runtime: Arc<dyn Runtime>) -> Result<ProfilerHandle, Error> {
    config.check()?;
    let config = start_stop::effective(config);
    for warning in &config.warnings {
        log(LogLevel::Warning, &format!("spanprof: {warning}"));
    }
    if config.is_disabled() {
        return Ok(ProfilerHandle { session: None, config: Arc::new(config) });
    }
    spanprof_os::pin_library();
    spanprof_os::install_fork_hook();
    spanprof_os::announce_copy().map_err(|other| {
        Error::new(
            ErrorKind::SecondCopy,
            other.to_string(),
            "start only one of them, or set SPANPROF_DISABLED=1 for the other",
        )
    })?;
    let session = Session::start(config, inherited, runtime).inspect_err(|_| {
        spanprof_os::end_crash_marker();
        spanprof_os::withdraw_copy();
    })?;
    spanprof_os::register_child();
    CURRENT.store(Some(session.clone()));
    let config = session.config.requested.load_full();
    Ok(ProfilerHandle { session: Some(session), config })
}

#[cfg(any(test, feature = "conformance"))]
impl ProfilerHandle {
    /// Waits until the drain thread has processed the samples so far. The window stays open.
    pub fn wait_until_drained(&self, timeout: Duration) -> bool {
        let session = self.session.as_ref().unwrap();
        session.control.collect(u32::MAX, crate::session::drain_control::CollectionStep::Cancel, timeout, session.inbox)
    }

    /// Runs `body` with every lock held that another thread may hold during a call.
    pub fn with_locks_held<T>(&self, body: impl FnOnce() -> T) -> T {
        let session = self.session.as_ref().unwrap();
        with_lifecycle_lock(|| {
            let _control = session.control.lock();
            let _wall = session.sampling.wall();
            let _labels = labels::tables().writer_lock_for_test();
            body()
        })
    }
}
