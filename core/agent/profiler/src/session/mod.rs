//! One run of the profiler: its clocks, threads, tables and destinations, and the requests to its drain thread. Not here:
//! its start, change and stop (`start_stop`).

pub mod active_kinds;
pub mod clocks;
pub mod current;
pub mod due_changes;
pub mod heap_profile;
pub mod pull_handlers;
pub mod reconfigure;
pub mod watched_file;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::deliver::output::OutputFile;
use crate::deliver::resource::SystemProperties;
use crate::deliver::windows::WindowDelivery;
use crate::governor::Governor;
use crate::http::listener::HttpListener;
use crate::session::watched_file::WatchedFile;
use crate::wall::thread::{WallDemand, WallThread};
use spanprof_aggregate::hash::WordMap;
use spanprof_aggregate::runtime::Runtime;
use spanprof_aggregate::{Counters, Resource, SampleSelection, MAX_CAPTURES};
use spanprof_config::{Burst, Config, RunningConfig};
use spanprof_os::{Clocks, CpuAccount, Inbox, PeakFile};
use spanprof_profile::redact::{ProfileRedactor, RedactionSettings};
use spanprof_profile::ProfilesData;
use spanprof_signal::{DropReason, SampleKind};

/// Timeout for the wall sampler to release its held-back samples.
const WALL_RELEASE_TIMEOUT: Duration = Duration::from_millis(50);
/// As [`WALL_RELEASE_TIMEOUT`], with the stacks of all threads.
const LIVE_THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of the last run. All runs share one inbox, which belongs to this one.
static LAST_RUN: AtomicU64 = AtomicU64::new(0);

/// State of the parent's session that a forked child continues.
#[derive(Default)]
pub(crate) struct Inherited {
    pub burst: Option<Burst>,
    pub watched: Option<Arc<WatchedFile>>,
}

/// The state of one run, shared by the host's threads and the drain thread.
pub(crate) struct Session {
    /// Number of this run.
    pub run: u64,
    /// The configuration of `start` and of the changes since.
    pub effective: ArcSwap<Config>,
    /// As `effective`, within the governor's limits, without the kinds of samples that are off now: all of them while disabled
    /// and in safe mode.
    pub config: ArcSwap<Config>,
    /// The sources of `effective`. Changed with the lifecycle lock only.
    pub running: ArcSwap<RunningConfig>,
    /// The governor before the current burst.
    pub before_burst: ArcSwapOption<Governor>,
    /// Whether the governor begins a new interval at the next wakeup of the drain thread: a burst began or ended.
    pub restarts_accounting: AtomicBool,
    /// The CPU clock that was ended last, for log lines about its samples.
    pub ended_clock: ArcSwapOption<String>,
    /// The configuration file, if it is watched.
    pub watched: ArcSwapOption<WatchedFile>,
    /// Phase of the duty cycles, from 0 to 1.
    pub duty_phase: f64,
    /// Monotonic time at which the duty cycles were evaluated last.
    pub evaluated_ns: AtomicU64,
    /// Monotonic time of the next change that time causes; 0: none.
    pub next_change_ns: AtomicU64,
    /// Whether a thread applies changes now.
    pub is_applying: AtomicBool,
    /// Written by the drain thread.
    pub governor: ArcSwap<Governor>,
    pub runtime: Arc<dyn Runtime>,
    pub inbox: &'static Inbox,
    pub clocks: ArcSwapOption<Clocks>,
    pub delivery: Option<WindowDelivery>,
    /// The file of the whole run; the drain thread merges windows into it and writes it.
    pub output: Mutex<Option<OutputFile>>,
    /// Result of writing this file, as a message.
    pub written: OnceLock<Result<String, String>>,
    /// The file of the heap at its peak, until the drain thread takes it.
    pub peak_file: Mutex<Option<PeakFile>>,
    pub counters: Arc<Counters>,
    pub system: SystemProperties,
    pub resource: ArcSwap<Resource>,
    /// The redaction of this run; its random key is that of the resource too.
    pub redaction: RedactionSettings,
    pub control: DrainControl,
    pub wall: Mutex<Option<WallThread>>,
    pub pull: PullState,
    /// Number of collections that need wall-clock samples. Changed with the lifecycle lock only.
    pub wall_collections: AtomicU32,
    /// Why this process has no heap profile, if it should have one.
    pub no_heap_reason: ArcSwapOption<String>,
    pub stopping: AtomicBool,
    pub fork_generation: u32,
    /// Whether this run maintains the crash marker. False in forked children, whose marker is the parent's.
    pub marks_crashes: bool,
    /// The previous process crashed inside the profiler: this one takes no samples.
    pub safe_mode: bool,
    /// Losses that the clocks had counted before this run; they count since the start of the process.
    pub losses_before: Vec<(DropReason, u64)>,
    /// CPU time of the process, and of the profiler's threads, before this run.
    pub cpu_before_ns: [u64; 2],
    /// CPU quota at the start of this run, in processors, if limited: of the wall sampler, and of the period that its profiles declare.
    pub cpu_quota: Option<f64>,
    pub begun: Instant,
}

/// The listener of pulls, and whether one is being answered.
#[derive(Default)]
pub(crate) struct PullState {
    pub listener: OnceLock<HttpListener>,
    pub is_collecting: AtomicBool,
}

impl Session {
    /// Gives the inbox to a new run; returns its number.
    pub fn begin_run() -> u64 {
        LAST_RUN.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether the inbox belongs to a later run. `stop` does not wait longer than its timeout for the drain thread, which may
    /// thus outlive it.
    pub fn is_superseded(&self) -> bool {
        LAST_RUN.load(Ordering::Acquire) != self.run
    }

    /// Whether samples are being taken, or were at the moment of the fork. Takes no lock.
    pub fn is_running(&self) -> bool {
        self.is_alive() && self.config.load().enabled
    }

    /// As [`Session::is_running`], also while disabled.
    pub fn is_alive(&self) -> bool {
        !self.stopping.load(Ordering::Acquire) && !self.control.has_ended()
    }

    /// False in a forked child for the parent's session, whose threads do not exist and whose locks may be held.
    pub fn is_of_this_process(&self) -> bool {
        self.fork_generation == spanprof_signal::fork_generation()
    }

    pub fn stop_clocks(&self) {
        if let Some(clocks) = &*self.clocks.load() {
            clocks.stop();
        }
    }

    /// Builds the resource again, with what is known of it now.
    pub fn refresh_resource(&self) {
        let mut redactor = ProfileRedactor::new(self.redaction.clone());
        let runtime = self.runtime.resource_attributes();
        self.resource.store(Arc::new(self.system.resource(&self.config.load(), runtime, &mut redactor)));
    }

    /// Passes a changed configuration to the wall sampler, if it is running.
    pub fn update_wall(&self) {
        if let Some(running) = &*self.wall.lock().unwrap_or_else(PoisonError::into_inner) {
            running.set_demand(self.wall_demand());
        }
    }

    /// The kinds of samples that the wall sampler takes.
    pub fn wall_demand(&self) -> WallDemand {
        let config = self.config.load_full();
        let for_collections = config.enabled && self.wall_collections.load(Ordering::Acquire) > 0;
        WallDemand { config, for_collections }
    }

    /// Makes the wall sampler submit its held-back samples before a window ends, and the live threads before their profile
    /// ends.
    pub fn release_wall(&self, live_threads: bool) {
        let control = self.wall.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(WallThread::control);
        if let Some(control) = control {
            let live_threads = live_threads && self.config.load().threads;
            control.release(if live_threads { LIVE_THREADS_TIMEOUT } else { WALL_RELEASE_TIMEOUT }, live_threads);
        }
    }

    /// Makes the wall sampler submit the live threads for a pull.
    pub fn submit_threads_on_demand(&self) {
        let control = self.wall.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(WallThread::control);
        if let Some(control) = control {
            control.submit_threads_on_demand(LIVE_THREADS_TIMEOUT);
        }
    }
}

impl Drop for Session {
    /// A forked child may drop the last handle of the parent's session. No code of it may run there, not even the code
    /// that ends its threads, which do not exist.
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.wall.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            if let Some(delivery) = self.delivery.take() {
                delivery.forget_after_fork();
            }
        }
    }
}

/// Requests of other threads to the drain thread.
#[derive(Default)]
pub(crate) struct DrainControl {
    requests: Mutex<DrainRequests>,
    done: Condvar,
    /// Copy of `DrainRequests::ended` for threads that must not block: host threads, and a forked child, where a thread of
    /// the parent may hold the lock.
    ended: AtomicBool,
}

/// A changed configuration, and the ring position at which it takes effect.
pub(crate) struct ConfigChange {
    pub position: u64,
    pub config: Arc<Config>,
    /// The governor's comment on profiles.
    pub comment: String,
    /// Whether the open window ends at this position in any case.
    pub ends_window: bool,
    /// The clocks that ended at this position, by the number of their run, with their account.
    pub ended_clocks: Option<(u64, CpuAccount)>,
}

/// The sample kinds that a request closes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KindsToClose {
    All,
    Some(Vec<SampleKind>),
}

impl Default for KindsToClose {
    fn default() -> Self {
        Self::Some(Vec::new())
    }
}

impl KindsToClose {
    fn add(&mut self, only: Option<SampleKind>) {
        match (only, &mut *self) {
            (None, _) => *self = Self::All,
            (Some(kind), Self::Some(kinds)) if !kinds.contains(&kind) => kinds.push(kind),
            (Some(_), _) => {}
        }
    }
}

/// Number of the collection of a pull.
pub(crate) const PULL_COLLECTION: u32 = 0;

/// Number of the collection of a guard of `spanprof::pprof`. Other collections of the program have higher ones.
pub(crate) const GUARD_COLLECTION: u32 = 1;

/// State of a collection of samples.
#[derive(Debug)]
pub(crate) enum CollectionStep {
    /// Requested.
    Begin(SampleSelection),
    Running(SampleSelection),
    /// Requested; the collection continues.
    Read(Vec<SampleKind>),
    /// Requested; without an earlier `Begin` for those since the start.
    End(Vec<SampleKind>),
    Done(Box<ProfilesData>),
    /// Requested.
    Cancel,
}

impl CollectionStep {
    /// A copy of the request, if the drain thread has something to do.
    fn requested(&self) -> Option<Self> {
        match self {
            Self::Begin(selection) => Some(Self::Begin(selection.clone())),
            Self::Read(kinds) => Some(Self::Read(kinds.clone())),
            Self::End(kinds) => Some(Self::End(kinds.clone())),
            Self::Cancel => Some(Self::Cancel),
            Self::Running(_) | Self::Done(_) => None,
        }
    }

    /// The end of a running collection.
    fn end(&self) -> Option<Self> {
        match self {
            Self::Running(selection) => Some(Self::End(selection.kinds.clone())),
            other => other.requested(),
        }
    }

    /// Whether the request is about allocations.
    pub fn has_allocations(&self) -> bool {
        let (Self::Begin(SampleSelection { kinds, .. }) | Self::End(kinds)) = self else { return false };
        kinds.contains(&SampleKind::InUse)
    }
}

#[derive(Default)]
pub(crate) struct DrainRequests {
    /// Number of requests to close the window, and of those that are done.
    pub closes: u64,
    pub closes_done: u64,
    pub close_kinds: KindsToClose,
    /// In the order of the requests.
    pub changes: Vec<ConfigChange>,
    /// By number.
    pub collections: WordMap<u32, CollectionStep>,
    /// Captures to begin before the next samples, and to end after them.
    pub captures_begun: Vec<u32>,
    pub captures_ended: Vec<u32>,
    /// The profiles of ended captures whose threads wait; `None` until they are complete.
    pub captured: WordMap<u32, Option<ProfilesData>>,
    pub open_captures: usize,
    pub stop: bool,
    pub ended: bool,
}

impl DrainRequests {
    /// The requested steps of collections.
    pub fn requested_steps(&self) -> Vec<(u32, CollectionStep)> {
        self.collections.iter().filter_map(|(number, step)| Some((*number, step.requested()?))).collect()
    }

    /// As [`Self::requested_steps`] at the end of the session, which ends running collections too.
    pub fn steps_at_end(&self) -> Vec<(u32, CollectionStep)> {
        self.collections.iter().filter_map(|(number, step)| Some((*number, step.end()?))).collect()
    }
}

impl DrainControl {
    pub fn lock(&self) -> MutexGuard<'_, DrainRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, deadline: Instant, is_done: impl Fn(&DrainRequests) -> bool) -> bool {
        let mut requests = self.lock();
        loop {
            if is_done(&requests) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if requests.ended || left == Duration::ZERO {
                return is_done(&requests);
            }
            requests = self.done.wait_timeout(requests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes the open window, or one kind of it; true when that was done in time.
    pub fn close_window(&self, only: Option<SampleKind>, deadline: Instant, inbox: &Inbox) -> bool {
        let number = {
            let mut requests = self.lock();
            if requests.ended {
                return false;
            }
            requests.closes += 1;
            requests.close_kinds.add(only);
            requests.closes
        };
        inbox.wake();
        self.wait(deadline, |requests| requests.closes_done >= number)
    }

    /// Begins a capture, before its first sample; false with too many.
    pub fn begin_capture(&self, number: u32) -> bool {
        let mut requests = self.lock();
        let is_begun = !requests.ended && requests.open_captures < MAX_CAPTURES;
        if is_begun {
            requests.open_captures += 1;
            requests.captures_begun.push(number);
        }
        is_begun
    }

    /// Ends a capture and returns its samples; `None` when they are not complete in time. Without a deadline it does not wait.
    pub fn end_capture(&self, number: u32, deadline: Option<Instant>, inbox: &Inbox) -> Option<ProfilesData> {
        {
            let mut requests = self.lock();
            requests.open_captures = requests.open_captures.saturating_sub(1);
            requests.captures_ended.push(number);
            if deadline.is_some() {
                requests.captured.insert(number, None);
            }
        }
        inbox.wake();
        self.wait(deadline?, |requests| requests.captured.get(&number).is_some_and(Option::is_some));
        self.lock().captured.remove(&number)?
    }

    /// Ends the drain thread; true when it closed its last window and ended in time.
    pub fn stop(&self, deadline: Instant, inbox: &Inbox) -> bool {
        self.lock().stop = true;
        inbox.wake();
        self.wait(deadline, |requests| requests.ended)
    }

    /// Requests a step of a collection; true when the drain thread has done it in time.
    pub fn collect(&self, number: u32, step: CollectionStep, timeout: Duration, inbox: &Inbox) -> bool {
        {
            let mut requests = self.lock();
            if requests.ended || requests.stop {
                return false;
            }
            requests.collections.insert(number, step);
        }
        inbox.wake();
        self.wait(Instant::now() + timeout, |requests| {
            requests.collections.get(&number).is_none_or(|step| step.requested().is_none())
        })
    }

    /// Ends a collection; its samples are discarded.
    pub fn cancel_collection(&self, number: u32, inbox: &Inbox) {
        let mut requests = self.lock();
        if let Some(step) = requests.collections.get_mut(&number) {
            *step = CollectionStep::Cancel;
            drop(requests);
            inbox.wake();
        }
    }

    /// The collected profiles, once.
    pub fn take_collected(&self, number: u32) -> Option<ProfilesData> {
        let mut requests = self.lock();
        match requests.collections.remove(&number)? {
            CollectionStep::Done(data) => Some(*data),
            other => {
                requests.collections.insert(number, other);
                None
            }
        }
    }

    /// Sleeps until the deadline; false if the drain thread ends or is about to.
    pub fn sleep_while_running(&self, deadline: Instant) -> bool {
        !self.wait(deadline, |requests| requests.ended || requests.stop)
    }

    /// Adds a change at the current position of the ring.
    pub fn change_config(&self, change: ConfigChange, inbox: &Inbox) {
        let mut requests = self.lock();
        requests.changes.push(ConfigChange { position: inbox.ring().head(), ..change });
        drop(requests);
        inbox.wake();
    }

    /// Updates the state of the requests and notifies waiting threads. Called by the drain thread.
    pub fn complete(&self, update: impl FnOnce(&mut DrainRequests)) {
        let mut requests = self.lock();
        update(&mut requests);
        self.ended.store(requests.ended, Ordering::Release);
        drop(requests);
        self.done.notify_all();
    }

    /// Whether the drain thread has ended. Takes no lock.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}
