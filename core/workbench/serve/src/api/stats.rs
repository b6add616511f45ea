//! `/api/stats`: addresses, and counters of the store and of received requests.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{json, Value};

use super::request::{ms, ApiRequest, ApiResult};

/// What is discarded when an hour replaces its windows.
const HOURS_LACK: [&str; 5] = [
    "timestamps of samples: totals are per minute, stacks per hour",
    "labels of single windows: a label is of the hour",
    "labels with more than 100 values",
    "samples of single spans, except for the 200 heaviest of each profile type; sums of at most 8,000 spans stay",
    "states within the hour, such as memory in use: its last one and the totals of each minute stay",
];

pub(crate) fn answer(request: &ApiRequest) -> ApiResult {
    let state = request.state;
    let windows = state.store.windows();
    let (intake, store) = (&state.counters, &state.store.counters);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let hours = || windows.iter().filter(|window| window.is_rollup);
    let trace_urls = state.settings.trace_urls.iter().map(|link| json!({"name": link.name, "url": link.url}));
    let trace_urls = trace_urls.collect::<Value>();
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": state.started.elapsed().as_secs(),
        "grpc": state.addresses.grpc.to_string(),
        "http": state.addresses.http.to_string(),
        "dir": state.store.directory().to_string_lossy(),
        "trace_urls": trace_urls,
        "indexing": state.store.is_indexing(),
        "windows": windows.len(),
        "bytes": windows.iter().map(|window| window.bytes).sum::<u64>(),
        "rollups": state.store.rollups().0,
        "rollup_bytes": state.store.rollups().1,
        "hours": hours().count(),
        "hours_to_ms": hours().map(|hour| ms(hour.to_unix_nano)).max(),
        "hours_lack": HOURS_LACK,
        "replaced_windows": count(&store.replaced),
        "received_requests": count(&intake.requests),
        "received_bytes": count(&intake.bytes),
        "received_samples": count(&intake.samples),
        "duplicate_profiles": count(&intake.duplicate_profiles),
        "refused_invalid": count(&intake.refused_invalid),
        "refused_too_large": count(&intake.refused_too_large),
        "refused_too_slow": count(&intake.refused_too_slow),
        "refused_unavailable": count(&intake.refused_unavailable),
        "broken_off": count(&intake.broken),
        "removed_by_size": count(&store.removed_by_size),
        "removed_by_age": count(&store.removed_by_age),
        "unreadable_files": count(&store.unreadable_files),
    })
    .into())
}
