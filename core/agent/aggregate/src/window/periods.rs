//! Converts nanoseconds to periods. The remainder of a division is carried to the thread's next sample, also over
//! windows, and never rounded off: the sum of the counts times the period is exact to one period per thread.

use crate::hash::WordMap;

/// Remainders by thread.
#[derive(Debug, Default)]
pub(super) struct Periods {
    of_threads: WordMap<u32, u64>,
    unattributed: u64,
}

impl Periods {
    /// Whole periods in `ns` plus the remainder of the thread.
    pub fn of_thread(&mut self, thread_id: u32, ns: u64, period_ns: u64) -> u64 {
        whole_periods(self.of_threads.entry(thread_id).or_default(), ns, period_ns)
    }

    /// Whole periods in unattributed `ns` plus their remainder.
    pub fn of_unattributed(&mut self, ns: u64, period_ns: u64) -> u64 {
        whole_periods(&mut self.unattributed, ns, period_ns)
    }

    /// Takes the whole periods of the unattributed remainder: the share of each of `parts`, at most a period, and what exceeds them.
    /// What is left decides which part gets the first period; it depends on measured times, so no part is preferred over many windows.
    pub fn take_shares(&mut self, parts: u64, period_ns: u64) -> (u64, u64) {
        let whole_ns = self.unattributed - self.unattributed % period_ns.max(1);
        let share_ns = whole_ns.checked_div(parts).unwrap_or(0).min(period_ns);
        let excess_ns = whole_ns.saturating_sub(period_ns * parts);
        self.unattributed -= share_ns * parts + excess_ns;
        (share_ns, excess_ns)
    }

    /// Threads with a remainder.
    pub fn threads(&self) -> usize {
        self.of_threads.len()
    }

    /// Moves the remainders of ended threads to the unattributed remainder.
    pub fn release_ended(&mut self, is_alive: &mut dyn FnMut(u32) -> bool) {
        let unattributed = &mut self.unattributed;
        self.of_threads.retain(|thread_id, remainder| {
            let is_kept = is_alive(*thread_id);
            if !is_kept {
                *unattributed += *remainder;
            }
            is_kept
        });
    }
}

fn whole_periods(remainder: &mut u64, ns: u64, period_ns: u64) -> u64 {
    let total = remainder.saturating_add(ns);
    let period_ns = period_ns.max(1);
    *remainder = total % period_ns;
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
    fn the_remainder_of_an_ended_thread_becomes_unattributed() {
        let mut periods = Periods::default();
        assert_eq!(periods.of_thread(1, 6, 10), 0);
        assert_eq!(periods.of_thread(2, 5, 10), 0);
        periods.release_ended(&mut |thread_id| thread_id == 2);
        assert_eq!(periods.of_unattributed(4, 10), 1);
        assert_eq!(periods.of_thread(1, 4, 10), 0, "a new thread with the same id starts at 0");
        assert_eq!(periods.of_thread(2, 5, 10), 1);
    }
}
