//! Starts and stops the heap profile of a session, and collects its statistics. Not here: sampling (`spanprof_signal::heap`),
//! estimates (`heap`), hooks (the runtimes).

use std::sync::Arc;

use crate::host_log::{log, LogLevel};
use crate::session::Session;
use crate::stats::Stats;
use spanprof_aggregate::runtime::HeapRuntime;
use spanprof_config::Config;
use spanprof_signal::heap::{HeapSettings, HEAP};
use spanprof_signal::LiveSet;

/// Starts the heap profile. Without one, logs a warning if it was requested explicitly; `stats()` has the reason.
pub(crate) fn start(session: &Session, config: &Config) {
    match hooks_and_memory(session, config) {
        Ok((heap, live)) => {
            session.sampling.no_heap_reason.store(None);
            HEAP.start(HeapSettings {
                interval: config.heap_interval,
                seed: u64::from_ne_bytes(spanprof_os::random::bytes()),
                max_stack_depth: config.max_stack_depth as usize,
                inbox: session.inbox,
                live,
            });
            heap.sampling_changed();
            // The drain thread begins to check for a new peak.
            session.inbox.wake();
        }
        Err(reason) => {
            let is_known = session.sampling.no_heap_reason.load().as_ref().is_some_and(|logged| **logged == reason);
            if config.is_explicit("heap") && !is_known {
                log(LogLevel::Warning, &format!("spanprof: no heap profile: {reason}"));
            }
            session.sampling.no_heap_reason.store(Some(Arc::new(reason)));
        }
    }
}

/// The installed hooks, and the memory for the objects in use.
fn hooks_and_memory<'s>(
    session: &'s Session,
    config: &Config,
) -> Result<(&'s dyn HeapRuntime, &'static LiveSet), String> {
    let heap = session.runtime.heap().ok_or("this runtime does not support it")?;
    heap.install_hooks()?;
    let live = spanprof_os::live_set(config.heap_live_samples).ok_or("no memory for the live objects")?;
    Ok((heap, live))
}

fn sampling_changed(session: &Session) {
    if let Some(heap) = session.runtime.heap() {
        heap.sampling_changed();
    }
}

/// Before the last drain of a window.
pub(crate) fn submit_outstanding(session: &Session) {
    if let Some(heap) = session.runtime.heap().filter(|_| HEAP.is_running()) {
        heap.submit_outstanding_samples();
    }
}

/// Stops sampling. The objects stay in the live set for the last window.
pub(crate) fn stop(session: &Session) {
    if HEAP.is_running() {
        submit_outstanding(session);
        HEAP.stop();
        sampling_changed(session);
    }
}

/// Empties the live set after [`stop`].
pub(crate) fn forget_objects(session: &Session) {
    if let Some(live) = HEAP.live_set() {
        live.clear();
        sampling_changed(session);
    }
}

/// Follows a change of the configuration.
pub(crate) fn update(session: &Session, before: &Config, config: &Config) {
    if config.heap_interval != before.heap_interval {
        HEAP.set_interval(config.heap_interval);
        if HEAP.is_running() {
            sampling_changed(session);
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
    if let Some(reason) = &*session.sampling.no_heap_reason.load() {
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
