//! The CPU clocks of every thread of the process: starting, stopping, changing, and the scan that finds new threads.
//! One set per process. Not here: the handler (`spanprof_signal`), slots and threads (`registry`), what becomes of
//! samples (the drain thread).
//!
//! A forked child begins anew: the child's hook drops the pointer to everything that a lock protects, so that no lock
//! can be found held by a thread that does not exist there.

use super::clock_choice::choose;
use super::clock_facts::{ClockFacts, RunFacts};
use super::clock_types::{ClockCounters, ClockError, ClockInUse, ClockSettings, CpuAccount, LiveThread};
use super::own_threads::{self, own_cpu_ns, OwnThread};
use super::registry::{Birth, Kind, Registry, Ticking};
use super::scan_schedule::{ScanSchedule, LOOK_INTERVAL_NS};
use super::{fork, inboxes, perf, process, threads, time, timer};
use spanprof_signal::signal_claim::{self, ClaimStatus};
use spanprof_signal::{arm, counters, guarded, handler, DropReason, Inbox, Ring, Ticker, WakeReason};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Everything behind a lock; a new one in each forked child.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread that the scan timer wakes.
    scan_thread: AtomicU32,
    /// A scan is wanted whatever the next look finds.
    scan_wanted: AtomicBool,
    /// For who may not wait for the state.
    facts: ClockFacts,
}

#[derive(Default)]
struct State {
    registry: Registry,
    run: Option<Run>,
    runs: u64,
    scan_timer: Option<u32>,
    schedule: ScanSchedule,
}

#[derive(Clone)]
struct Run {
    number: u64,
    ticking: Ticking,
    in_use: ClockInUse,
    process_ns: u64,
    own_ns: u64,
    sampled_ns: u64,
}

impl Run {
    fn facts(&self) -> RunFacts {
        let (process_ns, own_ns) = (self.process_ns, self.own_ns);
        RunFacts { number: self.number, in_use: self.in_use.clone(), process_ns, own_ns }
    }
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(null_mut());

fn shared() -> &'static Shared {
    let present = SHARED.load(Ordering::Acquire);
    if present.is_null() {
        let made = Box::into_raw(Box::<Shared>::default());
        if let Err(first) = SHARED.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: made above and published to nobody.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: only leaked boxes are ever stored there.
            return unsafe { &*first };
        }
        // SAFETY: leaked just now, for ever.
        return unsafe { &*made };
    }
    // SAFETY: only leaked boxes are ever stored there.
    unsafe { &*present }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The clocks, running. Dropping it stops them.
pub struct Clocks {
    shared: &'static Shared,
    inbox: &'static Inbox,
    number: u64,
    fork_generation: u32,
}

impl Clocks {
    /// Arms a clock in every thread of the process except our own.
    pub fn start(settings: ClockSettings) -> Result<Self, ClockError> {
        let error = |message: &str, hint: &str| ClockError { message: message.into(), hint: hint.into() };
        if !(1..=10_000).contains(&settings.rate_hz) {
            return Err(error("the sample rate is outside 1 to 10000 Hz", "set sample_rate to 100"));
        }
        if !process::pin_library() {
            return Err(error("the library cannot be kept loaded", "load it from a file with a stable path"));
        }
        fork::install_fork_hook();
        super::install_fault_guard();
        let shared = shared();
        let mut state = shared.lock();
        if state.run.is_some() {
            return Err(error("the clocks of this process already run", "stop the other profiler first"));
        }
        let no_memory = || error("no memory for the ring of samples", "raise the memory limit of the process");
        let inbox = inboxes::inbox(settings.ring_bytes).ok_or_else(no_memory)?;
        if !inboxes::map_slots() {
            return Err(no_memory());
        }
        let Some(signal) = signal_claim::claim(settings.fallback_signal) else {
            let message = format!("no handler can be installed for signal {}", settings.fallback_signal);
            return Err(error(&message, "set signals=false and wall=true for wall-clock samples without signals"));
        };
        let (kind, in_use) = choose(settings.kind, settings.rate_hz, signal)?;
        if kind == Kind::Trap && !handler::install(libc::SIGTRAP) {
            return Err(error("no handler can be installed for SIGTRAP", "set clock=auto"));
        }
        let session = inboxes::session(settings.capture, inbox, settings.max_stack_depth).ok_or_else(no_memory)?;
        let ticking = Ticking { kind, signal, period_ns: period_ns(settings.rate_hz), inbox };
        state.runs += 1;
        let run = Run {
            number: state.runs,
            ticking,
            in_use,
            process_ns: time::process_cpu_ns(),
            own_ns: own_cpu_ns(),
            sampled_ns: counters::sampled_cpu_ns(),
        };
        handler::set_period_ns(ticking.period_ns, period_ns(run.in_use.kernel_tick_hz));
        handler::set_session(Some(session));
        state.registry.scan(Birth::BeforeStart, &ticking);
        // Where /proc is hidden the scan finds nobody.
        state.registry.open(super::thread_id(), Birth::BeforeStart, &ticking);
        let number = run.number;
        state.schedule = ScanSchedule::default();
        shared.facts.tell_threads(&state.registry);
        shared.facts.tell_run(Some(run.facts()));
        state.run = Some(run);
        drop(state);
        // The drain thread may sleep without a limit; it comes by once to have the scan timer wake it.
        inbox.wake();
        Ok(Self { shared, inbox, number, fork_generation: fork::fork_generation() })
    }

    /// The state, if this run is the one that runs, in the process that started it.
    fn running(&self) -> Option<(MutexGuard<'static, State>, Run)> {
        if self.fork_generation != fork::fork_generation() {
            return None;
        }
        let state = self.shared.lock();
        let run = state.run.clone().filter(|run| run.number == self.number)?;
        Some((state, run))
    }

    /// What is told of this run; `None` when it is not the one that runs here. Takes no lock.
    fn facts(&self) -> Option<Arc<RunFacts>> {
        self.shared.facts.run(self.number).filter(|_| self.fork_generation == fork::fork_generation())
    }

    /// The clock that was chosen. Takes no lock.
    pub fn in_use(&self) -> ClockInUse {
        let kernel_tick_hz = time::kernel_tick_hz();
        let stopped = || ClockInUse { name: "none", reason: "stopped".into(), kernel_tick_hz, signal: 0 };
        self.facts().map_or_else(stopped, |run| run.in_use.clone())
    }

    /// CPU time since start: of our own threads, and of the whole process. Takes no lock.
    pub fn own_and_process_ns(&self) -> (u64, u64) {
        self.facts().map_or((0, 0), |run| run.own_and_process_ns())
    }

    /// Looks whether a scan is due, and makes it; whether it was. The drain thread calls it on [`WakeReason::ScanDue`].
    pub fn scan_if_due(&self) -> bool {
        let Some((mut state, _)) = self.running() else { return false };
        let (threads, now_ns) = (threads::count(), time::process_cpu_ns());
        let asked = self.shared.scan_wanted.swap(false, Ordering::AcqRel);
        let due = asked || state.schedule.wants_scan(threads, now_ns);
        if due {
            scan(&mut state, threads);
        }
        self.shared.facts.tell_threads(&state.registry);
        if let Some(timer) = state.scan_timer {
            arm::arm_timer(timer, now_ns + state.schedule.next_look_ns(), 0);
        }
        due
    }

    /// Gives new threads a clock and takes it from ended ones, and puts our handlers back in place where the host
    /// replaced them.
    #[cfg(test)]
    pub fn scan(&self) {
        if let Some((mut state, _)) = self.running() {
            scan(&mut state, threads::count());
            self.shared.facts.tell_threads(&state.registry);
        }
    }

    /// A scan that was given this list of threads.
    #[cfg(test)]
    pub fn scan_list(&self, ids: &[u32]) {
        if let Some((mut state, run)) = self.running() {
            state.registry.follow(ids, Birth::AfterStart, &run.ticking);
        }
    }

    /// Gives the calling thread a clock now rather than at the next scan. Never waits.
    pub fn register_current_thread(&self) {
        if self.fork_generation != fork::fork_generation() {
            return;
        }
        let Ok(mut state) = self.shared.state.try_lock() else {
            // A scan runs now and may have passed this thread by: have another.
            self.shared.scan_wanted.store(true, Ordering::Release);
            return self.inbox.scan_due();
        };
        if let Some(run) = state.run.clone().filter(|run| run.number == self.number) {
            state.registry.open(super::thread_id(), Birth::AfterStart, &run.ticking);
            self.shared.facts.tell_threads(&state.registry);
        }
    }

    /// Takes the clock from the calling thread until [`Clocks::resume_current_thread`], for `exec`: a trap that is pending
    /// then ends the new program. One that is pending now is handled before this returns.
    pub fn suspend_current_thread(&self) {
        let Some((mut state, _)) = self.running() else { return };
        state.registry.suspend(super::thread_id());
    }

    /// Gives the calling thread a clock again; samples go on where they stopped.
    pub fn resume_current_thread(&self) {
        let Some((mut state, run)) = self.running() else { return };
        state.registry.resume(super::thread_id(), &run.ticking);
    }

    /// Makes the calling thread one of ours until the value is dropped there; also keeps the host's signals away.
    pub fn exempt_current_thread() -> OwnThread {
        OwnThread::current()
    }

    /// Changes the rate. Weights stay exact over the change.
    pub fn set_rate(&self, rate_hz: u32) {
        let Some((mut state, run)) = self.running() else { return };
        change_clock(&mut state, Ticking { period_ns: period_ns(rate_hz.clamp(1, 10_000)), ..run.ticking });
        self.shared.facts.tell_threads(&state.registry);
    }

    /// Checks, without a signal, that the handlers in force are ours, repairs or replaces what is not, and scans when the
    /// number of threads changed. Called by the drain thread at least once per upload interval: while another handler takes
    /// the signal, neither samples nor the scan timer arrive.
    pub fn check_handlers(&self) -> ClaimStatus {
        let Some((mut state, run)) = self.running() else { return ClaimStatus::InPlace };
        if run.ticking.kind == Kind::Trap {
            handler::install(libc::SIGTRAP);
        }
        let outcome = signal_claim::check();
        if let ClaimStatus::Moved(signal) = outcome {
            change_clock(&mut state, Ticking { signal, ..run.ticking });
            // The drain thread makes a new one, with the new signal, before it sleeps.
            if let Some(timer) = state.scan_timer.take() {
                timer::delete(timer);
            }
            self.shared.scan_thread.store(0, Ordering::Release);
        }
        let threads = threads::count();
        if outcome != ClaimStatus::InPlace || state.schedule.has_changed(threads) {
            scan(&mut state, threads);
        }
        self.shared.facts.tell_threads(&state.registry);
        outcome
    }

    /// Stops every clock. Samples stay in the ring. The handler stays installed and swallows what still comes.
    pub fn stop(&self) {
        let Some((mut state, _)) = self.running() else { return };
        handler::set_session(None);
        state.registry.close_all();
        if let Some(timer) = state.scan_timer.take() {
            timer::delete(timer);
        }
        self.shared.scan_thread.store(0, Ordering::Release);
        self.shared.facts.tell_run(None);
        state.run = None;
    }

    /// What the clocks counted. Takes no lock.
    pub fn counters(&self) -> ClockCounters {
        let mut counted = ClockCounters {
            samples: counters::samples(),
            sampled_cpu_ns: counters::sampled_cpu_ns(),
            reasons: DropReason::ALL.iter().map(|reason| (*reason, counters::by_reason(*reason))).collect(),
            foreign_forwarded: handler::forwarded(),
            stray: counters::stray(),
            handler_ns: counters::handler_ns(),
            walk_ns: counters::walk_ns(),
            delivery_ns: counters::delivery_ns(),
            faults: guarded::faults(),
            faults_forwarded: guarded::faults_forwarded(),
            ..ClockCounters::default()
        };
        if self.facts().is_some() {
            self.shared.facts.count_threads(&mut counted);
        }
        counted
    }

    /// Every thread that has a clock now.
    pub fn live_threads(&self) -> Vec<LiveThread> {
        let Some((state, _)) = self.running() else { return Vec::new() };
        let living = state.registry.threads().filter_map(|(thread_id, slot)| {
            let accounted = slot.accounted_cpu_ns();
            let cpu_ns = time::thread_cpu_ns(thread_id)?;
            let unaccounted_ns = cpu_ns.saturating_sub(accounted) + slot.lost_cpu_ns();
            Some(LiveThread { thread_id, name: String::new(), cpu_ns, unaccounted_ns })
        });
        let mut living: Vec<LiveThread> = living.collect();
        drop(state);
        for thread in &mut living {
            thread.name = threads::thread_name(thread.thread_id).unwrap_or_default();
        }
        living
    }

    /// Where the CPU time since start went.
    pub fn account(&self) -> CpuAccount {
        let Some((state, run)) = self.running() else { return CpuAccount::default() };
        // The whole is read before its parts: the parts may be a little too large, never the remainder.
        let process_ns = time::process_cpu_ns().saturating_sub(run.process_ns);
        let waiting = state.registry.threads().map(|(thread_id, slot)| {
            let accounted = slot.accounted_cpu_ns();
            let running = time::thread_cpu_ns(thread_id).map_or(0, |cpu_ns| cpu_ns.saturating_sub(accounted));
            running + slot.lost_cpu_ns()
        });
        let waiting_ns = waiting.sum();
        let sampled_ns = counters::sampled_cpu_ns().saturating_sub(run.sampled_ns);
        CpuAccount { process_ns, own_ns: own_cpu_ns().saturating_sub(run.own_ns), sampled_ns, waiting_ns }
    }

    /// Waits for something to do, on the drain thread. Without a time limit the first sample wakes; with one, samples
    /// wake only when a quarter of the ring is used: the limit is when the caller wants them anyway.
    pub fn wait_for_samples(&self, timeout: Option<Duration>) -> WakeReason {
        self.wake_current_thread_for_scans();
        self.inbox.wait(timeout.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Has the scan timer wake the calling thread out of its wait on the inbox. The timer runs on the process's CPU
    /// clock, so nothing wakes while the process is idle. Cheap when it is so already.
    pub fn wake_current_thread_for_scans(&self) {
        let me = super::thread_id();
        if self.shared.scan_thread.load(Ordering::Acquire) == me {
            return;
        }
        let Some((mut state, run)) = self.running() else { return };
        if let Some(old) = state.scan_timer.take() {
            timer::delete(old);
        }
        threads::unblock_signal(run.ticking.signal);
        if let Ok(timer) = timer::create_for_process(me, run.ticking.signal, handler::signal_value(0, 0)) {
            arm::arm_timer(timer, time::process_cpu_ns() + LOOK_INTERVAL_NS, 0);
            state.scan_timer = Some(timer);
            self.shared.scan_thread.store(me, Ordering::Release);
        }
    }

    /// Brings the drain thread back from its wait.
    pub fn wake(&self) {
        self.inbox.wake();
    }

    /// The ring the samples go to.
    pub fn ring(&self) -> &'static Ring {
        self.inbox.ring()
    }

    /// The ring with its bell: the door for samples that a runtime submits.
    pub fn inbox(&self) -> &'static Inbox {
        self.inbox
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        self.stop();
    }
}

fn period_ns(rate_hz: u32) -> u64 {
    1_000_000_000 / rate_hz as u64
}

/// Puts every thread on a new rate or signal.
fn change_clock(state: &mut State, ticking: Ticking) {
    let Some(run) = &mut state.run else { return };
    let has_new_signal = ticking.signal != run.ticking.signal;
    handler::set_period_ns(ticking.period_ns, period_ns(run.in_use.kernel_tick_hz));
    (run.ticking, run.in_use.signal) = (ticking, ticking.signal);
    shared().facts.tell_run(Some(run.facts()));
    state.registry.change(&ticking, has_new_signal);
}

/// A scan, after a look that found so many threads.
fn scan(state: &mut State, threads: Option<u64>) {
    let Some(ticking) = state.run.as_ref().map(|run| run.ticking) else { return };
    let begun = time::current_thread_cpu_ns();
    if !super::fault_guard_owned() {
        super::install_fault_guard();
    }
    if ticking.kind == Kind::Trap {
        handler::install(libc::SIGTRAP);
    }
    state.registry.scan(Birth::AfterStart, &ticking);
    let cost_ns = time::current_thread_cpu_ns().saturating_sub(begun);
    state.schedule.scanned(threads, time::process_cpu_ns(), cost_ns);
}

/// Runs `body` while the lock is held.
#[cfg(test)]
pub(super) fn with_lock_held<T>(body: impl FnOnce() -> T) -> T {
    let _held = shared().lock();
    body()
}

/// Takes the clock from a thread that became one of ours.
pub(super) fn forget_thread(thread_id: u32) {
    let present = SHARED.load(Ordering::Acquire);
    // SAFETY: only leaked boxes are ever stored there.
    if let Some(shared) = unsafe { present.as_ref() } {
        let mut state = shared.lock();
        state.registry.close(thread_id);
        shared.facts.tell_threads(&state.registry);
    }
}

/// In a forked child: no clock exists here. Allocates nothing, takes no lock; closes inherited descriptors.
pub(super) fn forget_in_child() {
    handler::set_session(None);
    SHARED.store(null_mut(), Ordering::Release);
    for slot in handler::touched_slots() {
        if let (false, Ticker::Perf(descriptor)) = (slot.is_free(), slot.ticker()) {
            handler::set_slot_of_descriptor(descriptor, 0);
            perf::close_descriptor(perf::Event { descriptor, id: slot.event_id(), ring: 0 });
        }
        slot.forget();
    }
    counters::reset_after_fork();
    own_threads::forget_in_child();
    inboxes::forget_in_child();
}
