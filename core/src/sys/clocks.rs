//! The CPU clocks of every thread of the process: starting, stopping, changing, and the scan that finds new threads.
//! One set per process. Not here: the handler (`spanprof_signal`), slots and threads (`registry`), what becomes of
//! samples (the drain thread).
//!
//! A forked child begins anew: the child's hook drops the pointer to everything that a lock protects, so that no lock
//! can be found held by a thread that does not exist there.

use super::clock_types::{ClockChoice, ClockCounters, ClockError, ClockInUse, ClockSettings, CpuAccount, LiveThread};
use super::own_threads::{self, own_cpu_ns, OwnThread};
use super::registry::{Birth, Kind, Registry, Ticking};
use super::{fork, inboxes, perf, process, threads, time, timer};
use spanprof_signal::{arm, counters, guarded, handler, DropReason, Inbox, Ring, Ticker, WakeReason};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Everything behind a lock; a new one in each forked child.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread that the scan timer wakes.
    scan_thread: AtomicU32,
}

#[derive(Default)]
struct State {
    registry: Registry,
    run: Option<Run>,
    runs: u64,
    scan_timer: Option<u32>,
    scan_interval_ns: u64,
}

#[derive(Clone)]
struct Run {
    number: u64,
    choice: ClockChoice,
    ticking: Ticking,
    in_use: ClockInUse,
    process_ns: u64,
    own_ns: u64,
    sampled_ns: u64,
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

/// CPU time of the process between two looks at its threads while threads come and go; more where a look is dear.
const SCAN_INTERVAL_NS: u64 = 100_000_000;
/// As much at most while none comes or goes: with the waking, a look costs about 0.15 ms. How long a handler that the
/// host put over ours may stay.
const CALM_SCAN_INTERVAL_NS: u64 = 400_000_000;
/// A look may cost this part of the CPU time between looks.
const SCAN_SHARE: u64 = 2000;

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
        let no_memory = || error("no memory for the ring of samples", "set a smaller ring or raise the memory limit");
        let inbox = inboxes::inbox(settings.ring_bytes).ok_or_else(no_memory)?;
        if !inboxes::map_slots() {
            return Err(no_memory());
        }
        let (kind, in_use) = choose(settings.kind, settings.rate_hz, settings.signal)?;
        if !handler::install(settings.signal) {
            let message = format!("no handler can be installed for signal {}", settings.signal);
            return Err(error(&message, "choose another signal, or run without signals"));
        }
        let session = inboxes::session(settings.capture, inbox, settings.max_stack_depth).ok_or_else(no_memory)?;
        let ticking = Ticking { kind, signal: settings.signal, period_ns: period_ns(settings.rate_hz), inbox };
        state.runs += 1;
        let run = Run {
            number: state.runs,
            choice: settings.kind,
            ticking,
            in_use,
            process_ns: time::process_cpu_ns(),
            own_ns: own_cpu_ns(),
            sampled_ns: counters::sampled_cpu_ns(),
        };
        handler::set_period_ns(ticking.period_ns);
        handler::set_session(Some(session));
        state.registry.scan(Birth::BeforeStart, &ticking);
        // Where /proc is hidden the scan finds nobody.
        state.registry.open(super::thread_id(), Birth::BeforeStart, &ticking);
        let number = run.number;
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

    /// The clock that was chosen.
    pub fn in_use(&self) -> ClockInUse {
        let stopped = || ClockInUse { name: "none", reason: "stopped".into(), kernel_tick_hz: time::kernel_tick_hz() };
        self.running().map_or_else(stopped, |(_, run)| run.in_use)
    }

    /// Gives new threads a clock and takes it from ended ones, and puts our handlers back in place where the host
    /// replaced them. The drain thread calls it on [`WakeReason::ScanDue`].
    pub fn scan(&self) {
        let Some((mut state, run)) = self.running() else { return };
        let begun = time::current_thread_cpu_ns();
        if !super::fault_guard_owned() {
            super::install_fault_guard();
        }
        handler::install(run.ticking.signal);
        let changed = state.registry.scan(Birth::AfterStart, &run.ticking);
        let cost = time::current_thread_cpu_ns().saturating_sub(begun);
        state.scan_interval_ns = next_scan_interval_ns(state.scan_interval_ns, changed, cost);
        if let Some(timer) = state.scan_timer {
            arm::arm_timer(timer, time::process_cpu_ns() + state.scan_interval_ns);
        }
    }

    /// Gives the calling thread a clock now rather than at the next scan. Never waits.
    pub fn register_current_thread(&self) {
        if self.fork_generation != fork::fork_generation() {
            return;
        }
        let Ok(mut state) = self.shared.state.try_lock() else {
            // A scan runs now and may have passed this thread by: have another.
            return self.inbox.scan_due();
        };
        if let Some(run) = state.run.clone().filter(|run| run.number == self.number) {
            state.registry.open(super::thread_id(), Birth::AfterStart, &run.ticking);
        }
    }

    /// Makes the calling thread one of ours until the value is dropped there; also keeps the host's signals away.
    pub fn exempt_current_thread() -> OwnThread {
        OwnThread::current()
    }

    /// Changes the rate, and with [`ClockChoice::Auto`] the clock where the new rate asks for another. Weights stay
    /// exact over the change.
    pub fn set_rate(&self, rate_hz: u32) {
        let Some((mut state, run)) = self.running() else { return };
        let rate_hz = rate_hz.clamp(1, 10_000);
        // A forced clock was allowed at start; if the kernel changed its mind the old one stays.
        let (kind, in_use) = choose(run.choice, rate_hz, run.ticking.signal).unwrap_or((run.ticking.kind, run.in_use));
        let ticking = Ticking { kind, period_ns: period_ns(rate_hz), ..run.ticking };
        handler::set_period_ns(ticking.period_ns);
        state.registry.change(&ticking, kind != run.ticking.kind);
        if let Some(run) = &mut state.run {
            (run.ticking, run.in_use) = (ticking, in_use);
        }
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
        state.run = None;
    }

    /// What the clocks counted.
    pub fn counters(&self) -> ClockCounters {
        let mut counted = ClockCounters {
            samples: counters::samples(),
            sampled_cpu_ns: counters::sampled_cpu_ns(),
            reasons: DropReason::ALL.iter().map(|reason| (*reason, counters::by_reason(*reason))).collect(),
            foreign_forwarded: handler::forwarded(),
            stray: counters::stray(),
            handler_ns: counters::handler_ns(),
            faults: guarded::faults(),
            faults_forwarded: guarded::faults_forwarded(),
            ..ClockCounters::default()
        };
        if let Some((state, _)) = self.running() {
            counted.threads = state.registry.len() as u64;
            counted.threads_refused = state.registry.refused() as u64;
            counted.threads_on_perf = state.registry.on_perf() as u64;
            counted.scans = state.registry.scans;
            counted.rearmed = state.registry.rearmed;
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
            arm::arm_timer(timer, time::process_cpu_ns() + SCAN_INTERVAL_NS);
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

/// Threads that come and go are looked for often, each calm look doubles the time to the next.
fn next_scan_interval_ns(last_ns: u64, changed: bool, cost_ns: u64) -> u64 {
    let wanted = if changed { SCAN_INTERVAL_NS } else { (last_ns * 2).clamp(SCAN_INTERVAL_NS, CALM_SCAN_INTERVAL_NS) };
    wanted.max(cost_ns * SCAN_SHARE)
}

fn choose(choice: ClockChoice, rate_hz: u32, signal: libc::c_int) -> Result<(Kind, ClockInUse), ClockError> {
    let kernel_tick_hz = time::kernel_tick_hz();
    let timer = |reason: String| match timer::probe(signal) {
        Ok(()) => Ok((Kind::Timer, ClockInUse { name: "thread_timer", reason, kernel_tick_hz })),
        Err(refusal) => Err(ClockError {
            message: format!("the kernel gives no CPU timers: {refusal}"),
            hint: "allow timer_create in the container's seccomp profile, or run without signals".into(),
        }),
    };
    let perf = |reason: String| Ok((Kind::Perf, ClockInUse { name: "perf", reason, kernel_tick_hz }));
    let bound = format!("at most {kernel_tick_hz} stacks per CPU second, the kernel's tick; weights stay exact");
    match choice {
        ClockChoice::ThreadTimer if rate_hz > kernel_tick_hz => timer(format!("asked for; {bound}")),
        ClockChoice::ThreadTimer => timer("asked for".into()),
        ClockChoice::Perf => match perf::probe(signal) {
            Ok(()) => perf("asked for".into()),
            Err(refusal) => Err(ClockError {
                message: format!("the perf clock was asked for and the kernel refuses it: {refusal}"),
                hint: "set clock to auto, or allow CAP_PERFMON or kernel.perf_event_paranoid below 2".into(),
            }),
        },
        ClockChoice::Auto if rate_hz <= kernel_tick_hz => {
            timer(format!("{rate_hz} Hz is within the kernel's tick of {kernel_tick_hz} Hz"))
        }
        ClockChoice::Auto => match perf::probe(signal) {
            Ok(()) => perf(format!("{rate_hz} Hz is above the kernel's tick of {kernel_tick_hz} Hz")),
            Err(refusal) => timer(format!("{refusal}; {bound}")),
        },
    }
}

/// Takes the clock from a thread that became one of ours.
pub(super) fn forget_thread(thread_id: u32) {
    let present = SHARED.load(Ordering::Acquire);
    // SAFETY: only leaked boxes are ever stored there.
    if let Some(shared) = unsafe { present.as_ref() } {
        shared.lock().registry.close(thread_id);
    }
}

/// In a forked child: no clock exists here. Allocates nothing, takes no lock; closes inherited descriptors.
pub(super) fn forget_in_child() {
    handler::set_session(None);
    SHARED.store(null_mut(), Ordering::Release);
    for slot in handler::touched_slots() {
        if let (false, Ticker::Perf(descriptor)) = (slot.is_free(), slot.ticker()) {
            handler::set_slot_of_descriptor(descriptor, 0);
            perf::close(perf::Event { descriptor, id: slot.event_id() });
        }
        slot.forget();
    }
    counters::forget_after_fork();
    own_threads::forget_in_child();
    inboxes::forget_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rarer_while_no_thread_comes_or_goes_and_where_they_are_dear() {
        let milliseconds = |ns: u64| ns / 1_000_000;
        let mut interval = 0;
        let calm = [100, 200, 400, 400].map(|_| {
            interval = next_scan_interval_ns(interval, false, 50_000);
            milliseconds(interval)
        });
        assert_eq!(calm, [100, 200, 400, 400]);
        assert_eq!(milliseconds(next_scan_interval_ns(interval, true, 20_000)), 100, "threads came or went");
        assert_eq!(milliseconds(next_scan_interval_ns(interval, true, 1_000_000)), 2_000, "a thousand threads");
        assert_eq!(milliseconds(next_scan_interval_ns(2_000_000_000, false, 1_000_000)), 2_000);
        assert_eq!(milliseconds(next_scan_interval_ns(2_000_000_000, false, 20_000)), 400);
    }
}
