//! The CPU clocks of all threads of the process: start, stop, reconfiguration, and the scan for new threads. One set
//! per process. Not here: the handler (`spanprof_signal`), slots and threads (`registry`), the processing of samples
//! (the drain thread).

use super::clock_choice::choose;
use super::clock_snapshot::RunSnapshot;
use super::clock_state::{self, shared, ClockRun, ClockState, SharedClocks};
use super::clock_types::{ClockCounters, ClockError, ClockInUse, ClockSettings, CpuAccount, LiveThread};
use super::registry::{AccountingStart, ClockSetup};
use super::scan_schedule::{ScanSchedule, POLL_INTERVAL_NS};
use crate::memory::{fault_guard, inboxes};
use crate::symbols::loaded_object::pin_library;
use crate::threads::listing;
use crate::threads::own_threads::{own_cpu_ns, OwnThread};
use crate::time;
use crate::timer;
use spanprof_signal::fork_generation;
use spanprof_signal::signal_claim::{self, ClaimStatus};
use spanprof_signal::{arm, counters, guarded, handler, slot_clock, slot_table, DropReason, Inbox, Ring};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// The running clocks. Stopped on drop.
pub struct Clocks {
    shared: &'static SharedClocks,
    inbox: &'static Inbox,
    number: u64,
    fork_generation: u32,
}

impl Clocks {
    /// Arms a clock in every thread of the process except our own. A forked child has none, if the fork hook is installed.
    ///
    /// # Errors
    /// The reason: an invalid rate, clocks that already run, or a refused handler, clock or mapping.
    pub fn start(settings: ClockSettings) -> Result<Self, ClockError> {
        let error = |message: &str, hint: &str| ClockError { message: message.into(), hint: hint.into() };
        if !(1..=10_000).contains(&settings.rate_hz) {
            return Err(error("the sample rate is outside 1 to 10000 Hz", "set sample_rate to 100"));
        }
        if !pin_library() {
            return Err(error("the library cannot be kept loaded", "load it from a file with a stable path"));
        }
        fault_guard::install_fault_guard();
        let shared = shared();
        let mut state = shared.lock();
        if state.run.is_some() {
            return Err(error("the clocks of this process already run", "stop the other profiler first"));
        }
        let no_memory = || error("no memory for the profiler", "raise the memory limit of the process");
        let inbox = inboxes::inbox(settings.ring_bytes).ok_or_else(no_memory)?;
        if !inboxes::map_slots() {
            return Err(no_memory());
        }
        let Some(signal) = signal_claim::claim(settings.fallback_signal) else {
            let message = format!("no handler can be installed for signal {}", settings.fallback_signal);
            return Err(error(&message, "set signals=false and wall=true for wall-clock samples without signals"));
        };
        let (kind, in_use) = choose(settings.kind, settings.rate_hz, signal)?;
        let session = inboxes::session(settings.capture, inbox, settings.max_stack_depth).ok_or_else(no_memory)?;
        let setup = ClockSetup { kind, signal, period_ns: period_ns(settings.rate_hz), inbox };
        state.runs += 1;
        let run = ClockRun {
            number: state.runs,
            setup,
            in_use,
            process_ns: time::process_cpu_ns(),
            own_ns: own_cpu_ns(),
            sampled_ns: counters::sampled_cpu_ns(),
        };
        handler::set_period_ns(setup.period_ns, period_ns(run.in_use.kernel_tick_hz));
        handler::set_session(Some(session));
        state.registry.scan(AccountingStart::BeforeStart, &setup);
        // Where /proc is hidden the scan finds no thread.
        state.registry.open(listing::thread_id(), AccountingStart::BeforeStart, &setup);
        let number = run.number;
        state.schedule = ScanSchedule::default();
        shared.snapshot.publish_threads(&state.registry);
        shared.snapshot.publish_run(Some(run.snapshot()));
        state.run = Some(run);
        drop(state);
        // The drain thread may sleep without a deadline: wake it once, so that it creates the scan timer.
        inbox.wake();
        Ok(Self { shared, inbox, number, fork_generation: fork_generation() })
    }

    /// The state, if this run is the current one, in the process that started it.
    fn running(&self) -> Option<(MutexGuard<'static, ClockState>, ClockRun)> {
        if self.fork_generation != fork_generation() {
            return None;
        }
        let state = self.shared.lock();
        let run = state.run.clone().filter(|run| run.number == self.number)?;
        Some((state, run))
    }

    /// The snapshot of this run; `None` if it is not the current run of this process. Takes no lock.
    fn snapshot(&self) -> Option<Arc<RunSnapshot>> {
        self.shared.snapshot.run(self.number).filter(|_| self.fork_generation == fork_generation())
    }

    /// The clock that was chosen. Takes no lock.
    pub fn in_use(&self) -> ClockInUse {
        let kernel_tick_hz = time::kernel_tick_hz();
        let stopped = || ClockInUse { name: "none", reason: "stopped".into(), kernel_tick_hz, signal: 0 };
        self.snapshot().map_or_else(stopped, |run| run.in_use.clone())
    }

    /// CPU time since start: of our own threads, and of the whole process. Takes no lock.
    pub fn own_and_process_ns(&self) -> (u64, u64) {
        self.snapshot().map_or((0, 0), |run| run.own_and_process_ns())
    }

    /// Scans if a scan is due; returns whether it was. The drain thread calls this on [`WakeReason::ScanDue`](crate::WakeReason::ScanDue).
    pub fn scan_if_due(&self) -> bool {
        let Some((mut state, _)) = self.running() else { return false };
        let (threads, now_ns) = (listing::thread_count(), time::process_cpu_ns());
        let requested = self.shared.scan_requested.swap(false, Ordering::AcqRel);
        let due = requested || slot_clock::has_lost_clock() || state.schedule.is_scan_due(threads, now_ns);
        if due {
            scan(&mut state, threads);
        }
        self.shared.snapshot.publish_threads(&state.registry);
        if let Some(timer) = state.scan_timer {
            arm::arm_timer(timer, now_ns + state.schedule.next_poll_ns());
        }
        due
    }

    /// Opens clocks for new threads, closes those of ended ones, and reinstalls our handlers where the host replaced
    /// them.
    #[cfg(test)]
    pub fn scan(&self) {
        if let Some((mut state, _)) = self.running() {
            scan(&mut state, listing::thread_count());
            self.shared.snapshot.publish_threads(&state.registry);
        }
    }

    /// A scan with the given list of threads.
    #[cfg(test)]
    pub fn scan_list(&self, ids: &[u32]) {
        if let Some((mut state, run)) = self.running() {
            state.registry.apply_list(ids, AccountingStart::AfterStart, &run.setup);
        }
    }

    /// Opens a clock for the calling thread now instead of at the next scan. Never waits.
    pub fn register_current_thread(&self) {
        if self.fork_generation != fork_generation() {
            return;
        }
        let Ok(mut state) = self.shared.state.try_lock() else {
            // A concurrent scan may have missed this thread: request another.
            self.shared.scan_requested.store(true, Ordering::Release);
            return self.inbox.scan_due();
        };
        if let Some(run) = state.run.clone().filter(|run| run.number == self.number) {
            state.registry.open_new(listing::thread_id(), &run.setup);
            self.shared.snapshot.publish_threads(&state.registry);
        }
    }

    /// Marks the calling thread as one of ours until the value is dropped there, and blocks the host's signals in it.
    pub fn exempt_current_thread() -> OwnThread {
        let guard = OwnThread::current();
        clock_state::forget_thread(listing::thread_id());
        guard
    }

    /// Changes the rate. Weights stay exact across the change.
    pub fn set_rate(&self, rate_hz: u32) {
        let Some((mut state, run)) = self.running() else { return };
        change_clock(&mut state, ClockSetup { period_ns: period_ns(rate_hz.clamp(1, 10_000)), ..run.setup });
        self.shared.snapshot.publish_threads(&state.registry);
    }

    /// Checks, without a signal, that our handlers are installed, and reinstalls or moves them. Scans if the number
    /// of threads changed. The drain thread calls this at least once per upload interval: while another handler takes
    /// the signal, neither samples nor the scan timer arrive.
    pub fn check_handlers(&self) -> ClaimStatus {
        let Some((mut state, run)) = self.running() else { return ClaimStatus::Installed };
        let outcome = signal_claim::check();
        if let ClaimStatus::Moved(signal) = outcome {
            change_clock(&mut state, ClockSetup { signal, ..run.setup });
            // The drain thread creates a new timer, with the new signal, before it sleeps.
            if let Some(timer) = state.scan_timer.take() {
                arm::delete_timer(timer);
            }
            self.shared.scan_thread.store(0, Ordering::Release);
        }
        let threads = listing::thread_count();
        if outcome != ClaimStatus::Installed || state.schedule.has_changed(threads) {
            scan(&mut state, threads);
        }
        self.shared.snapshot.publish_threads(&state.registry);
        outcome
    }

    /// Stops every clock. Samples stay in the ring. The handler stays installed and swallows late signals.
    pub fn stop(&self) {
        self.stop_with_account();
    }

    /// As [`Clocks::stop`]; returns the account at the stop. No sample will account for its `waiting_ns`, which is 0: that time is
    /// unattributed.
    pub fn stop_with_account(&self) -> CpuAccount {
        let Some((mut state, run)) = self.running() else { return CpuAccount::default() };
        handler::set_session(None);
        let account = CpuAccount { waiting_ns: 0, ..account_of(&state, &run) };
        state.registry.close_all();
        if let Some(timer) = state.scan_timer.take() {
            arm::delete_timer(timer);
        }
        self.shared.scan_thread.store(0, Ordering::Release);
        self.shared.snapshot.publish_run(None);
        state.run = None;
        account
    }

    /// Number of this run of the clocks; unique in the process.
    pub fn run_number(&self) -> u64 {
        self.number
    }

    /// The counters of the clocks. Takes no lock.
    pub fn counters(&self) -> ClockCounters {
        let mut counted = ClockCounters {
            samples: counters::samples(),
            sampled_cpu_ns: counters::sampled_cpu_ns(),
            reasons: DropReason::ALL.iter().map(|reason| (*reason, counters::by_reason(*reason))).collect(),
            perf_ticks: counters::ticks(true),
            timer_ticks: counters::ticks(false),
            foreign_forwarded: handler::forwarded(),
            stray: counters::stray(),
            handler_ns: counters::handler_ns(),
            walk_ns: counters::walk_ns(),
            delivery_ns: counters::delivery_ns(),
            faults: guarded::faults(),
            faults_forwarded: guarded::faults_forwarded(),
            ..ClockCounters::default()
        };
        if self.snapshot().is_some() {
            self.shared.snapshot.fill_thread_counters(&mut counted);
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
            thread.name = listing::thread_name(thread.thread_id).unwrap_or_default();
        }
        living
    }

    /// Accounts for the CPU time since start.
    pub fn account(&self) -> CpuAccount {
        self.running().map(|(state, run)| account_of(&state, &run)).unwrap_or_default()
    }

    /// Waits for a wake reason, on the drain thread. Without a timeout the first sample wakes it. With a timeout,
    /// samples wake it only when a quarter of the ring is used, since the caller collects them at the timeout anyway.
    #[cfg(test)]
    pub fn wait_for_samples(&self, timeout: Option<std::time::Duration>) -> spanprof_signal::WakeReason {
        self.wake_current_thread_for_scans();
        self.inbox.wait(timeout.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Lets the scan timer wake the calling thread from its wait on the inbox. The timer runs on the process's CPU
    /// clock, so an idle process has no wakeups. Cheap if already done.
    pub fn wake_current_thread_for_scans(&self) {
        let me = listing::thread_id();
        if self.shared.scan_thread.load(Ordering::Acquire) == me {
            return;
        }
        let Some((mut state, run)) = self.running() else { return };
        if let Some(old) = state.scan_timer.take() {
            arm::delete_timer(old);
        }
        listing::unblock_signal(run.setup.signal);
        if let Ok(timer) = timer::create_for_process(me, run.setup.signal, slot_table::signal_value(0, 0)) {
            arm::arm_timer(timer, time::process_cpu_ns() + POLL_INTERVAL_NS);
            state.scan_timer = Some(timer);
            self.shared.scan_thread.store(me, Ordering::Release);
        }
    }

    /// Wakes the drain thread from its wait.
    pub fn wake(&self) {
        self.inbox.wake();
    }

    /// The ring of the samples.
    pub fn ring(&self) -> &'static Ring {
        self.inbox.ring()
    }

    /// The inbox: the ring with its wakeup, for samples that a runtime submits.
    pub fn inbox(&self) -> &'static Inbox {
        self.inbox
    }
}

fn account_of(state: &ClockState, run: &ClockRun) -> CpuAccount {
    // The total is read before its parts: the parts may be slightly too large, the remainder never.
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

impl Drop for Clocks {
    fn drop(&mut self) {
        self.stop();
    }
}

fn period_ns(rate_hz: u32) -> u64 {
    1_000_000_000 / rate_hz as u64
}

/// Applies a new rate or signal to every thread.
fn change_clock(state: &mut ClockState, setup: ClockSetup) {
    let Some(run) = &mut state.run else { return };
    let has_new_signal = setup.signal != run.setup.signal;
    handler::set_period_ns(setup.period_ns, period_ns(run.in_use.kernel_tick_hz));
    (run.setup, run.in_use.signal) = (setup, setup.signal);
    shared().snapshot.publish_run(Some(run.snapshot()));
    state.registry.change(&setup, has_new_signal);
}

/// Scans, with the thread count read before.
fn scan(state: &mut ClockState, threads: Option<u64>) {
    let Some(setup) = state.run.as_ref().map(|run| run.setup) else { return };
    let begun = time::current_thread_cpu_ns();
    fault_guard::restore_fault_guard();
    state.registry.scan(AccountingStart::AfterStart, &setup);
    let cost_ns = time::current_thread_cpu_ns().saturating_sub(begun);
    state.schedule.scanned(threads, time::process_cpu_ns(), cost_ns);
}
