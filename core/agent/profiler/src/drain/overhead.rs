//! Runs the overhead governor on the drain thread: measures each interval and applies changed limits. Not here: the decisions
//! (`crate::governor`).

use std::sync::atomic::Ordering;
use std::sync::Arc;

use crate::governor::{budget_share, Limit, LoadInterval, OverheadCost, INTERVAL_NS};
use crate::host_log::{log, LogLevel};
use crate::session::current::try_with_lifecycle_lock;
use crate::session::Session;

/// An interval may end this much early: at the end of a window, so that each interval has the cost of one.
const TOLERANCE_NS: u64 = INTERVAL_NS / 10;
/// Minimum time between two log lines.
const LOG_INTERVAL_NS: u64 = 300_000_000_000;

/// Measures the overhead per interval, and logs changed limits.
pub(crate) struct OverheadMonitor {
    last: Readings,
    /// Number of processors that the process may use.
    processors: f64,
    has_start: bool,
    /// The last limit that was logged, and when.
    logged: Option<Limit>,
    logged_at_ns: Option<u64>,
}

/// Counters at the beginning of an interval.
struct Readings {
    time_ns: u64,
    cost: OverheadCost,
    process_ns: u64,
    group_ns: Option<u64>,
    /// CPU time of the machine, used and in all, in ticks; `None` where no threshold needs it.
    machine_ticks: Option<[u64; 2]>,
}

impl OverheadMonitor {
    pub fn new(session: &Session) -> Self {
        Self {
            last: Readings::now(session, None),
            processors: f64::from(spanprof_os::allowed_processors()),
            has_start: true,
            logged: None,
            logged_at_ns: None,
        }
    }

    /// Monotonic time at which the interval ends, while a window is open that ends at `window_due_ns`.
    pub fn due_ns(&self, window_due_ns: u64) -> u64 {
        end_ns(self.last.time_ns + INTERVAL_NS, Some(window_due_ns))
    }

    /// Ends the interval if it is due. `window_due_ns`: the end of the open window.
    pub fn check(&mut self, session: &Session, window_due_ns: Option<u64>) {
        if session.config.restarts_accounting.swap(false, Ordering::AcqRel) {
            self.last = Readings::now(session, spanprof_os::cpu_group().and_then(|group| group.used_ns));
        }
        if is_over(spanprof_os::monotonic_ns(), self.last.time_ns + INTERVAL_NS, window_due_ns) {
            // `stop` holds the lock while it waits for this thread; `update` holds it briefly.
            try_with_lifecycle_lock(|| self.end_interval(session));
        }
    }

    fn end_interval(&mut self, session: &Session) {
        let requested = session.config.requested.load_full();
        let group = spanprof_os::cpu_group();
        let readings = Readings::now(session, group.and_then(|group| group.used_ns));
        let last = std::mem::replace(&mut self.last, readings);
        let elapsed_ns = self.last.time_ns.saturating_sub(last.time_ns).max(1);
        let quota = group.map(|group| group.quota);
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let cost = OverheadCost {
            handler_ns: since(self.last.cost.handler_ns, last.cost.handler_ns),
            wall_ns: since(self.last.cost.wall_ns, last.cost.wall_ns),
            other_ns: since(self.last.cost.other_ns, last.cost.other_ns),
        };
        let used_by_process_ns = since(self.last.process_ns, last.process_ns);
        let used_by_group_ns = self.last.group_ns.zip(last.group_ns).map_or(0, |(now, then)| since(now, then));
        let used_by_machine = self
            .last
            .machine_ticks
            .zip(last.machine_ticks)
            .map_or(0.0, |(now, then)| since(now[0], then[0]) as f64 / since(now[1], then[1]).max(1) as f64);
        let available = quota.map_or(self.processors, |quota| quota.min(self.processors));
        let has_threshold = requested.shedding_threshold().is_some() || requested.sample_rate_max.is_some();
        let limit = has_threshold.then(spanprof_os::memory_limit).flatten();
        let load = LoadInterval {
            elapsed_ns,
            cost,
            quota,
            cpu_use: (used_by_process_ns.max(used_by_group_ns) as f64 / (elapsed_ns as f64 * available))
                .max(used_by_machine),
            memory_use: limit.map_or(0.0, |limit| 1.0 - limit.until_bytes as f64 / limit.bytes.max(1) as f64),
            threads: spanprof_os::thread_count().unwrap_or(1),
            has_start: std::mem::take(&mut self.has_start),
        };
        let counters = &session.counters;
        let before = **session.config.governor.load();
        if before.limit().is_some_and(|limit| limit != Limit::AdaptiveRate) {
            counters.governor_limited_seconds.add((elapsed_ns + 500_000_000) / 1_000_000_000);
        }
        let mut governor = before;
        let has_exceeded = governor.step(&requested, &load);
        counters.governor_exceeded_intervals.add(u64::from(has_exceeded));
        counters.governor_cost_ppm.set(ppm(cost.total_ns() as f64 / elapsed_ns as f64));
        counters.governor_budget_ppm.set(budget_share(&requested, quota).map_or(0, ppm));
        session.config.governor.store(Arc::new(governor));
        if governor.limited(&requested) != before.limited(&requested) || governor.limit() != before.limit() {
            counters.governor_changes.add(1);
            session.apply_limits();
            self.log(governor.limit(), governor.comment(&requested));
        }
    }

    /// Logs that a limit began or ended, not more often than [`LOG_INTERVAL_NS`].
    fn log(&mut self, limit: Option<Limit>, comment: String) {
        let limit = limit.filter(|limit| *limit != Limit::AdaptiveRate);
        let is_recent = self.logged_at_ns.is_some_and(|at_ns| self.last.time_ns < at_ns + LOG_INTERVAL_NS);
        if limit == self.logged || is_recent {
            return;
        }
        (self.logged, self.logged_at_ns) = (limit, Some(self.last.time_ns));
        match limit {
            Some(_) => log(LogLevel::Info, &comment),
            None => log(LogLevel::Info, "spanprof governor: the configured rates apply again"),
        }
    }
}

/// End of an interval that is due at `due_ns`: with the open window, if that ends near it. Monotonic times.
fn end_ns(due_ns: u64, window_due_ns: Option<u64>) -> u64 {
    window_due_ns.filter(|window_due_ns| *window_due_ns < due_ns + TOLERANCE_NS).unwrap_or(due_ns)
}

/// Whether the interval ends now. Without a window to wait for, it may end early. If false, `end_ns` is later than now: the
/// drain thread sleeps until then.
fn is_over(now_ns: u64, due_ns: u64, window_due_ns: Option<u64>) -> bool {
    let is_window_awaited =
        window_due_ns.is_some_and(|window_due_ns| window_due_ns > now_ns && window_due_ns < due_ns + TOLERANCE_NS);
    now_ns + TOLERANCE_NS >= due_ns && !is_window_awaited
}

impl Readings {
    fn now(session: &Session, group_ns: Option<u64>) -> Self {
        let clocks = session.sampling.clocks.load();
        let handler_ns = clocks.as_ref().map_or(0, |clocks| {
            let counted = clocks.counters();
            counted.handler_ns + counted.delivery_ns
        });
        let wall_ns = session.counters.wall_cpu_ns.value();
        // Without unwind tables, which are built once for each file: lower rates would not save them.
        let other_ns = spanprof_os::own_cpu_ns().saturating_sub(wall_ns + spanprof_unwind::build_cpu_ns());
        let config = session.config.requested.load();
        let has_cpu_threshold = config.shedding_threshold().is_some() || config.sample_rate_max.is_some();
        Self {
            time_ns: spanprof_os::monotonic_ns(),
            cost: OverheadCost { handler_ns, wall_ns, other_ns },
            process_ns: spanprof_os::process_cpu_ns(),
            group_ns,
            machine_ticks: has_cpu_threshold.then(spanprof_os::machine_cpu_ticks).flatten(),
        }
    }
}

fn ppm(share: f64) -> u64 {
    (share * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE_NS: u64 = 100 * INTERVAL_NS;

    #[test]
    fn an_interval_ends_with_the_window_that_ends_near_it() {
        let second_ns = 1_000_000_000;
        for window_due_ns in [DUE_NS - second_ns / 2, DUE_NS + second_ns / 2] {
            assert!(!is_over(window_due_ns - 1, DUE_NS, Some(window_due_ns)));
            assert!(is_over(window_due_ns, DUE_NS, None));
        }
        assert!(is_over(DUE_NS, DUE_NS, Some(DUE_NS + 5 * second_ns)));
        assert!(!is_over(DUE_NS - 2 * second_ns, DUE_NS, None));
    }

    #[test]
    fn the_drain_thread_sleeps_until_an_interval_ends() {
        let step_ns = 50_000_000;
        for now in 0..80 {
            for window in 1..80 {
                let now_ns = DUE_NS - 2_000_000_000 + now * step_ns;
                let window_due_ns = now_ns + window * step_ns;
                let is_awake = end_ns(DUE_NS, Some(window_due_ns)) <= now_ns;
                assert!(!is_awake || is_over(now_ns, DUE_NS, Some(window_due_ns)), "{now_ns} {window_due_ns}");
            }
        }
    }
}
