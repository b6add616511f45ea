//! How often the wall sampler looks: at the configured rate while threads run, and seldom while the process is idle. The
//! sampler reports what its looks found; called by it alone.
//!
//! Where the process may use less than one processor, the configured rate is multiplied by what it may use: a look costs the
//! same CPU time, and between two of them as much is done.
//!
//! An interval that is chosen from what the last look found must not be charged to the look that happens to end it: a thread
//! that begins to run in a long interval would be charged for all of it, and for the short ones that follow. So an idle
//! process is looked at at a random moment of each long interval, and that look stands for the whole interval, also for
//! what is left of it, whatever is seen in the meantime. The mean is right whatever the thread does, and what is charged to
//! the wrong stack is never more than one interval.

use crate::random::Sequence;
use std::time::Duration;

/// However little CPU time the process may use.
const LONGEST_BASE_NS: u64 = 2_000_000_000;
/// An idle process uses at most one part in so many of one processor.
const IDLE_CPU_PART: u64 = 10;

/// See the head of the module.
pub(super) struct Pace {
    /// The present interval; that of the configured rate unless the process is idle.
    interval_ns: u64,
    /// What it may grow to; 0 when the last look found a thread elsewhere.
    longest_ns: u64,
    base_ns: u64,
    /// When the next look is due.
    look_at_ns: u64,
    /// Up to here the last look stands for the time.
    last_stands_until_ns: u64,
    /// Up to here the next one does.
    next_stands_until_ns: u64,
    last_look_ns: u64,
    /// The process's CPU clock, and when it was read.
    cpu_ns: u64,
    cpu_read_ns: u64,
}

/// The time between two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Elapsed {
    /// For which the former look stands.
    pub before_ns: u64,
    /// For which this one does.
    pub since_ns: u64,
}

impl Elapsed {
    pub fn all_ns(self) -> u64 {
        self.before_ns + self.since_ns
    }

    /// Each part multiplied by `all` and divided by `chosen`: the time for which each of `chosen` threads stands.
    pub fn share(self, all: usize, chosen: usize) -> Self {
        let share = |ns: u64| (u128::from(ns) * all as u128 / chosen.max(1) as u128) as u64;
        Self { before_ns: share(self.before_ns), since_ns: share(self.since_ns) }
    }
}

/// The interval of a configured rate in a process that may use so many processors.
pub(super) fn base_ns(rate_hz: u32, processors: Option<f64>) -> u64 {
    let whole_ns = 1e9 / f64::from(rate_hz.clamp(1, 1000));
    ((whole_ns / processors.map_or(1.0, |quota| quota.min(1.0))) as u64).min(LONGEST_BASE_NS)
}

impl Pace {
    pub fn new(now_ns: u64) -> Self {
        Self {
            interval_ns: 0,
            longest_ns: 0,
            base_ns: 0,
            look_at_ns: now_ns,
            last_stands_until_ns: now_ns,
            next_stands_until_ns: now_ns,
            last_look_ns: now_ns,
            cpu_ns: 0,
            cpu_read_ns: now_ns,
        }
    }

    /// Chooses when to look next, at a configured rate.
    pub fn plan(&mut self, base_ns: u64, random: &mut Sequence) -> u64 {
        self.base_ns = base_ns;
        self.interval_ns = self.interval_ns.clamp(base_ns, self.longest_ns.max(base_ns));
        let is_rare = self.interval_ns > base_ns;
        let from_ns = self.next_stands_until_ns.max(self.last_look_ns);
        self.last_stands_until_ns = from_ns;
        self.look_at_ns = match is_rare {
            true => from_ns + random.below(self.interval_ns as usize) as u64,
            false => from_ns + random.around(base_ns),
        };
        self.next_stands_until_ns = if is_rare { from_ns + self.interval_ns } else { self.look_at_ns };
        self.look_at_ns
    }

    /// A look begins: what it stands for.
    pub fn look(&mut self, now_ns: u64) -> Elapsed {
        let all_ns = now_ns.saturating_sub(self.last_look_ns);
        let before_ns = self.last_stands_until_ns.min(now_ns).saturating_sub(self.last_look_ns).min(all_ns);
        if now_ns < self.look_at_ns {
            // Not a random moment: it ends the interval.
            self.next_stands_until_ns = now_ns;
        }
        self.last_look_ns = now_ns;
        Elapsed { before_ns, since_ns: all_ns - before_ns }
    }

    /// The look is over. `longest`: to what intervals may grow, if it found all threads where they were; `cpu_ns`: the
    /// process's CPU clock.
    pub fn judge(&mut self, longest: Option<Duration>, cpu_ns: impl FnOnce() -> u64) {
        self.longest_ns = longest.map_or(0, |longest| longest.as_nanos() as u64);
        if self.interval_ns < self.longest_ns {
            let cpu_ns = cpu_ns();
            let used_ns = cpu_ns.saturating_sub(self.cpu_ns);
            let elapsed_ns = self.last_look_ns.saturating_sub(self.cpu_read_ns);
            (self.cpu_ns, self.cpu_read_ns) = (cpu_ns, self.last_look_ns);
            if used_ns.saturating_mul(IDLE_CPU_PART) <= elapsed_ns {
                self.interval_ns *= 2;
            }
        }
    }

    /// Whether looks are rarer than configured because nothing happens.
    pub fn is_idle(&self) -> bool {
        self.longest_ns > 0 && self.interval_ns > self.base_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE_NS: u64 = 10_000_000;
    const LONGEST: Duration = Duration::from_millis(140);
    const LONGEST_NS: u64 = LONGEST.as_nanos() as u64;

    /// A look when it is due, which moves the clock.
    fn look(pace: &mut Pace, random: &mut Sequence, is_at_rest: bool, cpu_ns: u64) -> (u64, Elapsed) {
        let now_ns = pace.plan(BASE_NS, random);
        let elapsed = pace.look(now_ns);
        pace.judge(is_at_rest.then_some(LONGEST), || cpu_ns);
        (now_ns, elapsed)
    }

    #[test]
    fn an_idle_process_is_looked_at_seldom_until_a_thread_moves() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(1));
        let mut before_ns = 0;
        for _ in 0..1000 {
            let (now_ns, elapsed) = look(&mut pace, &mut random, true, 0);
            assert_eq!(elapsed.all_ns(), now_ns - before_ns);
            assert!(elapsed.before_ns <= LONGEST_NS && elapsed.since_ns <= LONGEST_NS, "{elapsed:?}");
            before_ns = now_ns;
        }
        assert!(pace.is_idle() && before_ns > 980 * LONGEST_NS, "{before_ns}");
        look(&mut pace, &mut random, false, 0);
        assert!(!pace.is_idle());
        let (now_ns, _) = look(&mut pace, &mut random, false, 0);
        let (next_ns, elapsed) = look(&mut pace, &mut random, false, 0);
        assert_eq!(elapsed, Elapsed { before_ns: 0, since_ns: next_ns - now_ns }, "the time since the last look");
        assert!(next_ns - now_ns <= 2 * BASE_NS);
    }

    #[test]
    fn a_process_that_computes_is_looked_at_as_often_as_configured_whatever_is_seen() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(2));
        let mut cpu_ns = 0;
        for _ in 0..1000 {
            cpu_ns += BASE_NS / 2;
            let (now_ns, _) = look(&mut pace, &mut random, true, cpu_ns);
            assert!(!pace.is_idle(), "at {now_ns}");
        }
    }

    #[test]
    fn a_process_that_may_use_a_part_of_a_processor_is_looked_at_that_much_less_often() {
        assert_eq!(
            [None, Some(4.0), Some(0.5), Some(0.1)].map(|quota| base_ns(100, quota)),
            [10, 10, 20, 100].map(|ms| ms * 1_000_000)
        );
        assert_eq!(base_ns(1, Some(0.000_1)), LONGEST_BASE_NS);
    }

    #[test]
    fn a_look_that_comes_early_ends_its_interval() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(3));
        for _ in 0..10 {
            look(&mut pace, &mut random, true, 0);
        }
        let last_ns = pace.last_look_ns;
        let due_ns = pace.plan(BASE_NS, &mut random);
        assert!(due_ns > last_ns + 1);
        assert_eq!(pace.look(last_ns + 1).all_ns(), 1);
        pace.plan(BASE_NS, &mut random);
        assert_eq!(pace.last_stands_until_ns, last_ns + 1);
    }

    #[test]
    fn a_rate_below_that_of_an_idle_process_stays() {
        let (mut pace, mut random) = (Pace::new(0), Sequence::new(4));
        for look in 0..100 {
            let now_ns = pace.plan(1_000_000_000, &mut random);
            assert!(now_ns >= look * 500_000_000);
            pace.look(now_ns);
            pace.judge(Some(LONGEST), || 0);
            assert!(!pace.is_idle());
        }
    }
}
