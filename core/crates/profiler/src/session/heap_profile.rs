//! Starts and stops the heap profile of a session, and collects its statistics. Not here: sampling (`spanprof_signal::heap`),
//! estimates (`heap`), hooks (the runtimes).

use std::sync::Arc;

use crate::host_log::{log, LogLevel};
use crate::session::Session;
use crate::stats::Stats;
use spanprof_config::Config;
use spanprof_signal::heap::{HeapSettings, HEAP};
use spanprof_signal::LiveSet;

/// Starts the heap profile. Without one, logs a warning if it was requested explicitly; `stats()` has the reason.
pub(crate) fn start(session: &Session, config: &Config) {
    let live = session.runtime.install_heap_hooks().and_then(|()| {
        spanprof_os::live_set(config.heap_live_samples).ok_or_else(|| "no memory for the live objects".to_owned())
    });
    match live {
        Ok(live) => {
            session.no_heap_reason.store(None);
            HEAP.start(HeapSettings {
                interval: config.heap_interval,
                seed: u64::from_ne_bytes(spanprof_os::random::bytes()),
                max_stack_depth: config.max_stack_depth as usize,
                inbox: session.inbox,
                live,
            });
            session.runtime.heap_sampling_changed();
            // The drain thread begins to check for a new peak.
            session.inbox.wake();
        }
        Err(reason) => {
            let is_known = session.no_heap_reason.load().as_ref().is_some_and(|known| **known == reason);
            if config.is_explicit("heap") && !is_known {
                log(LogLevel::Warning, &format!("spanprof: no heap profile: {reason}"));
            }
            session.no_heap_reason.store(Some(Arc::new(reason)));
        }
    }
}

/// Before the last drain of a window.
pub(crate) fn submit_outstanding(session: &Session) {
    if HEAP.is_running() {
        session.runtime.submit_outstanding_samples();
    }
}

/// Stops sampling. The objects stay in the live set for the last window.
pub(crate) fn stop(session: &Session) {
    if HEAP.is_running() {
        session.runtime.submit_outstanding_samples();
        HEAP.stop();
        session.runtime.heap_sampling_changed();
    }
}

/// Empties the live set after [`stop`].
pub(crate) fn forget_objects(session: &Session) {
    if let Some(live) = HEAP.live_set() {
        live.clear();
        session.runtime.heap_sampling_changed();
    }
}

/// Follows a change of the configuration.
pub(crate) fn update(session: &Session, before: &Config, config: &Config) {
    if config.heap_interval != before.heap_interval {
        HEAP.set_interval(config.heap_interval);
        if HEAP.is_running() {
            session.runtime.heap_sampling_changed();
        }
    }
    match (before.heap, config.heap && session.is_running()) {
        (false, true) => start(session, config),
        (true, false) => {
            stop(session);
            forget_objects(session);
        }
        _ => {}
    }
}

/// Values for `stats()`.
pub(crate) fn append_stats(session: &Session, stats: &mut Stats) {
    if let Some(reason) = &*session.no_heap_reason.load() {
        stats.text("heap.reason", reason.as_str());
    }
    let counts = HEAP.counts();
    stats.count("heap.samples", counts.samples);
    stats.count("heap.samples_freed", counts.freed);
    stats.count("heap.live_samples", HEAP.live_set().map_or(0, LiveSet::len));
    stats.count("heap.interval", if HEAP.is_running() { HEAP.interval() } else { 0 });
    stats.count("dropped.heap_busy", counts.busy);
    stats.count("dropped.heap_ring_full", counts.ring_full);
    stats.count("dropped.heap_live", counts.lost_live);
}
