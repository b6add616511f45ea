//! Schedule of scans. The thread count is polled often, since one call reads it. A scan reads the data of each
//! thread. It runs when the count changed, and periodically, since one thread may have replaced another. All times
//! are CPU time of the process. Not here: the scan (`registry`) and its timer (`clocks`).
//!
//! Polls at the minimum interval at all times would cost half of the profiler's CPU time at 100 Hz. Scans alone, limited by
//! their cost, missed threads of a pool that started and ended between two scans (900 ms of CPU time in a test).

/// Minimum poll interval, while the thread count changes. A thread with a shorter life is detected only by its CPU
/// time.
pub(crate) const POLL_INTERVAL_NS: u64 = 100_000_000;
/// Maximum poll interval, while the count is stable: a wakeup costs more than the poll, 0.15 ms in all.
const MAX_POLL_INTERVAL_NS: u64 = 400_000_000;
/// Interval of scans while the count is stable: the longest time that a host's handler may replace ours unnoticed.
const SCAN_INTERVAL_NS: u64 = 400_000_000;
/// Scans use at most 1/2000 of the CPU time between them, and 1/200 while the count changes.
const COST_DIVISOR: u64 = 2000;
const CHANGING_COST_DIVISOR: u64 = 200;

/// The state of polls and scans.
#[derive(Debug, Default)]
pub(crate) struct ScanSchedule {
    thread_count: Option<u64>,
    scanned_ns: u64,
    cost_ns: u64,
    poll_interval_ns: u64,
}

impl ScanSchedule {
    /// Whether a poll with this thread count at `now_ns` requires a scan.
    pub fn is_scan_due(&self, thread_count: Option<u64>, now_ns: u64) -> bool {
        let min_interval_ns = if thread_count == self.thread_count {
            SCAN_INTERVAL_NS.max(self.cost_ns * COST_DIVISOR)
        } else {
            self.cost_ns * CHANGING_COST_DIVISOR
        };
        now_ns.saturating_sub(self.scanned_ns) >= min_interval_ns
    }

    /// Whether the thread count differs from the last scan's.
    pub fn has_changed(&self, thread_count: Option<u64>) -> bool {
        thread_count != self.thread_count
    }

    /// Records a scan: the polled thread count, its time and its cost.
    pub fn scanned(&mut self, thread_count: Option<u64>, now_ns: u64, cost_ns: u64) {
        if thread_count != self.thread_count {
            self.poll_interval_ns = 0;
        }
        (self.thread_count, self.scanned_ns, self.cost_ns) = (thread_count, now_ns, cost_ns);
    }

    /// CPU time of the process until the next poll: twice the last interval, up to the maximum.
    pub fn next_poll_ns(&mut self) -> u64 {
        self.poll_interval_ns = (self.poll_interval_ns * 2).clamp(POLL_INTERVAL_NS, MAX_POLL_INTERVAL_NS);
        self.poll_interval_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn after_a_scan(cost_ns: u64) -> ScanSchedule {
        let mut schedule = ScanSchedule::default();
        schedule.scanned(Some(5), 1_000 * MS, cost_ns);
        schedule
    }

    #[test]
    fn a_changed_thread_count_requires_a_scan_at_the_next_poll() {
        let schedule = after_a_scan(MS / 10);
        assert!(schedule.is_scan_due(Some(6), 1_100 * MS) && schedule.is_scan_due(Some(4), 1_100 * MS));
        assert!(!schedule.is_scan_due(Some(5), 1_100 * MS));
    }

    #[test]
    fn an_unchanged_thread_count_requires_a_scan_after_the_interval() {
        let schedule = after_a_scan(MS / 10);
        assert!(!schedule.is_scan_due(Some(5), 1_399 * MS) && schedule.is_scan_due(Some(5), 1_400 * MS));
    }

    #[test]
    fn expensive_scans_are_rare() {
        let schedule = after_a_scan(MS);
        assert!(!schedule.is_scan_due(Some(5), 2_999 * MS) && schedule.is_scan_due(Some(5), 3_000 * MS));
        assert!(!schedule.is_scan_due(Some(6), 1_199 * MS) && schedule.is_scan_due(Some(6), 1_200 * MS));
    }

    #[test]
    fn with_an_unknown_thread_count_scans_are_periodic() {
        let mut schedule = ScanSchedule::default();
        schedule.scanned(None, 1_000 * MS, 0);
        assert!(!schedule.is_scan_due(None, 1_100 * MS) && schedule.is_scan_due(None, 1_400 * MS));
    }

    #[test]
    fn the_poll_interval_grows_until_the_count_changes() {
        let mut schedule = after_a_scan(0);
        let mut polls = || schedule.next_poll_ns() / MS;
        assert_eq!([polls(), polls(), polls(), polls()], [100, 200, 400, 400]);
        schedule.scanned(Some(5), 2_000 * MS, 0);
        assert_eq!(schedule.next_poll_ns() / MS, 400);
        schedule.scanned(Some(6), 3_000 * MS, 0);
        assert_eq!(schedule.next_poll_ns() / MS, 100);
    }
}
