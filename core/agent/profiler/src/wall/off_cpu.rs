//! The part of a wall sample that its thread spent off CPU, and the reason. Used by the wall sampler only.
//!
//! A thread that waits when it is observed was off CPU for all the time that the observation represents. This is as unbiased
//! as the wall profile, and charges stacks that wait. The difference of wall and CPU time since the last observation would be
//! charged to stacks that compute, too.
//!
//! The sampler needs a processor itself, so a runnable thread without one may only have lost it to the sampler. The kernel
//! counts the time for which a thread could run but had no processor. This time is charged to the observations of the
//! runnable thread, exactly in sum, since its begin or since the observations that follow each other. Between two requests a thread is
//! not observed: delays of that time belong to neither.
//!
//! Not used: `stat` (7.3 instead of 6.1 µs, and no reason), `wchan` (functions of the kernel), the CPU clock around the walk (the
//! sampler's own processor). Without `schedstat` and `syscall` (a process that is not dumpable, a hidden /proc) the CPU time
//! since the last sample is subtracted, and there is no reason. The time from the end of a wait until the thread has a processor
//! counts as the wait.

use std::collections::BTreeMap;

use spanprof_os::ThreadState;
use spanprof_signal::SyntheticFrame;

/// How a thread spent the time of an observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wait {
    /// Code of the synthetic frame that names the reason; 0: none.
    pub reason: u64,
    /// Part of the time that was off CPU, 0 to 1.
    pub share: f64,
}

impl Wait {
    /// The off-CPU time of an observation with this weight.
    pub fn off_ns(self, weight_ns: u64) -> u64 {
        (weight_ns as f64 * self.share).round() as u64
    }
}

/// The last observation of a thread.
struct Observed {
    time_ns: u64,
    cpu_ns: u64,
    state: Option<ThreadState>,
    wait: Wait,
    /// Run delay of the thread that is not charged yet; below 0 until the kernel counts what is charged already.
    uncharged_ns: i64,
    /// Run delay of the thread at its last reading, if the kernel counts it.
    run_delay_ns: Option<u64>,
}

/// Off-CPU observations by thread id.
#[derive(Default)]
pub(crate) struct OffCpu {
    threads: BTreeMap<u32, Observed>,
}

impl OffCpu {
    /// Observes a thread, before its walk. `weight_ns`: the time that the observation represents.
    pub fn observe(&mut self, thread_id: u32, weight_ns: u64, now_ns: u64) -> Wait {
        let Some(cpu_ns) = spanprof_os::thread_cpu_ns(thread_id) else { return Wait::default() };
        self.observe_with(thread_id, weight_ns, now_ns, cpu_ns, &ThreadFiles)
    }

    fn observe_with(
        &mut self,
        thread_id: u32,
        weight_ns: u64,
        now_ns: u64,
        cpu_ns: u64,
        files: &dyn ReadThread,
    ) -> Wait {
        let first = || Observed {
            time_ns: now_ns,
            cpu_ns: u64::MAX,
            state: None,
            wait: Wait::default(),
            uncharged_ns: 0,
            run_delay_ns: None,
        };
        let last = self.threads.entry(thread_id).or_insert_with(first);
        if now_ns.saturating_sub(last.time_ns) > 2 * weight_ns {
            (last.uncharged_ns, last.run_delay_ns) = (0, None);
        }
        let has_run = last.cpu_ns != cpu_ns;
        if has_run {
            last.state = files.state(thread_id);
        }
        last.wait = match last.state {
            Some(ThreadState::Waiting(reason)) => Wait { reason: reason.map_or(0, |it| it as u64), share: 1.0 },
            Some(ThreadState::Runnable) => {
                let share = if has_run { last.runnable_share(thread_id, weight_ns, cpu_ns, files) } else { 1.0 };
                last.uncharged_ns -= (share * weight_ns as f64) as i64;
                Wait { reason: SyntheticFrame::ScheduledOut as u64, share }
            }
            None => last.difference_of_clocks(now_ns, cpu_ns),
        };
        (last.time_ns, last.cpu_ns) = (now_ns, cpu_ns);
        last.wait
    }

    /// Forgets the threads that are not in `alive`, which is sorted.
    pub fn retain(&mut self, alive: &[u32]) {
        self.threads.retain(|thread_id, _| alive.binary_search(thread_id).is_ok());
    }
}

impl Observed {
    /// Share of the time for which a runnable thread had no processor.
    fn runnable_share(&mut self, thread_id: u32, weight_ns: u64, cpu_ns: u64, files: &dyn ReadThread) -> f64 {
        let run_delay_ns = files.run_delay_ns(thread_id);
        // A thread that began since the last tick had all of its delay since then.
        let is_new = run_delay_ns.is_some_and(|delay_ns| cpu_ns.saturating_add(delay_ns) <= weight_ns);
        if let (Some(now_ns), Some(before_ns)) = (run_delay_ns, self.run_delay_ns.or(is_new.then_some(0))) {
            self.uncharged_ns += now_ns.saturating_sub(before_ns) as i64;
        }
        self.run_delay_ns = run_delay_ns;
        // The excess over this sample is charged to the next one, at most a second.
        self.uncharged_ns = self.uncharged_ns.clamp(-1_000_000_000, 1_000_000_000);
        (self.uncharged_ns.max(0) as f64 / weight_ns.max(1) as f64).min(1.0)
    }

    /// Without the state of the thread: the time since the last observation that its CPU clock does not contain.
    fn difference_of_clocks(&self, now_ns: u64, cpu_ns: u64) -> Wait {
        let elapsed_ns = now_ns.saturating_sub(self.time_ns);
        let used_ns = cpu_ns.saturating_sub(self.cpu_ns);
        let share = if elapsed_ns == 0 { 0.0 } else { 1.0 - (used_ns as f64 / elapsed_ns as f64).min(1.0) };
        Wait { reason: 0, share }
    }
}

/// The kernel files of a thread.
trait ReadThread {
    fn state(&self, thread_id: u32) -> Option<ThreadState>;
    fn run_delay_ns(&self, thread_id: u32) -> Option<u64>;
}

struct ThreadFiles;

impl ReadThread for ThreadFiles {
    fn state(&self, thread_id: u32) -> Option<ThreadState> {
        spanprof_os::thread_state(thread_id)
    }

    fn run_delay_ns(&self, thread_id: u32) -> Option<u64> {
        spanprof_os::run_delay_ns(thread_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A scripted thread; counts the readings of its state.
    #[derive(Default)]
    struct ScriptedThread {
        state: Cell<Option<ThreadState>>,
        run_delay_ns: Cell<Option<u64>>,
        readings: Cell<u64>,
    }

    impl ReadThread for ScriptedThread {
        fn state(&self, _: u32) -> Option<ThreadState> {
            self.readings.set(self.readings.get() + 1);
            self.state.get()
        }

        fn run_delay_ns(&self, _: u32) -> Option<u64> {
            self.run_delay_ns.get()
        }
    }

    const MS: u64 = 1_000_000;
    const SLEEPS: Option<ThreadState> = Some(ThreadState::Waiting(Some(SyntheticFrame::Sleep)));

    #[test]
    fn a_waiting_thread_is_off_cpu_for_all_of_the_time_and_its_state_is_read_once() {
        let (mut off_cpu, thread) = (OffCpu::default(), ScriptedThread::default());
        thread.state.set(SLEEPS);
        for tick in 1..=10 {
            let wait = off_cpu.observe_with(1, 10 * MS, tick * 10 * MS, 7 * MS, &thread);
            assert_eq!(wait, Wait { reason: SyntheticFrame::Sleep as u64, share: 1.0 });
        }
        assert_eq!(thread.readings.get(), 1, "its CPU clock stands still");
        off_cpu.retain(&[2]);
        assert!(off_cpu.threads.is_empty());
    }

    #[test]
    fn a_runnable_thread_is_charged_for_exactly_the_time_that_it_had_no_processor() {
        let (mut off_cpu, thread) = (OffCpu::default(), ScriptedThread::default());
        thread.state.set(Some(ThreadState::Runnable));
        let (mut random, mut cpu_ns, mut delay_ns, mut off_ns) = (spanprof_signal::Sequence::new(5), MS, 40 * MS, 0);
        thread.run_delay_ns.set(Some(delay_ns));
        assert_eq!(off_cpu.observe_with(1, 10 * MS, 0, cpu_ns, &thread).share, 0.0, "the delay before the first tick");
        const TICKS: u64 = 10_000;
        // It has a processor for 3 of about 7 intervals, in parts that are shorter and longer than an interval.
        let mut left_ns = 0;
        for tick in 1..=TICKS {
            let mut interval_ns = 10 * MS;
            while interval_ns > 0 {
                if left_ns == 0 {
                    left_ns =
                        random.around(40 * MS) as i64 * if left_ns >= 0 && random.fraction() < 0.43 { 1 } else { -1 };
                }
                let part_ns = interval_ns.min(left_ns.unsigned_abs());
                interval_ns -= part_ns;
                if left_ns > 0 {
                    (cpu_ns, left_ns) = (cpu_ns + part_ns, left_ns - part_ns as i64);
                } else {
                    (delay_ns, left_ns) = (delay_ns + part_ns, left_ns + part_ns as i64);
                }
                // The kernel counts a delay when it ends.
                if left_ns >= 0 {
                    thread.run_delay_ns.set(Some(delay_ns));
                }
            }
            let wait = off_cpu.observe_with(1, 10 * MS, tick * 10 * MS, cpu_ns, &thread);
            assert_eq!(wait.reason, SyntheticFrame::ScheduledOut as u64);
            assert!((0.0..=1.0).contains(&wait.share));
            off_ns += wait.off_ns(10 * MS);
        }
        let truth_ns = delay_ns - 40 * MS;
        assert!(off_ns.abs_diff(truth_ns) < truth_ns / 500, "{off_ns} of {truth_ns}");
    }

    #[test]
    fn a_delay_is_charged_from_the_begin_of_a_thread_but_not_from_between_two_requests() {
        let (mut off_cpu, thread) = (OffCpu::default(), ScriptedThread::default());
        thread.state.set(Some(ThreadState::Runnable));
        let mut off_ns = |now_ms: u64, cpu_ms: u64, delay_ms: u64| {
            thread.run_delay_ns.set(Some(delay_ms * MS));
            off_cpu.observe_with(1, 10 * MS, now_ms * MS, cpu_ms * MS, &thread).off_ns(10 * MS)
        };
        assert_eq!([off_ns(10, 3, 4), off_ns(20, 10, 7)], [4 * MS, 3 * MS]);
        // Further requests, each too short for an observation, are between these two.
        assert_eq!([off_ns(520, 200, 150), off_ns(530, 208, 152)], [0, 2 * MS]);
    }

    #[test]
    fn without_the_state_the_cpu_clock_is_subtracted() {
        let (mut off_cpu, thread) = (OffCpu::default(), ScriptedThread::default());
        assert_eq!(off_cpu.observe_with(1, 10 * MS, 10 * MS, 0, &thread), Wait::default());
        let wait = off_cpu.observe_with(1, 10 * MS, 20 * MS, 4 * MS, &thread);
        assert_eq!((wait.reason, wait.off_ns(10 * MS)), (0, 6 * MS));
        let more_than_elapsed = off_cpu.observe_with(1, 10 * MS, 30 * MS, 15 * MS, &thread);
        assert_eq!(more_than_elapsed.off_ns(10 * MS), 0, "never negative");
    }
}
