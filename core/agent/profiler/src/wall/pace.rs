//! The pace of the wall sampler: ticks at the configured rate while threads run, and rarely while the process is idle. Used
//! by the wall sampler only.
//!
//! With a CPU quota below one processor, the configured rate is multiplied by the quota: a tick costs the same CPU time, and
//! the process does as much work between two ticks.
//!
//! A long interval, chosen because the last tick found an idle process, must not be charged to the tick that ends it. A
//! thread that starts to run in it would be charged for all of it, and for the short intervals that follow. So the tick of a
//! long interval is at a random time within it. Its observation covers the whole interval, also the rest after the tick,
//! independently of later observations. The mean is then unbiased for any behavior of the thread, and at most one interval
//! is charged to a wrong stack.
//!
//! Time in which the whole process was stopped is charged to no stack: AWS Lambda freezes a process between two invocations, a
//! container can be paused, and SIGSTOP and debuggers stop every thread. The clock goes on meanwhile. A tick follows a stop if it
//! is late by more than `MAX_LATE_NS`, the sampler did not wait for a processor for most of that time, and the process used little
//! CPU time. A busy machine delays ticks too, but the kernel counts that as run delay of the sampler. The program may run for some
//! time between the end of the stop and the tick. Where the kernel counts no run delay, the limit of CPU time is lower.
//!
//! Rejected: intervals charged to the tick that ends them, skipping while the process's CPU clock stands still (the runtime's own
//! threads move it 50 times a second), idle intervals of a second (they miss work of 200 ms), longer intervals while ticks are late instead of the quota (1.9
//! instead of 0.7 to 1.0 % of the CPU time in a tenth of a processor).

use spanprof_config::Config;
use spanprof_signal::Sequence;
use std::time::Duration;

/// Highest rate, for any `sample_rate`.
pub(crate) const MAX_RATE_HZ: u32 = 1000;
/// Shortest base interval for the waits of requests, which are on by default.
pub(crate) const REQUESTS_BASE_NS: u64 = 40_000_000;
/// Longest base interval, for any CPU quota.
const MAX_BASE_NS: u64 = 2_000_000_000;
/// An idle process uses at most this fraction of one processor: 1 / `IDLE_CPU_DIVISOR`.
const IDLE_CPU_DIVISOR: u64 = 10;
/// Longest delay of a tick that is charged for certain.
const MAX_LATE_NS: u64 = 1_000_000_000;
/// After a stop, the process used at most this fraction of one processor since the tick before: 1 / divisor.
const STOPPED_CPU_DIVISOR: u64 = 10;
/// As [`STOPPED_CPU_DIVISOR`], where the kernel counts no run delay.
const STOPPED_CPU_DIVISOR_WITHOUT_DELAY: u64 = 100;
/// After a stop, the run delay of the sampler is at most this fraction of the delay of the tick: 1 / divisor.
const STOPPED_DELAY_DIVISOR: u64 = 2;
/// Interval of the readings of the run delay, each of which opens a file.
const RUN_DELAY_INTERVAL_NS: u64 = 1_000_000_000;

/// Chooses the time of the next tick and the weight of its observations.
pub(crate) struct Pace {
    /// The current interval; equals `base_ns` unless the process is idle.
    interval_ns: u64,
    /// Maximum of the interval; 0 when the last tick found a thread that moved.
    max_ns: u64,
    base_ns: u64,
    next_tick_ns: u64,
    /// End of the time that the last tick covers.
    last_covers_until_ns: u64,
    /// End of the time that the next tick covers.
    next_covers_until_ns: u64,
    last_tick_ns: u64,
    /// The process's CPU clock at the last tick.
    cpu_ns: u64,
    /// Whether the process used little CPU time between the last two ticks.
    used_little: bool,
    /// Run delay of the sampler at its last reading, and the time of the reading.
    run_delay_ns: Option<u64>,
    run_delay_read_ns: u64,
}

/// The time between two ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elapsed {
    /// Time that the previous tick covers.
    pub previous_ns: u64,
    /// Time that the current tick covers.
    pub current_ns: u64,
}

impl Elapsed {
    pub fn all_ns(self) -> u64 {
        self.previous_ns + self.current_ns
    }

    /// The time that each of `chosen` threads represents, where they represent `all` threads.
    pub fn share(self, all: usize, chosen: usize) -> Self {
        let share = |ns: u64| (u128::from(ns) * all as u128 / chosen.max(1) as u128) as u64;
        Self { previous_ns: share(self.previous_ns), current_ns: share(self.current_ns) }
    }
}

/// The configured rate of the wall sampler, Hz.
pub(crate) fn rate_hz(config: &Config) -> u32 {
    config.wall_rate.unwrap_or(config.sample_rate).clamp(1, MAX_RATE_HZ)
}

/// The interval of the wall sampler in a process with a CPU quota of `processors`: also the period of its samples.
pub(crate) fn base_ns(config: &Config, processors: Option<f64>) -> u64 {
    let full_ns = 1e9 / f64::from(rate_hz(config));
    ((full_ns / processors.map_or(1.0, |quota| quota.min(1.0))) as u64).min(MAX_BASE_NS)
}

impl Pace {
    pub fn new(now_ns: u64) -> Self {
        Self {
            interval_ns: 0,
            max_ns: 0,
            base_ns: 0,
            next_tick_ns: now_ns,
            last_covers_until_ns: now_ns,
            next_covers_until_ns: now_ns,
            last_tick_ns: now_ns,
            cpu_ns: 0,
            used_little: false,
            run_delay_ns: None,
            run_delay_read_ns: 0,
        }
    }

    /// Plans the next tick at a configured rate, and returns its time.
    pub fn plan(&mut self, base_ns: u64, random: &mut Sequence) -> u64 {
        self.base_ns = base_ns;
        self.interval_ns = self.interval_ns.clamp(base_ns, self.max_ns.max(base_ns));
        let is_long = self.interval_ns > base_ns;
        let from_ns = self.next_covers_until_ns.max(self.last_tick_ns);
        self.last_covers_until_ns = from_ns;
        self.next_tick_ns = if is_long {
            from_ns + random.below(self.interval_ns as usize) as u64
        } else {
            from_ns + random.around(base_ns)
        };
        self.next_covers_until_ns = if is_long { from_ns + self.interval_ns } else { self.next_tick_ns };
        self.next_tick_ns
    }

    /// Begins a tick; returns the time since the last one, without that in which the process was stopped. `cpu_ns`: the process's
    /// CPU clock; `run_delay_ns`: reads the time for which this thread could run but had no processor, if the kernel counts it.
    pub fn begin_tick(&mut self, now_ns: u64, cpu_ns: u64, run_delay_ns: impl FnOnce() -> Option<u64>) -> Elapsed {
        let between_ns = now_ns.saturating_sub(self.last_tick_ns);
        let used_ns = cpu_ns.saturating_sub(std::mem::replace(&mut self.cpu_ns, cpu_ns));
        self.used_little = used_ns.saturating_mul(IDLE_CPU_DIVISOR) <= between_ns;
        let late_ns = now_ns.saturating_sub(self.next_tick_ns);
        let delay_ns = self.run_delay_since_reading(now_ns, run_delay_ns);
        let was_stopped = late_ns > MAX_LATE_NS && is_stop(late_ns, used_ns, delay_ns);
        let all_ns = between_ns - if was_stopped { late_ns.min(between_ns) } else { 0 };
        let previous_ns = self.last_covers_until_ns.min(now_ns).saturating_sub(self.last_tick_ns).min(all_ns);
        if now_ns < self.next_tick_ns {
            // An early tick is not at a random time, so it ends the interval.
            self.next_covers_until_ns = now_ns;
        }
        self.last_tick_ns = now_ns;
        Elapsed { previous_ns, current_ns: all_ns - previous_ns }
    }

    /// Run delay of the sampler since its last reading; `None` if it is not known, or not read in this tick.
    fn run_delay_since_reading(&mut self, now_ns: u64, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        if now_ns.saturating_sub(self.run_delay_read_ns) < RUN_DELAY_INTERVAL_NS {
            return None;
        }
        self.run_delay_read_ns = now_ns;
        let before_ns = std::mem::replace(&mut self.run_delay_ns, read());
        Some(self.run_delay_ns?.saturating_sub(before_ns?))
    }

    /// Adapts the interval after a tick. `max`: its maximum, if no thread moved.
    pub fn adapt(&mut self, max: Option<Duration>) {
        self.max_ns = max.map_or(0, |max| max.as_nanos() as u64);
        if self.interval_ns < self.max_ns && self.used_little {
            self.interval_ns *= 2;
        }
    }

    /// Whether the process used little CPU time between the last two ticks.
    pub fn used_little(&self) -> bool {
        self.used_little
    }

    /// Whether ticks are rarer than configured because the process is idle.
    pub fn is_idle(&self) -> bool {
        self.max_ns > 0 && self.interval_ns > self.base_ns
    }
}

/// Whether a tick that is late by `late_ns` follows a stop. `used_ns`: CPU time of the process since the tick before; `delay_ns`: run
/// delay of the sampler, at least since then.
fn is_stop(late_ns: u64, used_ns: u64, delay_ns: Option<u64>) -> bool {
    let divisor = delay_ns.map_or(STOPPED_CPU_DIVISOR_WITHOUT_DELAY, |_| STOPPED_CPU_DIVISOR);
    let has_processor = delay_ns.is_none_or(|delay_ns| delay_ns.saturating_mul(STOPPED_DELAY_DIVISOR) <= late_ns);
    has_processor && used_ns.saturating_mul(divisor) <= late_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE_NS: u64 = 10_000_000;
    const MAX: Duration = Duration::from_millis(140);
    const MAX_NS: u64 = MAX.as_nanos() as u64;

    fn of_rate(rate_hz: u32) -> Config {
        Config { wall_rate: Some(rate_hz), ..Config::default() }
    }

    /// The next planned tick; returns its time.
    fn tick(pace: &mut Pace, random: &mut Sequence, is_at_rest: bool, cpu_ns: u64) -> (u64, Elapsed) {
        let now_ns = pace.plan(BASE_NS, random);
        let elapsed = pace.begin_tick(now_ns, cpu_ns, || None);
        pace.adapt(is_at_rest.then_some(MAX));
        (now_ns, elapsed)
    }

    #[test]
    fn ticks_of_an_idle_process_are_rare_until_a_thread_moves() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(1));
        let mut before_ns = 0;
        for _ in 0..1000 {
            let (now_ns, elapsed) = tick(&mut pace, &mut random, true, 0);
            assert_eq!(elapsed.all_ns(), now_ns - before_ns);
            assert!(elapsed.previous_ns <= MAX_NS && elapsed.current_ns <= MAX_NS, "{elapsed:?}");
            before_ns = now_ns;
        }
        assert!(pace.is_idle() && before_ns > 980 * MAX_NS, "{before_ns}");
        tick(&mut pace, &mut random, false, 0);
        assert!(!pace.is_idle());
        let (now_ns, _) = tick(&mut pace, &mut random, false, 0);
        let (next_ns, elapsed) = tick(&mut pace, &mut random, false, 0);
        assert_eq!(elapsed, Elapsed { previous_ns: 0, current_ns: next_ns - now_ns }, "the time since the last tick");
        assert!(next_ns - now_ns <= 2 * BASE_NS);
    }

    #[test]
    fn a_process_that_uses_the_cpu_is_sampled_at_the_configured_rate_even_if_no_thread_moves() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(2));
        let mut cpu_ns = 0;
        for _ in 0..1000 {
            cpu_ns += BASE_NS / 2;
            let (now_ns, _) = tick(&mut pace, &mut random, true, cpu_ns);
            assert!(!pace.is_idle(), "at {now_ns}");
        }
    }

    #[test]
    fn a_cpu_quota_below_one_processor_reduces_the_rate_by_the_same_factor() {
        assert_eq!(
            [None, Some(4.0), Some(0.5), Some(0.1)].map(|quota| base_ns(&of_rate(100), quota)),
            [10, 10, 20, 100].map(|ms| ms * 1_000_000)
        );
        assert_eq!(base_ns(&of_rate(1), Some(0.000_1)), MAX_BASE_NS);
    }

    #[test]
    fn an_early_tick_ends_its_interval() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(3));
        for _ in 0..10 {
            tick(&mut pace, &mut random, true, 0);
        }
        let last_ns = pace.last_tick_ns;
        let due_ns = pace.plan(BASE_NS, &mut random);
        assert!(due_ns > last_ns + 1);
        assert_eq!(pace.begin_tick(last_ns + 1, 0, || None).all_ns(), 1);
        pace.plan(BASE_NS, &mut random);
        assert_eq!(pace.last_covers_until_ns, last_ns + 1);
    }

    #[test]
    fn a_configured_rate_below_the_idle_rate_is_kept() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(4));
        for tick in 0..100 {
            let now_ns = pace.plan(1_000_000_000, &mut random);
            assert!(now_ns >= tick * 500_000_000);
            pace.begin_tick(now_ns, 0, || None);
            pace.adapt(Some(MAX));
            assert!(!pace.is_idle());
        }
    }

    #[test]
    fn time_in_which_the_process_was_stopped_is_not_elapsed() {
        const STOPPED_NS: u64 = 3_000_000_000;
        for is_at_rest in [true, false] {
            let (mut pace, mut random) = (Pace::new(0), Sequence::new(5));
            let mut now_ns = 0;
            for _ in 0..20 {
                now_ns = tick(&mut pace, &mut random, is_at_rest, 0).0;
            }
            let due_ns = pace.plan(BASE_NS, &mut random);
            let elapsed = pace.begin_tick(due_ns + STOPPED_NS, 1_000_000, || None);
            assert_eq!(elapsed.all_ns(), due_ns - now_ns);
            pace.adapt(is_at_rest.then_some(MAX));
            let next_ns = pace.plan(BASE_NS, &mut random);
            assert!(next_ns > due_ns + STOPPED_NS);
            assert_eq!(pace.begin_tick(next_ns, 1_000_000, || None).all_ns(), next_ns - due_ns - STOPPED_NS);
        }
    }

    /// The time that a tick covers which is late after some seconds of ticks. `used_ns`: CPU time of the process since the tick
    /// before; `delay_ns`: run delay of the sampler since its start.
    fn covered_by_a_late_tick(late_ns: u64, used_ns: u64, delay_ns: Option<u64>) -> Covered {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(6));
        let mut last_ns = 0;
        while last_ns < 2_500_000_000 {
            last_ns = pace.plan(BASE_NS, &mut random);
            pace.begin_tick(last_ns, 0, || delay_ns.map(|_| 0));
        }
        let due_ns = pace.plan(BASE_NS, &mut random);
        let covered_ns = pace.begin_tick(due_ns + late_ns, used_ns, || delay_ns).all_ns();
        if covered_ns == due_ns + late_ns - last_ns {
            return Covered::All;
        }
        assert_eq!(covered_ns, due_ns - last_ns);
        Covered::UntilDue
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Covered {
        All,
        UntilDue,
    }

    #[test]
    fn a_late_tick_of_a_process_that_used_the_cpu_covers_its_delay() {
        for (late_ns, used_ns) in [(3_000_000_000, 40_000_000), (MAX_LATE_NS, 0)] {
            assert_eq!(covered_by_a_late_tick(late_ns, used_ns, None), Covered::All);
        }
        let busy = covered_by_a_late_tick(3_000_000_000, 400_000_000, Some(0));
        assert_eq!(busy, Covered::All, "the sampler waited for something else");
    }

    #[test]
    fn a_thread_that_runs_before_the_sampler_after_a_stop_does_not_hide_the_stop() {
        assert_eq!(covered_by_a_late_tick(3_000_000_000, 100_000_000, Some(300_000_000)), Covered::UntilDue);
    }

    #[test]
    fn a_tick_that_is_late_because_the_sampler_had_no_processor_covers_its_delay() {
        assert_eq!(covered_by_a_late_tick(3_000_000_000, 10_000_000, Some(2_900_000_000)), Covered::All);
    }
}
