//! When the threads of the process are scanned. A look is cheap (how many threads are there?) and frequent; a scan asks
//! about each of them and is made when their number changed, and from time to time, since one may have taken another's
//! place. All times are CPU time of the process. Not here: the scan (`registry`) and its timer (`clocks`).

/// From one look to the next while threads come and go. Of a thread younger than this nothing is seen but its CPU time.
pub(super) const LOOK_INTERVAL_NS: u64 = 100_000_000;
/// The same while none does: waking for it costs more than the look, 0.15 ms in all.
const CALM_LOOK_INTERVAL_NS: u64 = 400_000_000;
/// From one scan to the next when the number of threads stays the same: how long a handler that the host put over ours
/// may stay.
const SCAN_INTERVAL_NS: u64 = 400_000_000;
/// Scans may cost this part of the CPU time between them, and this part while threads come and go.
const SHARE: u64 = 2000;
const SHARE_OF_CHANGES: u64 = 200;

/// See the head of the module.
#[derive(Debug, Default)]
pub(super) struct ScanSchedule {
    threads: Option<u64>,
    scanned_ns: u64,
    cost_ns: u64,
    look_interval_ns: u64,
}

impl ScanSchedule {
    /// Whether a look that found so many threads at `now_ns` calls for a scan.
    pub fn wants_scan(&self, threads: Option<u64>, now_ns: u64) -> bool {
        let least_ns = match threads == self.threads {
            true => SCAN_INTERVAL_NS.max(self.cost_ns * SHARE),
            false => self.cost_ns * SHARE_OF_CHANGES,
        };
        now_ns.saturating_sub(self.scanned_ns) >= least_ns
    }

    /// Whether the number of threads is another one than at the last scan.
    pub fn has_changed(&self, threads: Option<u64>) -> bool {
        threads != self.threads
    }

    /// A scan was made after a look that found so many threads; what it cost.
    pub fn scanned(&mut self, threads: Option<u64>, now_ns: u64, cost_ns: u64) {
        if threads != self.threads {
            self.look_interval_ns = 0;
        }
        (self.threads, self.scanned_ns, self.cost_ns) = (threads, now_ns, cost_ns);
    }

    /// CPU time of the process until the next look: twice the last one, up to the limit.
    pub fn next_look_ns(&mut self) -> u64 {
        self.look_interval_ns = (self.look_interval_ns * 2).clamp(LOOK_INTERVAL_NS, CALM_LOOK_INTERVAL_NS);
        self.look_interval_ns
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
    fn another_number_of_threads_calls_for_a_scan_at_the_next_look() {
        let schedule = after_a_scan(MS / 10);
        assert!(schedule.wants_scan(Some(6), 1_100 * MS) && schedule.wants_scan(Some(4), 1_100 * MS));
        assert!(!schedule.wants_scan(Some(5), 1_100 * MS));
    }

    #[test]
    fn the_same_number_is_scanned_anew_after_a_while() {
        let schedule = after_a_scan(MS / 10);
        assert!(!schedule.wants_scan(Some(5), 1_399 * MS) && schedule.wants_scan(Some(5), 1_400 * MS));
    }

    #[test]
    fn dear_scans_are_rare() {
        let schedule = after_a_scan(MS);
        assert!(!schedule.wants_scan(Some(5), 2_999 * MS) && schedule.wants_scan(Some(5), 3_000 * MS));
        assert!(!schedule.wants_scan(Some(6), 1_199 * MS) && schedule.wants_scan(Some(6), 1_200 * MS));
    }

    #[test]
    fn where_the_number_cannot_be_told_scans_come_from_time_to_time() {
        let mut schedule = ScanSchedule::default();
        schedule.scanned(None, 1_000 * MS, 0);
        assert!(!schedule.wants_scan(None, 1_100 * MS) && schedule.wants_scan(None, 1_400 * MS));
    }

    #[test]
    fn looks_grow_rarer_until_the_number_changes() {
        let mut schedule = after_a_scan(0);
        let mut looks = || schedule.next_look_ns() / MS;
        assert_eq!([looks(), looks(), looks(), looks()], [100, 200, 400, 400]);
        schedule.scanned(Some(5), 2_000 * MS, 0);
        assert_eq!(schedule.next_look_ns() / MS, 400);
        schedule.scanned(Some(6), 3_000 * MS, 0);
        assert_eq!(schedule.next_look_ns() / MS, 100);
    }
}
