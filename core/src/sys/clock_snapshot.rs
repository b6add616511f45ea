//! What is told of the clocks without their lock, so that a host thread that asks for statistics never waits for the drain
//! thread's scan of all threads. Written by whoever holds the lock, before it is given back. Not here: the clocks (`clocks`).

use super::clock_types::{ClockCounters, ClockInUse};
use super::own_threads::own_cpu_ns;
use super::registry::Registry;
use super::time::process_cpu_ns;
use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// See the head of the module.
#[derive(Default)]
pub(super) struct ClockFacts {
    run: ArcSwapOption<RunFacts>,
    threads: AtomicU64,
    threads_refused: AtomicU64,
    threads_on_perf: AtomicU64,
    scans: AtomicU64,
    rearmed: AtomicU64,
}

/// Of the run whose clocks tick.
pub(super) struct RunFacts {
    pub number: u64,
    pub in_use: ClockInUse,
    /// CPU time when it began: of the process, and of our own threads.
    pub process_ns: u64,
    pub own_ns: u64,
}

impl RunFacts {
    /// CPU time since then.
    pub fn own_and_process_ns(&self) -> (u64, u64) {
        let (own_ns, process_ns) = (own_cpu_ns(), process_cpu_ns());
        (own_ns.saturating_sub(self.own_ns), process_ns.saturating_sub(self.process_ns))
    }
}

impl ClockFacts {
    /// A run began, has another clock, or ended.
    pub fn tell_run(&self, run: Option<RunFacts>) {
        self.run.store(run.map(Arc::new));
    }

    /// Threads came, went, or were looked at.
    pub fn tell_threads(&self, registry: &Registry) {
        self.threads.store(registry.len() as u64, Ordering::Relaxed);
        self.threads_refused.store(registry.refused() as u64, Ordering::Relaxed);
        self.threads_on_perf.store(registry.on_perf() as u64, Ordering::Relaxed);
        self.scans.store(registry.scans, Ordering::Relaxed);
        self.rearmed.store(registry.rearmed, Ordering::Relaxed);
    }

    /// The run with this number, while it is the one that runs.
    pub fn run(&self, number: u64) -> Option<Arc<RunFacts>> {
        self.run.load_full().filter(|run| run.number == number)
    }

    /// Fills in what is counted of threads.
    pub fn count_threads(&self, counted: &mut ClockCounters) {
        counted.threads = self.threads.load(Ordering::Relaxed);
        counted.threads_refused = self.threads_refused.load(Ordering::Relaxed);
        counted.threads_on_perf = self.threads_on_perf.load(Ordering::Relaxed);
        counted.scans = self.scans.load(Ordering::Relaxed);
        counted.rearmed = self.rearmed.load(Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::clocks::with_lock_held;
    use super::super::live_tests::{one_at_a_time, settings, start};
    use super::super::ClockChoice;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn what_is_told_of_the_clocks_waits_for_nobody_who_holds_their_lock() {
        let _turn = one_at_a_time();
        let clocks = start(settings(ClockChoice::ThreadTimer, 100));
        let (told, heard) = channel();
        let heard = std::thread::scope(|scope| {
            with_lock_held(|| {
                let clocks = &clocks;
                scope.spawn(move || {
                    let facts = (clocks.in_use().name, clocks.counters().threads, clocks.own_and_process_ns().1);
                    // Whatever became of the test.
                    let _ = told.send(facts);
                });
                heard.recv_timeout(Duration::from_secs(10))
            })
        });
        let (name, threads, process_ns) = heard.expect("an answer while the lock is held");
        assert_eq!(name, "thread_timer");
        assert!(threads > 0 && process_ns > 0);
        clocks.stop();
        assert_eq!((clocks.in_use().name, clocks.counters().threads), ("none", 0));
        assert_eq!(clocks.own_and_process_ns(), (0, 0));
    }
}
