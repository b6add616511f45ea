//! Collects the values of `stats()`: counters of engine, clocks, destinations and tables, and the configuration.

use crate::governor::Limit;
use crate::session::{heap_profile, Session};
use crate::stats::Stats;
use spanprof_aggregate::context::opened_and_refused;
use spanprof_aggregate::sample_rate::LOCK_THRESHOLD;
use spanprof_aggregate::{labels, thread_names, Counters};
use spanprof_config::Config;
use spanprof_export::{DestinationStats, MetricsStats, RemovedFiles};
use spanprof_os::ClockCounters;
use spanprof_signal::DropReason;
use spanprof_unwind::WalkEnd;

/// All statistics.
pub(crate) fn stats(session: Option<&Session>, config: &Config) -> Stats {
    let mut stats = Stats::default();
    stats.text("state", state(session, config));
    match session {
        Some(session) => session_stats(session, &mut stats),
        None => stats.add_counters(&Counters::default()),
    }
    table_stats(&mut stats);
    let effective = session.map(|session| session.config.governor.load().limited(&session.config.requested.load()));
    config_stats(effective.as_ref().unwrap_or(config), &mut stats);
    stats
}

/// Losses of this run by reason, without zeroes.
pub(crate) fn losses(session: &Session) -> Vec<(&'static str, u64)> {
    let mut stats = Stats::default();
    stats.add_counters(&session.counters);
    clock_stats(session, &mut stats);
    DropReason::ALL
        .iter()
        .map(|reason| {
            let before =
                session.sampling.losses_before.iter().find(|(lost, _)| lost == reason).map_or(0, |(_, count)| *count);
            (reason.name(), stats.counter(&format!("dropped.{}", reason.name())).saturating_sub(before))
        })
        .filter(|(_, count)| *count > 0)
        .collect()
}

fn state(session: Option<&Session>, config: &Config) -> String {
    match (session, &config.disabled_by) {
        (Some(session), _) if session.counters.panics.value() > 0 => "failed".to_owned(),
        (Some(session), _) if session.config.safe_mode => "safe_mode".to_owned(),
        (Some(session), _) if session.is_running() => "running".to_owned(),
        (Some(session), _) if session.is_alive() => "disabled by enabled=false".to_owned(),
        (Some(_), _) => "stopped".to_owned(),
        (None, Some(switch)) => format!("disabled by {switch}"),
        // A handle of the parent in a forked child.
        (None, None) => "stopped".to_owned(),
    }
}

fn session_stats(session: &Session, stats: &mut Stats) {
    stats.add_counters(&session.counters);
    clock_stats(session, stats);
    heap_profile::append_stats(session, stats);
    stats.count("lock.threshold", LOCK_THRESHOLD.get().unwrap_or(0));
    append_pulls(session, stats);
    append_governor(session, stats);
    if let Some(limit) = spanprof_os::memory_limit() {
        stats.count("memory.limit_bytes", limit.bytes);
        stats.count("memory.until_limit_bytes", limit.until_bytes);
    }
    stats.count("memory.reserve_bytes", spanprof_os::reserve_bytes_served());
    stats.count("process.children_cut_off", spanprof_os::children_cut_off());
    let destinations = session.outputs.delivery.as_ref().map(|delivery| delivery.stats()).unwrap_or_default();
    for (index, destination) in destinations.iter().enumerate() {
        destination_stats(index, destination, stats);
    }
    let receivers = session.outputs.delivery.as_ref().map(|delivery| delivery.metrics_stats()).unwrap_or_default();
    for (index, receiver) in receivers.into_iter().enumerate() {
        metrics_stats(index, receiver, stats);
    }
    let mut runtime_stats = Vec::new();
    session.runtime.stats(&mut runtime_stats);
    for (name, value) in runtime_stats {
        match value.parse::<u64>() {
            Ok(count) => stats.count(format!("runtime.{name}"), count),
            Err(_) => stats.text(format!("runtime.{name}"), value),
        }
    }
}

fn clock_stats(session: &Session, stats: &mut Stats) {
    let clocks = session.sampling.clocks.load_full();
    // Lock-free: the drain thread holds locks during a scan.
    let (in_use, counted) = match &clocks {
        Some(clocks) => (Some(clocks.in_use()), clocks.counters()),
        None => (None, ClockCounters::default()),
    };
    if let Some(in_use) = in_use {
        stats.text("clock.name", in_use.name);
        stats.text("clock.reason", in_use.reason);
        stats.count("clock.kernel_tick_hz", u64::from(in_use.kernel_tick_hz));
        stats.count("clock.signal", in_use.signal.unsigned_abs().into());
    } else {
        stats.text("clock.name", "none");
    }
    for (clock, [taken, due]) in [("perf", counted.perf_ticks), ("thread_timer", counted.timer_ticks)] {
        stats.count(format!("clock.ticks.{clock}"), taken);
        stats.count(format!("clock.ticks_due.{clock}"), due);
    }
    stats.count("clock.handler_ns", counted.handler_ns);
    stats.count("clock.walk_ns", counted.walk_ns);
    stats.count("clock.delivery_ns", counted.delivery_ns);
    stats.count("clock.threads", counted.threads);
    stats.count("clock.threads_refused", counted.threads_refused);
    stats.count("clock.signals_forwarded", counted.foreign_forwarded);
    stats.count("clock.signals_stray", counted.stray);
    stats.count("clock.guarded_faults", counted.faults);
    stats.count("clock.scans", counted.scans);
    stats.count("clock.rearmed", counted.rearmed);
    let tables = spanprof_unwind::stats();
    stats.count("native.tables", tables.tables as u64);
    stats.count("native.table_bytes", tables.bytes as u64);
    stats.count("native.tables_left_out", tables.left_out as u64);
    for end in WalkEnd::ALL {
        stats.count(format!("native.walk_ends.{}", end.name()), end.counted());
    }
    for reason in DropReason::ALL {
        let of_clocks = counted.reasons.iter().find(|(lost, _)| lost == reason).map_or(0, |(_, count)| *count);
        stats.count(format!("dropped.{}", reason.name()), of_clocks);
    }
    // Not those of the clocks, which restart with `enabled` and `cpu`.
    let [process_before, own_before] = session.process.cpu_before_ns;
    let own_ns = spanprof_os::own_cpu_ns().saturating_sub(own_before);
    let process_ns = spanprof_os::process_cpu_ns().saturating_sub(process_before);
    stats.count("cost.own_cpu_ns", own_ns);
    stats.count("cost.process_cpu_ns", process_ns);
}

fn destination_stats(index: usize, destination: &DestinationStats, stats: &mut Stats) {
    let name = |field: &str| format!("export.{index}.{field}");
    stats.text(name("kind"), destination.kind);
    stats.text(name("target"), destination.target.clone());
    stats.count(name("enqueued"), destination.enqueued);
    stats.count(name("sent"), destination.sent);
    stats.count(name("sent_samples"), destination.sent_samples);
    stats.count(name("sent_bytes"), destination.sent_bytes);
    stats.count(name("retries"), destination.retries);
    stats.count(name("splits"), destination.splits);
    stats.count(name("rejected_profiles"), destination.rejected_profiles);
    for reason in spanprof_export::DiscardReason::ALL {
        stats.count(name(&format!("dropped_{}", reason.name())), destination.dropped(*reason).payloads);
    }
    stats.count(name("dropped_samples"), destination.dropped_total().samples);
    stats.count(name("queue_payloads"), destination.queue_payloads as u64);
    stats.count(name("queue_bytes"), destination.queue_bytes as u64);
    stats.count(name("buffer_payloads"), destination.buffer_payloads as u64);
    stats.count(name("buffer_bytes"), destination.buffer_bytes);
    stats.count(name("buffer_adopted"), destination.buffer_adopted);
    stats.count(name("buffer_left"), destination.buffer_left);
    stats.count(name("buffer_errors"), destination.buffer_errors);
    let RemovedFiles { keep, max_age, max_bytes } = destination.files_removed;
    for (limit, count) in [("keep", keep), ("max_age", max_age), ("max_bytes", max_bytes)] {
        stats.count(name(&format!("files_removed_{limit}")), count);
    }
    stats.text(name("last_error"), destination.last_error.clone().unwrap_or_default());
    stats.text(name("last_warning"), destination.last_warning.clone().unwrap_or_default());
    if destination.panics > 0 {
        stats.count("internal.panics", destination.panics);
    }
}

fn metrics_stats(index: usize, receiver: MetricsStats, stats: &mut Stats) {
    let name = |field: &str| format!("metrics.{index}.{field}");
    stats.text(name("target"), receiver.target);
    stats.count(name("sent"), receiver.sent);
    stats.count(name("failed"), receiver.failed);
    stats.text(name("last_error"), receiver.last_error.unwrap_or_default());
    if receiver.panics > 0 {
        stats.count("internal.panics", receiver.panics);
    }
}

fn table_stats(stats: &mut Stats) {
    let tables = labels::tables();
    let losses = tables.losses();
    let (opened, refused) = opened_and_refused();
    stats.count("contexts.opened", opened);
    stats.count("contexts.refused", refused);
    stats.count("labels.sets", tables.set_count() as u64);
    stats.count("labels.bytes", tables.used_bytes());
    stats.count("labels.values_truncated", losses.values_truncated);
    stats.count("labels.values_replaced", losses.values_replaced);
    stats.count("labels.dropped", losses.labels_dropped);
    stats.count("labels.thread_names_dropped", thread_names::dropped());
}

fn config_stats(config: &Config, stats: &mut Stats) {
    for (key, value, source) in config.entries() {
        stats.text(format!("config.{key}"), value);
        stats.text(format!("config.{key}.source"), source.to_string());
    }
    stats.text("config.warnings", config.warnings.join("\n"));
}

/// Values for `stats()`.
fn append_pulls(session: &Session, stats: &mut Stats) {
    if let Some(listener) = session.pull.listener.get() {
        let counts = listener.counts();
        stats.text("pull.address", listener.address().to_string());
        stats.count("pull.connections", counts.accepted);
        stats.count("pull.incomplete", counts.incomplete);
        stats.count("pull.overloaded", counts.overloaded);
        stats.count("pull.rebound", counts.rebound);
    }
}

/// The governor's values of `stats()` that are not counters.
fn append_governor(session: &Session, stats: &mut Stats) {
    let (governor, requested) = (session.config.governor.load(), session.config.requested.load());
    let config = session.config.active.load();
    let (raised, limited) = governor.limit().into_iter().partition::<Vec<_>, _>(|limit| *limit == Limit::AdaptiveRate);
    for (name, limits) in [("governor.limited_by", limited), ("governor.raised_by", raised)] {
        stats.text(name, limits.first().map_or("", |limit| limit.key()));
    }
    stats.text("governor.shed", governor.shed_types(&requested).join(","));
    stats.count("governor.sample_rate", u64::from(config.sample_rate));
    stats.count("governor.wall_rate", u64::from(crate::wall::pace::rate_hz(&config)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_without_an_error_has_an_empty_last_error() {
        let mut stats = Stats::default();
        destination_stats(0, &DestinationStats::default(), &mut stats);
        assert_eq!(stats.get("export.0.last_error"), Some(&spanprof_aggregate::StatValue::Text(String::new())));
    }
}
