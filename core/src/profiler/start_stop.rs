//! Starts, changes and stops a session: its clocks, threads and destinations in their order. Requires the lifecycle lock,
//! which `profiler` holds.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use super::outcome::OutcomeReport;
use super::session::{DrainControl, Session};
use super::{drain_thread, heap_peak, heap_profile, wall_thread};
use crate::config::{Clock, Config, ConfigSource};
use crate::delivery::WindowDelivery;
use crate::hash::hash_bytes;
use crate::host_log::{log, LogLevel};
use crate::output::OutputFile;
use crate::resource::{Resource, SystemProperties};
use crate::runtime::{ReportedEvents, Runtime};
use crate::stats::Counters;
use crate::sys::{self, ClockChoice, ClockSettings, Clocks, Inbox};
use crate::{context, labels};
use crate::{Error, ErrorKind};
use spanprof_signal::SampleKind;

/// Size of the ring: thousands of samples at the default depth, and a small part of the memory budget.
const RING_BYTES: usize = 1 << 20;
/// Minimum capacity for entries of the largest size.
const RING_ENTRIES: usize = 64;

impl Session {
    pub fn start(mut config: Config, runtime: Arc<dyn Runtime>) -> Result<Arc<Self>, Error> {
        let no_memory =
            || Error::new(ErrorKind::System, "no memory for the profiler", "raise the memory limit of the process");
        if !sys::has_address_space(START_BYTES) {
            return Err(no_memory());
        }
        let cpu_before_ns = [sys::process_cpu_ns(), sys::own_cpu_ns()];
        let inbox = sys::inbox(ring_bytes(&config)).ok_or_else(no_memory)?;
        reset_inbox_after_fork(inbox);
        context::set_drain_inbox(inbox);
        let run = Self::begin_run();
        // Discards entries of the previous run.
        inbox.ring().drain(inbox.ring().head(), &mut |_, _| {});
        sys::use_inbox(inbox);
        let marks_crashes = sys::fork_generation() == 0;
        let safe_mode =
            marks_crashes && sys::begin_crash_marker(&sys::crash_marker_directory(), program_hash(), sys::unix_ns());
        if safe_mode {
            turn_off_sampling(&mut config);
            log(LogLevel::Warning, SAFE_MODE);
        }
        let resource = Resource::new(&config, runtime.resource_attributes(), &SystemProperties::gather());
        let output = start_output(&mut config)?;
        let peak_file = heap_peak::start(&mut config, &resource)?;
        let delivery = WindowDelivery::start(&mut config)?;
        let counters = Arc::new(Counters::default());
        counters.resource_attributes_dropped.add(resource.dropped);
        warn_of_unsupported_kinds(&config, &*runtime);
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
            run,
            config: ArcSwap::from_pointee(config),
            runtime,
            inbox,
            clocks: ArcSwapOption::new(clocks),
            delivery,
            output: Mutex::new(output),
            written: OnceLock::new(),
            peak_file: Mutex::new(peak_file),
            counters,
            resource,
            control: DrainControl::default(),
            wall: Mutex::new(None),
            no_heap_reason: ArcSwapOption::empty(),
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
            return Err(thread_error(error));
        }
        if walks_threads(&session.config.load()) {
            if let Err(error) = session.start_wall() {
                session.end(Duration::MAX);
                return Err(thread_error(error));
            }
        }
        if session.config.load().heap {
            heap_profile::start(&session, &session.config.load_full());
        }
        session.set_reported_events();
        if session.clocks.load().is_some() && session.runtime.delays_termination() {
            sys::install_termination_handler();
        }
        Ok(session)
    }

    /// Stops the session within `stop_timeout`, or `at_most` if that is shorter, and logs the outcome. True when everything
    /// was delivered.
    pub fn stop(&self, at_most: Duration) -> bool {
        let outcome = OutcomeReport::before_stop(self);
        let (delivered, ended) = self.end(at_most);
        outcome.log(self, ended);
        // A SIGTERM received meanwhile was delayed until here.
        if sys::is_terminating() {
            sys::raise_termination();
        }
        sys::remove_termination_handler();
        delivered && ended
    }

    /// Returns whether everything was delivered, and whether the drain thread closed the last window in time.
    fn end(&self, at_most: Duration) -> (bool, bool) {
        let deadline = Instant::now() + self.config.load().stop_timeout.min(at_most);
        self.stopping.store(true, Ordering::Release);
        self.set_reported_events();
        self.stop_wall();
        heap_profile::stop(self);
        let ended = self.control.stop(deadline, self.inbox);
        heap_profile::forget_objects(self);
        // The drain thread does this first; repeated in case it is late or has ended.
        self.stop_clocks();
        if self.marks_crashes {
            sys::end_crash_marker();
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let delivered = self.delivery.as_ref().is_none_or(|delivery| delivery.stop(left));
        sys::unregister_child();
        (delivered, ended)
    }

    /// Applies a changed configuration. Requires the lifecycle lock.
    pub fn update(&self, mut config: Config) -> Result<(), Error> {
        if self.safe_mode {
            turn_off_sampling(&mut config);
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
        // Before the clocks change: samples from this ring position on use the new configuration.
        self.control.change_config(config.clone(), self.inbox);
        match (clocks, config.cpu) {
            (Some(clocks), false) => {
                clocks.stop();
                self.clocks.store(None);
            }
            (Some(clocks), true) if before.sample_rate != config.sample_rate => clocks.set_rate(config.sample_rate),
            _ => {}
        }
        let walks = walks_threads(&config) && !self.stopping.load(Ordering::Acquire);
        if walks && !walks_threads(&before) {
            self.start_wall().map_err(thread_error)?;
        } else if !walks && walks_threads(&before) {
            self.stop_wall();
        }
        heap_profile::update(self, &before, &config);
        self.set_reported_events();
        Ok(())
    }

    /// Notifies the runtime of the events to report: none after the stop and in safe mode.
    fn set_reported_events(&self) {
        let config = self.config.load();
        let is_reporting = self.is_running() && !self.safe_mode;
        self.runtime.set_reported_events(ReportedEvents {
            gc: config.gc && is_reporting,
            lock: config.lock && is_reporting,
            lock_threshold_ns: config.lock_threshold.as_nanos() as u64,
        });
    }

    fn start_wall(&self) -> std::io::Result<()> {
        let mut wall = self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        if wall.is_none() {
            let Some(capture) = self.runtime.capture_other() else {
                warn_without_walks(&self.config.load());
                return Ok(());
            };
            let counters = self.counters.clone();
            *wall =
                Some(wall_thread::spawn(self.runtime.clone(), capture, self.inbox, counters, self.config.load_full())?);
        } else if let Some(running) = &*wall {
            running.set_config(self.config.load_full());
        }
        Ok(())
    }

    fn stop_wall(&self) {
        let thread = self.wall.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }
}

/// Least address space for a start: the tables, the ring, the stacks of the threads and their first allocations.
const START_BYTES: usize = 48 << 20;

const SAFE_MODE: &str =
    "spanprof: the previous process of this program crashed inside the profiler within a minute of its start; \
                         this process takes no samples, the next start tries again (state: safe_mode)";

/// Safe mode: no samples.
fn turn_off_sampling(config: &mut Config) {
    (config.cpu, config.wall, config.heap) = (false, false, false);
    (config.off_cpu, config.threads) = (false, false);
}

/// Whether the wall sampler is needed.
fn walks_threads(config: &Config) -> bool {
    config.wall || config.off_cpu || config.threads
}

/// Warns of the profiles that are missing where the runtime cannot walk another thread.
fn warn_without_walks(config: &Config) {
    let without = if config.signals { "" } else { " with signals=false" };
    if config.wall {
        log(LogLevel::Warning, &format!("spanprof: this runtime does not support wall-clock samples{without}"));
    }
    for (key, is_enabled) in [("off_cpu", config.off_cpu), ("threads", config.threads)] {
        if is_enabled {
            log(LogLevel::Warning, &format!("spanprof: {key} is on, but this runtime has no such samples{without}"));
        }
    }
}

/// Distinguishes this program from others of the same interpreter.
fn program_hash() -> u64 {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let directory = std::env::current_dir().unwrap_or_default();
    hash_bytes(hash_bytes(0, &command), directory.as_os_str().as_encoded_bytes())
}

/// Resets the inbox, which lives as long as the process, at the first start in a forked child. Threads of the parent
/// may have been in the middle of an operation at the fork. The child does not use the inbox before that start.
fn reset_inbox_after_fork(inbox: &Inbox) {
    static LAST_GENERATION: AtomicU32 = AtomicU32::new(0);
    let generation = sys::fork_generation();
    if LAST_GENERATION.swap(generation, Ordering::AcqRel) != generation {
        inbox.reset_after_fork();
    }
}

/// The effective configuration: without signals there are no CPU samples.
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

/// Starts the CPU clocks; `None` without CPU samples.
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

/// One warning for each kind of samples that was enabled explicitly and that this runtime does not submit.
fn warn_of_unsupported_kinds(config: &Config, runtime: &dyn Runtime) {
    let warn_unless_submitted = |key: &str, is_enabled: bool, kind: SampleKind| {
        if is_enabled && config.is_explicit(key) && !runtime.submits(kind) {
            log(LogLevel::Warning, &format!("spanprof: {key} is on, but this runtime has no such samples"));
        }
    };
    warn_unless_submitted("gc", config.gc, SampleKind::Gc);
    warn_unless_submitted("lock", config.lock, SampleKind::Lock);
}

/// Opens the file of the whole run. An unwritable file is a warning if its name comes from the environment, else an error.
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

fn thread_error(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::System,
        format!("the system refused a thread for the profiler: {error}"),
        "raise the limit of threads (pids.max, ulimit -u)",
    )
}
