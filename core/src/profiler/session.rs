//! One run of the profiler: its clocks, threads, tables and destinations, from start to stop. Not here: who may start one
//! (`profiler`).

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::outcome::Ending;
use super::{drain_thread, wall};
use crate::config::{Clock, Config, ConfigSource};
use crate::delivery::WindowDelivery;
use crate::hash::hash_bytes;
use crate::host_log::{log, LogLevel};
use crate::output::OutputFile;
use crate::resource::{Resource, SystemFacts};
use crate::runtime::Runtime;
use crate::stats::Counters;
use crate::sys::{self, ClockChoice, ClockSettings, Clocks, Inbox};
use crate::{context, labels};
use crate::{Error, ErrorKind};
use spanprof_signal::{DropReason, SampleKind};

/// Ring at default depth: some thousands of samples, and a small part of the memory budget.
const RING_BYTES: usize = 1 << 20;
/// How long the wall sampler may take to tell what it holds back.
const WALL_PATIENCE: Duration = Duration::from_millis(50);
/// Entries of the largest size that must fit.
const RING_ENTRIES: usize = 64;

/// See the head of the module.
pub(super) struct Session {
    pub config: ArcSwap<Config>,
    pub runtime: Arc<dyn Runtime>,
    pub inbox: &'static Inbox,
    pub clocks: ArcSwapOption<Clocks>,
    pub delivery: Option<WindowDelivery>,
    /// The file of the whole run; the drain thread fills and writes it.
    pub output: Mutex<Option<OutputFile>>,
    /// What became of this file.
    pub written: OnceLock<Result<String, String>>,
    pub counters: Arc<Counters>,
    pub resource: Resource,
    pub control: Control,
    pub wall: Mutex<Option<wall::WallThread>>,
    pub stopping: AtomicBool,
    pub fork_generation: u32,
    /// Whether this run tells the crash-loop breaker that it lives: not in forked children, whose file is the parent's.
    pub marks_crashes: bool,
    /// The last process died inside our code: nothing is sampled in this one.
    pub safe_mode: bool,
    /// What the clocks had counted as lost when this run began: they count for the life of the process.
    pub losses_before: Vec<(DropReason, u64)>,
    /// CPU time of the process, and of our own threads in it, when this run began.
    pub cpu_before_ns: [u64; 2],
    pub begun: Instant,
}

impl Session {
    pub fn start(mut config: Config, runtime: Arc<dyn Runtime>) -> Result<Arc<Self>, Error> {
        let no_memory = || {
            Error::new(ErrorKind::System, "no memory for the ring of samples", "raise the memory limit of the process")
        };
        let cpu_before_ns = [sys::process_cpu_ns(), sys::own_cpu_ns()];
        let inbox = sys::inbox(ring_bytes(&config)).ok_or_else(no_memory)?;
        forget_parents_inbox(inbox);
        context::set_drain_inbox(inbox);
        // What a run before left behind belongs to no window of this one.
        inbox.ring().drain(inbox.ring().head(), &mut |_, _| {});
        sys::use_inbox(inbox);
        let marks_crashes = sys::fork_generation() == 0;
        let safe_mode =
            marks_crashes && sys::begin_crash_marker(&sys::crash_marker_directory(), program_number(), sys::unix_ns());
        if safe_mode {
            (config.cpu, config.wall) = (false, false);
            log(LogLevel::Warning, SAFE_MODE);
        }
        let resource = Resource::new(&config, runtime.resource_attributes(), &SystemFacts::gather());
        let output = start_output(&mut config)?;
        let delivery = WindowDelivery::start(&mut config)?;
        let counters = Arc::new(Counters::default());
        counters.resource_attributes_dropped.add(resource.dropped);
        let mut started = start_clocks(&config, &*runtime);
        if let (Err(error), true) = (&started, config.is_from_environment("clock")) {
            let source = config.sources["clock"].clone();
            log(LogLevel::Warning, &format!("spanprof: {}; clock ({source}) is ignored", error.message));
            config.reset("clock");
            started = start_clocks(&config, &*runtime);
        }
        let clocks = match started {
            Ok(clocks) => clocks.map(Arc::new),
            Err(error) if config.wall => {
                log(LogLevel::Warning, &format!("spanprof: no CPU samples, wall-clock only: {error}"));
                None
            }
            Err(error) => return Err(error),
        };
        let losses_before = clocks.as_ref().map(|clocks| clocks.counters().reasons).unwrap_or_default();
        let session = Arc::new(Self {
            config: ArcSwap::from_pointee(config),
            runtime,
            inbox,
            clocks: ArcSwapOption::new(clocks),
            delivery,
            output: Mutex::new(output),
            written: OnceLock::new(),
            counters,
            resource,
            control: Control::default(),
            wall: Mutex::new(None),
            stopping: AtomicBool::new(false),
            fork_generation: sys::fork_generation(),
            marks_crashes,
            safe_mode,
            losses_before,
            cpu_before_ns,
            begun: Instant::now(),
        });
        if let Err(error) = drain_thread::spawn(session.clone()) {
            session.stop_clocks();
            return Err(no_thread(error));
        }
        if session.config.load().wall {
            if let Err(error) = session.start_wall() {
                session.end(Duration::MAX);
                return Err(no_thread(error));
            }
        }
        if session.clocks.load().is_some() && session.runtime.delays_termination() {
            sys::install_termination_handler();
        }
        Ok(session)
    }

    /// Whether samples are being taken, or were at the moment of the fork. Takes no lock.
    pub fn is_running(&self) -> bool {
        !self.stopping.load(Ordering::Acquire) && !self.control.has_ended()
    }

    /// False in a forked child for the parent's session: its threads are not there, its locks may be held for ever.
    pub fn is_of_this_process(&self) -> bool {
        self.fork_generation == sys::fork_generation()
    }

    /// Ends everything within `stop_timeout`, or `at_most` where that is shorter, and logs the outcome; true when all was
    /// delivered.
    pub fn stop(&self, at_most: Duration) -> bool {
        let ending = Ending::of(self);
        let (delivered, ended) = self.end(at_most);
        ending.report(self, ended);
        // SIGTERM that came meanwhile waited for this.
        if sys::is_terminating() {
            sys::raise_termination();
        }
        sys::remove_termination_handler();
        delivered && ended
    }

    /// Whether everything was delivered, and whether the last window was handed over.
    fn end(&self, at_most: Duration) -> (bool, bool) {
        let until = Instant::now() + self.config.load().stop_timeout.min(at_most);
        self.stopping.store(true, Ordering::Release);
        self.stop_wall();
        let ended = self.control.stop(until, self.inbox);
        // The drain thread does this first; again in case it is late or gone.
        self.stop_clocks();
        if self.marks_crashes {
            sys::end_crash_marker();
        }
        let left = until.saturating_duration_since(Instant::now());
        let delivered = self.delivery.as_ref().is_none_or(|delivery| delivery.stop(left));
        sys::unregister_child();
        (delivered, ended)
    }

    pub fn stop_clocks(&self) {
        if let Some(clocks) = &*self.clocks.load() {
            clocks.stop();
        }
    }

    /// Brings a changed configuration into force. Behind the gate.
    pub fn update(&self, mut config: Config) -> Result<(), Error> {
        if self.safe_mode {
            (config.cpu, config.wall) = (false, false);
        }
        labels::tables().set_limits(config.max_label_sets, config.max_label_value_bytes);
        context::set_max_contexts(config.max_contexts);
        let before = self.config.load_full();
        let clocks = self.clocks.load_full();
        if clocks.is_none() && config.cpu {
            self.clocks.store(start_clocks(&config, &*self.runtime)?.map(Arc::new));
        }
        let config = Arc::new(config);
        self.config.store(config.clone());
        // Before the clocks change: samples from here on belong to a window under the new values.
        self.control.change(config.clone(), self.inbox);
        match (clocks, config.cpu) {
            (Some(clocks), false) => {
                clocks.stop();
                self.clocks.store(None);
            }
            (Some(clocks), true) if before.sample_rate != config.sample_rate => clocks.set_rate(config.sample_rate),
            _ => {}
        }
        let wall = config.wall && !self.stopping.load(Ordering::Acquire);
        if wall && !before.wall {
            self.start_wall().map_err(no_thread)?;
        } else if !wall && before.wall {
            self.stop_wall();
        }
        Ok(())
    }

    fn start_wall(&self) -> std::io::Result<()> {
        let mut wall = self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        if wall.is_none() {
            let Some(capture) = self.runtime.capture_other() else {
                log(LogLevel::Warning, "spanprof: this runtime cannot give wall-clock samples");
                return Ok(());
            };
            let counters = self.counters.clone();
            *wall = Some(wall::spawn(self.runtime.clone(), capture, self.inbox, counters, self.config.load_full())?);
        } else if let Some(running) = &*wall {
            running.set_config(self.config.load_full());
        }
        Ok(())
    }

    /// Passes a changed configuration to the wall sampler, if it runs.
    pub fn update_wall(&self) {
        if let Some(running) = &*self.wall.lock().unwrap_or_else(PoisonError::into_inner) {
            running.set_config(self.config.load_full());
        }
    }

    /// Has the wall sampler put what it holds back into the ring, before a window ends.
    pub fn release_wall(&self) {
        let orders = self.wall.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(wall::WallThread::control);
        if let Some(orders) = orders {
            orders.release(WALL_PATIENCE);
        }
    }

    fn stop_wall(&self) {
        let thread = self.wall.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }
}

impl Drop for Session {
    /// Of the parent's session, whose last handle may be dropped in a forked child, nothing may run: not even what ends
    /// its threads, which are not there.
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.wall.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            if let Some(delivery) = self.delivery.take() {
                delivery.forget_after_fork();
            }
        }
    }
}

const SAFE_MODE: &str =
    "spanprof: the last process of this program died inside the profiler within a minute of its start; \
                         nothing is sampled this time, the next start tries again (state: safe_mode)";

/// Tells this program from others of the same interpreter.
fn program_number() -> u64 {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    hash_bytes(hash_bytes(0, &command), directory.as_os_str().as_encoded_bytes())
}

/// The inbox lives as long as the process. In a forked child it still holds what the parent's threads were doing, whether
/// the parent's profiler ran or was just being stopped; nobody uses it before the child's first start.
fn forget_parents_inbox(inbox: &Inbox) {
    static OF_GENERATION: AtomicU32 = AtomicU32::new(0);
    let generation = sys::fork_generation();
    if OF_GENERATION.swap(generation, Ordering::AcqRel) != generation {
        inbox.reset_after_fork();
    }
}

/// The configuration that can come into force: without signals there are no CPU samples.
pub(super) fn effective(mut config: Config) -> Config {
    if !config.signals && config.cpu {
        config.cpu = false;
        if !config.wall && !matches!(config.sources.get("wall"), Some(source) if *source != ConfigSource::Default) {
            config.wall = true;
            config.warnings.push("signals=false: wall-clock samples instead of CPU samples".to_owned());
        }
    }
    config
}

fn ring_bytes(config: &Config) -> usize {
    let largest_entry = 128 + 16 * config.max_stack_depth as usize;
    RING_BYTES.max(largest_entry * RING_ENTRIES)
}

/// The CPU clocks; `None` when they are not wanted.
fn start_clocks(config: &Config, runtime: &dyn Runtime) -> Result<Option<Clocks>, Error> {
    if !config.cpu {
        return Ok(None);
    }
    let settings = ClockSettings {
        kind: match config.clock {
            Clock::Auto => ClockChoice::Auto,
            Clock::ThreadTimer => ClockChoice::ThreadTimer,
            Clock::Perf => ClockChoice::Perf,
            Clock::Sigtrap => ClockChoice::Sigtrap,
        },
        rate_hz: config.sample_rate,
        max_stack_depth: config.max_stack_depth as usize,
        capture: runtime.capture(),
        ring_bytes: ring_bytes(config),
        fallback_signal: runtime.fallback_signal(),
    };
    Clocks::start(settings).map(Some).map_err(|error| Error::new(ErrorKind::NoClock, error.message, error.hint))
}

/// The file of the whole run. One that only a variable names and that cannot be written is a warning.
fn start_output(config: &mut Config) -> Result<Option<OutputFile>, Error> {
    let Some(name) = &config.output else { return Ok(None) };
    match OutputFile::start(name, config.max_stacks, sys::fork_generation() > 0) {
        Ok(output) => Ok(Some(output)),
        Err(error) if config.is_from_environment("output") => {
            log(
                LogLevel::Warning,
                &format!("spanprof: {} ({}); it is ignored", error.message, config.sources["output"]),
            );
            config.reset("output");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::System,
        format!("the system refused a thread for the profiler: {error}"),
        "raise the limit of threads (pids.max, ulimit -u)",
    )
}

/// What other threads ask of the drain thread.
#[derive(Default)]
pub(super) struct Control {
    asked: Mutex<Asked>,
    done: Condvar,
    /// What `Asked::ended` says, for who may not wait: host threads, and a forked child, where the lock may be held by a
    /// thread that does not exist there.
    ended: AtomicBool,
}

/// A changed configuration, and the ring position from which on it holds.
pub(super) struct Change {
    pub position: u64,
    pub config: Arc<Config>,
}

/// Of what the open window shall close.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kinds {
    All,
    Some(Vec<SampleKind>),
}

impl Default for Kinds {
    fn default() -> Self {
        Self::Some(Vec::new())
    }
}

impl Kinds {
    fn add(&mut self, only: Option<SampleKind>) {
        match (only, &mut *self) {
            (None, _) => *self = Self::All,
            (Some(kind), Self::Some(kinds)) if !kinds.contains(&kind) => kinds.push(kind),
            (Some(_), _) => {}
        }
    }
}

#[derive(Default)]
pub(super) struct Asked {
    /// Windows asked to be closed, and how many of these requests are done.
    pub closes: u64,
    pub closes_done: u64,
    pub close_kinds: Kinds,
    /// In the order in which they were made.
    pub changes: Vec<Change>,
    pub stop: bool,
    pub ended: bool,
}

impl Control {
    pub fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: Instant, done: impl Fn(&Asked) -> bool) -> bool {
        let mut asked = self.lock();
        loop {
            if done(&asked) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if asked.ended || left == Duration::ZERO {
                return done(&asked);
            }
            asked = self.done.wait_timeout(asked, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes the open window, or one kind of it; true when that happened in time.
    pub fn close_window(&self, only: Option<SampleKind>, until: Instant, inbox: &Inbox) -> bool {
        let mine = {
            let mut asked = self.lock();
            if asked.ended {
                return false;
            }
            asked.closes += 1;
            asked.close_kinds.add(only);
            asked.closes
        };
        inbox.wake();
        self.wait(until, |asked| asked.closes_done >= mine)
    }

    /// Ends the drain thread; true when it ended in time, its last window handed over.
    fn stop(&self, until: Instant, inbox: &Inbox) -> bool {
        self.lock().stop = true;
        inbox.wake();
        self.wait(until, |asked| asked.ended)
    }

    fn change(&self, config: Arc<Config>, inbox: &Inbox) {
        let mut asked = self.lock();
        asked.changes.push(Change { position: inbox.ring().head(), config });
        drop(asked);
        inbox.wake();
    }

    /// The drain thread tells what it did.
    pub fn tell(&self, change: impl FnOnce(&mut Asked)) {
        let mut asked = self.lock();
        change(&mut asked);
        self.ended.store(asked.ended, Ordering::Release);
        drop(asked);
        self.done.notify_all();
    }

    /// Whether the drain thread is gone. Takes no lock.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
