//! Compares the ticks of each window with those that were due, and warns of a clock that loses ticks. The CPU time is
//! complete in any case; without ticks, it is on few stacks, or on none.

use crate::host_log::{log, LogLevel};
use crate::session::Session;
use spanprof_os::ClockCounters;
use spanprof_signal::DropReason;

/// Windows with less CPU time are not judged. A perf event draws an interval of 0.5 to 1.5 periods and uses it for up to 80 ms,
/// so the number of ticks in 5 s deviates by 4 % (one standard deviation).
const MIN_CPU_NS: u64 = 5_000_000_000;
/// Likewise, with fewer due ticks.
const MIN_DUE: u64 = 100;
/// Below this share of the due ticks, in percent, a window is reported.
const MIN_PERCENT: u64 = 80;

/// The counters at the end of the last window.
pub(crate) struct TickCheck {
    before: ClockCounters,
    has_warned: bool,
}

impl TickCheck {
    /// The counters are those of the process: earlier runs are not part of the first window.
    pub fn begin(session: &Session) -> Self {
        let before = session.sampling.clocks.load_full().map(|clocks| clocks.counters()).unwrap_or_default();
        Self { before, has_warned: false }
    }

    /// Logs one warning for the first window with too few ticks.
    pub fn window_closed(&mut self, session: &Session) {
        let Some(clocks) = session.sampling.clocks.load_full() else { return };
        let now = clocks.counters();
        if let Some(line) = line(&self.before, &now) {
            if !std::mem::replace(&mut self.has_warned, true) {
                log(LogLevel::Warning, &line);
            }
        }
        self.before = now;
    }
}

/// The warning, if too few of the ticks that were due between two readings gave a sample.
fn line(before: &ClockCounters, now: &ClockCounters) -> Option<String> {
    let total = |counters: &ClockCounters, index: usize| counters.perf_ticks[index] + counters.timer_ticks[index];
    let [taken, due] = [0, 1].map(|index| total(now, index).saturating_sub(total(before, index)));
    let cpu_ns = now.sampled_cpu_ns.saturating_sub(before.sampled_cpu_ns);
    if cpu_ns < MIN_CPU_NS || due < MIN_DUE || taken * 100 >= due * MIN_PERCENT {
        return None;
    }
    let count = |counters: &ClockCounters, reason| {
        counters.reasons.iter().find(|(lost, _)| *lost == reason).map_or(0, |(_, count)| *count)
    };
    let lost = [DropReason::RingFull, DropReason::SignalBlocked, DropReason::LateTick, DropReason::Reentered];
    let mut reasons: Vec<String> = lost
        .into_iter()
        .map(|reason| (reason.name(), count(now, reason).saturating_sub(count(before, reason))))
        .chain([("clocks rearmed", now.rearmed.saturating_sub(before.rearmed))])
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    if reasons.is_empty() {
        reasons.push("ticks came late and were merged".to_owned());
    }
    Some(format!(
        "spanprof: {taken} of {due} CPU samples that were due in a window were taken ({} %): {}; their CPU time is complete, \
         see clock.ticks and dropped in stats()",
        taken * 100 / due,
        reasons.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(ticks: [u64; 2], blocked: u64) -> ClockCounters {
        ClockCounters {
            sampled_cpu_ns: ticks[1] * 50_000_000,
            perf_ticks: ticks,
            reasons: vec![(DropReason::SignalBlocked, blocked)],
            ..ClockCounters::default()
        }
    }

    #[test]
    fn a_window_with_fewer_than_four_fifths_of_its_ticks_is_reported_with_the_reason() {
        let before = counters([1_000, 1_000], 3);
        assert_eq!(line(&before, &counters([1_080, 1_100], 3)), None);
        let reported = line(&before, &counters([1_079, 1_100], 5)).expect("79 %");
        assert!(reported.contains("79 of 100") && reported.contains("2 signal_blocked"), "{reported}");
        assert!(line(&before, &counters([1_000, 1_200], 3)).expect("0 %").contains("merged"));
        assert_eq!(line(&before, &counters([1_000, 1_099], 3)), None, "too few to judge");
        let short = ClockCounters { sampled_cpu_ns: 54_000_000_000, ..counters([1_000, 1_200], 3) };
        assert_eq!(line(&before, &short), None, "too little CPU time to judge");
    }
}
