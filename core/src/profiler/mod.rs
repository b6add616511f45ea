//! Begin and end: the state machine around the engine. One profiler per process; every call may come from any thread, in
//! any order, any number of times. Not here: what the threads do (`drain_thread`, `wall`).
//!
//! Laws: after `start` nothing is raised into the host. A forked child takes no lock that a thread of the parent could hold:
//! the gate is replaced there, and of the parent's session, which every call passes by from the fork on, nothing is read but
//! what is behind no lock.

mod delivery_log;
mod drain_thread;
mod first_line;
mod health;
mod outcome;
mod session;
mod wall;
mod wall_pace;
mod wall_repeats;

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use crate::config::{Config, ConfigPatch};
use crate::host_log::{log, LogLevel};
use crate::runtime::Runtime;
use crate::stats::Stats;
use crate::{config, context, labels, sys};
use crate::{Error, ErrorKind};
use session::Session;
use spanprof_signal::{DropReason, RawSample, SampleKind};

/// The session that runs.
static CURRENT: ArcSwapOption<Session> = ArcSwapOption::const_empty();
/// Held through a start, a stop or an update; another one in each forked child.
static GATE: ArcSwapOption<Gate> = ArcSwapOption::const_empty();

struct Gate {
    fork_generation: u32,
    passage: Mutex<()>,
}

fn gate() -> Arc<Gate> {
    let fork_generation = sys::fork_generation();
    loop {
        let present = GATE.load();
        if let Some(gate) = present.as_ref().filter(|gate| gate.fork_generation == fork_generation) {
            return gate.clone();
        }
        let fresh = Arc::new(Gate { fork_generation, passage: Mutex::new(()) });
        GATE.compare_and_swap(&*present, Some(fresh));
    }
}

fn through_gate<T>(pass: impl FnOnce() -> T) -> T {
    let gate = gate();
    let _held = gate.passage.lock().unwrap_or_else(PoisonError::into_inner);
    pass()
}

/// A handle to the profiler of this process. Clones are the same profiler; dropping a handle stops nothing.
#[derive(Clone)]
pub struct Profiler {
    /// `None` when it was switched off at start.
    session: Option<Arc<Session>>,
    config: Arc<Config>,
}

impl Profiler {
    /// Starts the profiler for a language runtime. When it runs already, returns the running one and says so in the log.
    /// When switched off (`enabled=false` or a kill switch) it returns a profiler that does nothing.
    ///
    /// # Errors
    /// When the configuration cannot work, the system allows no clock, or another copy of the library profiles the process.
    pub fn start_with_runtime(mut config: Config, runtime: Arc<dyn Runtime>) -> Result<Profiler, Error> {
        // A configuration filled in by hand has not seen the environment; a kill switch must work all the same.
        let by_variable = || config::kill_switch(&config::process_environment());
        config.disabled_by = config.disabled_by.or_else(by_variable);
        through_gate(|| {
            if let Some(session) = CURRENT.load_full().filter(|session| session.is_of_this_process()) {
                log(LogLevel::Warning, "spanprof: start() was called again; the running profiler stays as it is");
                let config = session.config.load_full();
                return Ok(Profiler { session: Some(session), config });
            }
            forget_parents_session();
            start_session(config, runtime)
        })
    }

    /// The profiler of this process, when one was started and not stopped.
    pub fn running() -> Option<Profiler> {
        let session = CURRENT.load_full().filter(|session| session.is_of_this_process())?;
        let config = session.config.load_full();
        Some(Profiler { session: Some(session), config })
    }

    /// What this handle stands for; `None` when switched off, and in a forked child.
    fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|session| session.is_of_this_process())
    }

    /// Ends sampling, sends the last window within `stop_timeout`. True when every window since the start was delivered. Doing it again
    /// does nothing.
    pub fn stop(&self) -> bool {
        self.stop_within(Duration::MAX)
    }

    /// As [`Profiler::stop`], within `at_most` where that is shorter than `stop_timeout`: for processes that end now.
    pub fn stop_within(&self, at_most: Duration) -> bool {
        let Some(session) = self.session() else { return true };
        through_gate(|| {
            let current = CURRENT.load();
            if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
                return true;
            }
            CURRENT.store(None);
            let delivered = session.stop(at_most);
            sys::withdraw_copy();
            delivered
        })
    }

    /// Closes the open window and sends it; true when everything was delivered in time.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.close_and_deliver(None, timeout)
    }

    /// As [`Profiler::flush`] for one kind of samples: its profiles end here and are sent, the window of the other kinds
    /// stays open.
    pub fn flush_kind(&self, kind: SampleKind, timeout: Duration) -> bool {
        self.close_and_deliver(Some(kind), timeout)
    }

    fn close_and_deliver(&self, only: Option<SampleKind>, timeout: Duration) -> bool {
        let Some(session) = self.session() else { return true };
        let until = Instant::now() + timeout;
        // Before the window is closed: a receiver may refuse it before the flush begins.
        let delivery = session.delivery.as_ref().map(|delivery| (delivery, delivery.moment()));
        session.control.close_window(only, until, session.inbox)
            && delivery.is_none_or(|(delivery, before)| delivery.flush(&before, until - Instant::now().min(until)))
    }

    /// Changes live keys while running.
    ///
    /// # Errors
    /// When a key cannot change while running, or its value cannot work. Nothing has changed then.
    pub fn update(&self, patch: &ConfigPatch) -> Result<(), Error> {
        let Some(session) = self.session() else { return self.config.patched(patch).map(|_| ()) };
        through_gate(|| {
            let config = session.config.load().patched(patch)?;
            for warning in &config.warnings {
                log(LogLevel::Warning, &format!("spanprof: {warning}"));
            }
            session.update(config)
        })
    }

    /// The profiler's own health.
    pub fn stats(&self) -> Stats {
        health::stats(self.session().map(|session| &**session), &self.config)
    }

    /// The configuration in force, with the source of each value.
    pub fn config(&self) -> Config {
        let config = self.session().map_or_else(|| self.config.clone(), |session| session.config.load_full());
        Config::clone(&config)
    }

    /// Whether samples are being taken.
    pub fn is_running(&self) -> bool {
        self.session().is_some_and(|session| session.is_running())
    }

    /// Announces the current thread, before it runs anything worth sampling. Cheap; optional (others are found by a scan).
    pub fn register_current_thread(&self) {
        let Some(session) = self.session() else { return };
        session.runtime.register_thread();
        if let Some(clocks) = &*session.clocks.load() {
            clocks.register_current_thread();
        }
    }

    /// Takes the CPU clock from the calling thread until [`Profiler::resume_current_thread`]. Needed before `exec` with
    /// `clock=sigtrap` only: a trap that is pending during `exec` ends the new program. [`Profiler::stop`] does it too.
    pub fn suspend_current_thread(&self) {
        if let Some(clocks) = self.session().and_then(|session| session.clocks.load_full()) {
            clocks.suspend_current_thread();
        }
    }

    /// Gives the calling thread its CPU clock again, after an `exec` that failed.
    pub fn resume_current_thread(&self) {
        if let Some(clocks) = self.session().and_then(|session| session.clocks.load_full()) {
            clocks.resume_current_thread();
        }
    }

    /// The runtime tells of a sample itself (allocation, lock, loop). Never blocks.
    pub fn submit(&self, sample: &RawSample<'_>) -> Result<u64, DropReason> {
        let session = self.session().filter(|session| session.is_running()).ok_or(DropReason::Disabled)?;
        session.inbox.submit(sample).inspect_err(|_| session.counters.submit_dropped.add(1))
    }

    /// The ring position that code ending now must be announced with; 0 when not running.
    pub fn ring_position(&self) -> u64 {
        self.session().map_or(0, |session| session.inbox.ring().head())
    }

    /// The language's after-fork hook, in the child on its only thread: profiles the child if the parent was profiled.
    /// The parent's handles mean nothing in the child; [`Profiler::running`] gives its own.
    ///
    /// The parent's connection to each destination stays open in the child, unused, until the child ends or executes another
    /// program. It belongs to threads that stayed behind.
    pub fn after_fork_in_child() -> Option<Profiler> {
        labels::tables().after_fork_in_child();
        // The child may have started its own before the hook was called.
        if let Some(own) = Self::running() {
            return Some(own);
        }
        // Also where the parent was just starting for the first time, before it could notice forks.
        GATE.store(None);
        let parents = forget_parents_session()?;
        if !parents.is_running() {
            return None;
        }
        let (config, runtime) = (parents.config.load_full(), parents.runtime.clone());
        let started = through_gate(|| start_session(Config::clone(&config), runtime));
        match started {
            Ok(profiler) => {
                if let Some(session) = &profiler.session {
                    session.counters.forks.add(1);
                }
                Some(profiler)
            }
            Err(error) => {
                log(LogLevel::Warning, &format!("spanprof: this forked process is not profiled: {error}"));
                None
            }
        }
    }
}

/// In a forked child: nobody comes by the parent's session any more. Its locks may be held and its threads are gone, so
/// nothing of it may run again, not even a destructor.
fn forget_parents_session() -> Option<ManuallyDrop<Arc<Session>>> {
    let parents = ManuallyDrop::new(CURRENT.swap(None)?);
    parents.runtime.after_fork_in_child();
    Some(parents)
}

/// Starts a session and makes it the current one. Behind the gate.
fn start_session(config: Config, runtime: Arc<dyn Runtime>) -> Result<Profiler, Error> {
    config.check()?;
    let config = session::effective(config);
    for warning in &config.warnings {
        log(LogLevel::Warning, &format!("spanprof: {warning}"));
    }
    if !config.enabled || config.disabled_by.is_some() {
        return Ok(Profiler { session: None, config: Arc::new(config) });
    }
    sys::pin_library();
    sys::install_fork_hook();
    sys::announce_copy().map_err(|other| {
        Error::new(
            ErrorKind::SecondCopy,
            other.to_string(),
            "start only one of them, or set SPANPROF_DISABLED=1 for the other",
        )
    })?;
    labels::tables().set_limits(config.max_label_sets, config.max_label_value_bytes);
    context::set_max_contexts(config.max_contexts);
    let session = Session::start(config, runtime)?;
    sys::register_child();
    CURRENT.store(Some(session.clone()));
    let config = session.config.load_full();
    Ok(Profiler { session: Some(session), config })
}

#[cfg(test)]
impl Profiler {
    /// Runs `body` while every lock that a call of another thread may hold is held.
    pub(crate) fn with_locks_held<T>(&self, body: impl FnOnce() -> T) -> T {
        let session = self.session.as_ref().unwrap();
        through_gate(|| {
            let _control = session.control.lock();
            let _wall = session.wall.lock().unwrap_or_else(PoisonError::into_inner);
            let _labels = labels::tables().writer_lock_for_test();
            body()
        })
    }
}
