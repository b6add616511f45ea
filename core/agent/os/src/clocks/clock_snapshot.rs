//! A snapshot of the clocks' state that is read without their lock. A host thread that reads statistics thus never
//! waits for the drain thread's scan of all threads. Written under the lock. Not here: the clocks (`clocks`).

use super::clock_types::{ClockCounters, ClockInUse};
use super::registry::Registry;
use crate::threads::own_threads::own_cpu_ns;
use crate::time::process_cpu_ns;
use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// The snapshot: the current run, and counters of its threads.
#[derive(Default)]
pub(crate) struct ClockSnapshot {
    run: ArcSwapOption<RunSnapshot>,
    threads: AtomicU64,
    threads_refused: AtomicU64,
    threads_on_perf: AtomicU64,
    scans: AtomicU64,
    rearmed: AtomicU64,
}

/// Data of the current run.
pub(crate) struct RunSnapshot {
    pub number: u64,
    pub in_use: ClockInUse,
    /// CPU time at its start: of the process, and of our own threads.
    pub process_ns: u64,
    pub own_ns: u64,
}

impl RunSnapshot {
    /// CPU time since the start of the run.
    pub fn own_and_process_ns(&self) -> (u64, u64) {
        let (own_ns, process_ns) = (own_cpu_ns(), process_cpu_ns());
        (own_ns.saturating_sub(self.own_ns), process_ns.saturating_sub(self.process_ns))
    }
}

impl ClockSnapshot {
    /// Called when a run begins, changes its clock, or ends.
    pub fn publish_run(&self, run: Option<RunSnapshot>) {
        self.run.store(run.map(Arc::new));
    }

    /// Called after the registry opened, closed or scanned threads.
    pub fn publish_threads(&self, registry: &Registry) {
        self.threads.store(registry.len() as u64, Ordering::Relaxed);
        self.threads_refused.store(registry.refused() as u64, Ordering::Relaxed);
        self.threads_on_perf.store(registry.on_perf() as u64, Ordering::Relaxed);
        self.scans.store(registry.scans, Ordering::Relaxed);
        self.rearmed.store(registry.rearmed, Ordering::Relaxed);
    }

    /// The run with this number, if it is the current one.
    pub fn run(&self, number: u64) -> Option<Arc<RunSnapshot>> {
        self.run.load_full().filter(|run| run.number == number)
    }

    /// Fills in the counters of threads.
    pub fn fill_thread_counters(&self, counted: &mut ClockCounters) {
        counted.threads = self.threads.load(Ordering::Relaxed);
        counted.threads_refused = self.threads_refused.load(Ordering::Relaxed);
        counted.threads_on_perf = self.threads_on_perf.load(Ordering::Relaxed);
        counted.scans = self.scans.load(Ordering::Relaxed);
        counted.rearmed = self.rearmed.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock_state::with_lock_held;
    use super::super::live_tests::{settings, start};
    use crate::clocks::clock_types::ClockChoice;
    use crate::testing::one_at_a_time;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn reading_the_snapshot_never_waits_for_the_clocks_lock() {
        let _turn = one_at_a_time();
        let clocks = start(settings(ClockChoice::ThreadTimer, 100));
        let (sender, receiver) = channel();
        let received = std::thread::scope(|scope| {
            with_lock_held(|| {
                let clocks = &clocks;
                scope.spawn(move || {
                    let snapshot = (clocks.in_use().name, clocks.counters().threads, clocks.own_and_process_ns().1);
                    // The receiver may be gone if the test failed.
                    let _ = sender.send(snapshot);
                });
                receiver.recv_timeout(Duration::from_secs(10))
            })
        });
        let (name, threads, process_ns) = received.expect("a snapshot while the lock is held");
        assert_eq!(name, "thread_timer");
        assert!(threads > 0 && process_ns > 0);
        clocks.stop();
        assert_eq!((clocks.in_use().name, clocks.counters().threads), ("none", 0));
        assert_eq!(clocks.own_and_process_ns(), (0, 0));
    }
}
