//! One run of the profiler: its process, configuration, sources of samples and outputs. Not here: its start and stop
//! (`start_stop`) and the requests to its drain thread (`drain_control`).

pub mod active_kinds;
pub mod clocks;
pub mod current;
pub mod drain_control;
pub mod due_changes;
pub mod heap_profile;
pub mod pull_handlers;
pub mod reconfigure;
pub mod session_config;
pub mod watched_file;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::deliver::output::OutputFile;
use crate::deliver::resource::SystemProperties;
use crate::deliver::windows::WindowDelivery;
use crate::http::listener::HttpListener;
use crate::session::drain_control::DrainControl;
use crate::session::session_config::SessionConfig;
use crate::wall::thread::{WallControl, WallDemand, WallThread};
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::{Counters, Resource};
use spanprof_os::{Clocks, Inbox, PeakFile};
use spanprof_profile::redact::{ProfileRedactor, RedactionSettings};
use spanprof_signal::DropReason;

/// Timeout for the wall sampler to release its held-back samples.
const WALL_RELEASE_TIMEOUT: Duration = Duration::from_millis(50);
/// As [`WALL_RELEASE_TIMEOUT`], with the stacks of all threads.
const LIVE_THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of the last run. All runs share one inbox, which belongs to this one.
static LAST_RUN: AtomicU64 = AtomicU64::new(0);

/// The state of one run, shared by the host's threads and the drain thread.
pub(crate) struct Session {
    pub process: SessionProcess,
    pub config: SessionConfig,
    pub sampling: SessionSampling,
    pub outputs: SessionOutputs,
    pub pull: PullState,
    pub runtime: Arc<dyn Runtime>,
    pub inbox: &'static Inbox,
    pub counters: Arc<Counters>,
    pub control: DrainControl,
    pub stopping: AtomicBool,
}

/// The run and its process, as they were at the start.
pub(crate) struct SessionProcess {
    /// Number of this run.
    pub run: u64,
    pub begun: Instant,
    /// CPU time of the process, and of the profiler's threads, before this run.
    pub cpu_before_ns: [u64; 2],
    /// The first process of its program has generation 0.
    pub fork_generation: u32,
    /// True while this run maintains the crash marker. False in forked children, whose marker is the parent's.
    pub marks_crashes: bool,
}

impl SessionProcess {
    /// Begins a run, to which the inbox belongs from now on.
    pub fn begin() -> Self {
        let fork_generation = spanprof_signal::fork_generation();
        Self {
            run: LAST_RUN.fetch_add(1, Ordering::AcqRel) + 1,
            begun: Instant::now(),
            cpu_before_ns: [spanprof_os::process_cpu_ns(), spanprof_os::own_cpu_ns()],
            fork_generation,
            marks_crashes: fork_generation == 0,
        }
    }
}

/// The clocks and the other sources of samples.
pub(crate) struct SessionSampling {
    pub clocks: ArcSwapOption<Clocks>,
    /// The CPU clock that was ended last, for log lines about its samples.
    pub ended_clock: ArcSwapOption<String>,
    /// Losses that the clocks had counted before this run; they count since the start of the process.
    pub losses_before: Vec<(DropReason, u64)>,
    wall: Mutex<Option<WallThread>>,
    /// Number of collections that need wall-clock samples. Changed with the lifecycle lock only.
    pub wall_collections: AtomicU32,
    /// CPU quota at the start of this run, in processors, if limited: of the wall sampler, and of the period that its profiles declare.
    pub cpu_quota: Option<f64>,
    /// Why this process has no heap profile, if it should have one.
    pub no_heap_reason: ArcSwapOption<String>,
}

impl SessionSampling {
    pub fn new(clocks: Option<Clocks>) -> Self {
        Self {
            losses_before: clocks.as_ref().map(|clocks| clocks.counters().reasons).unwrap_or_default(),
            clocks: ArcSwapOption::new(clocks.map(Arc::new)),
            ended_clock: ArcSwapOption::empty(),
            wall: Mutex::new(None),
            wall_collections: AtomicU32::new(0),
            cpu_quota: spanprof_os::cpu_quota(),
            no_heap_reason: ArcSwapOption::empty(),
        }
    }

    /// The wall sampler, if it is running.
    pub fn wall(&self) -> MutexGuard<'_, Option<WallThread>> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests to it.
    fn wall_control(&self) -> Option<Arc<WallControl>> {
        self.wall().as_ref().map(WallThread::control)
    }
}

/// What the profiles of the run say about the process, and where they go.
pub(crate) struct SessionOutputs {
    pub system: SystemProperties,
    pub resource: ArcSwap<Resource>,
    /// The redaction of this run; its random key is that of the resource too.
    pub redaction: RedactionSettings,
    pub delivery: Option<WindowDelivery>,
    /// The file of the whole run; the drain thread merges windows into it and writes it.
    pub file: Mutex<Option<OutputFile>>,
    /// Result of writing this file, as a message.
    pub file_result: OnceLock<Result<String, String>>,
    /// The file of the heap at its peak, until the drain thread takes it.
    pub peak_file: Mutex<Option<PeakFile>>,
}

/// The listener of pulls, and whether one is being answered.
#[derive(Default)]
pub(crate) struct PullState {
    pub listener: OnceLock<HttpListener>,
    pub is_collecting: AtomicBool,
}

impl Session {
    /// Whether the inbox belongs to a later run. `stop` does not wait longer than its timeout for the drain thread, which may
    /// thus outlive it.
    pub fn is_superseded(&self) -> bool {
        LAST_RUN.load(Ordering::Acquire) != self.process.run
    }

    /// Whether samples are being taken, or were at the moment of the fork. Takes no lock.
    pub fn is_running(&self) -> bool {
        self.is_alive() && self.config.active.load().enabled
    }

    /// As [`Session::is_running`], also while disabled.
    pub fn is_alive(&self) -> bool {
        !self.stopping.load(Ordering::Acquire) && !self.control.has_ended()
    }

    /// False in a forked child for the parent's session, whose threads do not exist and whose locks may be held.
    pub fn is_of_this_process(&self) -> bool {
        self.process.fork_generation == spanprof_signal::fork_generation()
    }

    pub fn stop_clocks(&self) {
        if let Some(clocks) = &*self.sampling.clocks.load() {
            clocks.stop();
        }
    }

    /// Builds the resource again, with what is known of it now.
    pub fn refresh_resource(&self) {
        let mut redactor = ProfileRedactor::new(self.outputs.redaction.clone());
        let attributes = self.runtime.resource_attributes();
        let resource = self.outputs.system.resource(&self.config.active.load(), attributes, &mut redactor);
        self.outputs.resource.store(Arc::new(resource));
    }

    /// Passes a changed configuration to the wall sampler, if it is running.
    pub fn update_wall(&self) {
        if let Some(running) = &*self.sampling.wall() {
            running.set_demand(self.wall_demand());
        }
    }

    /// The kinds of samples that the wall sampler takes.
    pub fn wall_demand(&self) -> WallDemand {
        let config = self.config.active.load_full();
        let for_collections = config.enabled && self.sampling.wall_collections.load(Ordering::Acquire) > 0;
        WallDemand { config, for_collections }
    }

    /// Makes the wall sampler submit its held-back samples before a window ends, and the live threads before their profile
    /// ends.
    pub fn release_wall(&self, live_threads: bool) {
        if let Some(control) = self.sampling.wall_control() {
            let live_threads = live_threads && self.config.active.load().threads;
            control.release(if live_threads { LIVE_THREADS_TIMEOUT } else { WALL_RELEASE_TIMEOUT }, live_threads);
        }
    }

    /// Makes the wall sampler submit the live threads for a pull.
    pub fn submit_threads_on_demand(&self) {
        if let Some(control) = self.sampling.wall_control() {
            control.submit_threads_on_demand(LIVE_THREADS_TIMEOUT);
        }
    }
}

impl Drop for Session {
    /// A forked child may drop the last handle of the parent's session. No code of it may run there, not even the code
    /// that ends its threads, which do not exist.
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.sampling.wall.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            if let Some(delivery) = self.outputs.delivery.take() {
                delivery.forget_after_fork();
            }
        }
    }
}
