//! Nanoseconds → periods. What does not fill a period is carried to the thread's next sample and over windows, never
//! rounded away: the sum of the counts times the period stays within a period per thread of the truth.

use crate::hash::WordMap;

/// Remainders by thread.
#[derive(Debug, Default)]
pub(super) struct Periods {
    of_threads: WordMap<u32, u64>,
    of_unseen: u64,
}

impl Periods {
    /// Whole periods in `ns` and what the thread carried.
    pub fn of_thread(&mut self, thread_id: u32, ns: u64, period_ns: u64) -> u64 {
        whole(self.of_threads.entry(thread_id).or_default(), ns, period_ns)
    }

    /// Whole periods of time that belongs to no thread any more.
    pub fn of_unseen(&mut self, ns: u64, period_ns: u64) -> u64 {
        whole(&mut self.of_unseen, ns, period_ns)
    }

    /// Threads with a remainder.
    pub fn threads(&self) -> usize {
        self.of_threads.len()
    }

    /// Keeps the remainders of living threads; those of ended ones join the unseen time.
    pub fn keep(&mut self, live: &mut dyn FnMut(u32) -> bool) {
        let unseen = &mut self.of_unseen;
        self.of_threads.retain(|thread_id, carried| {
            let kept = live(*thread_id);
            if !kept {
                *unseen += *carried;
            }
            kept
        });
    }
}

fn whole(carried: &mut u64, ns: u64, period_ns: u64) -> u64 {
    let total = carried.saturating_add(ns);
    let period_ns = period_ns.max(1);
    *carried = total % period_ns;
    total / period_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remainders_add_up_to_whole_periods_over_many_samples() {
        let mut periods = Periods::default();
        let counted: u64 = (0..1000).map(|_| periods.of_thread(7, 3_700_000, 10_000_000)).sum();
        assert_eq!(counted, 370);
    }

    #[test]
    fn a_thread_that_ended_leaves_its_remainder_to_the_unseen_time() {
        let mut periods = Periods::default();
        assert_eq!(periods.of_thread(1, 6, 10), 0);
        assert_eq!(periods.of_thread(2, 5, 10), 0);
        periods.keep(&mut |thread_id| thread_id == 2);
        assert_eq!(periods.of_unseen(4, 10), 1);
        assert_eq!(periods.of_thread(1, 4, 10), 0, "a new thread of the same id starts from nothing");
        assert_eq!(periods.of_thread(2, 5, 10), 1);
    }
}
