//! `/api/services`, `/api/types`, `/api/windows`: what the index of the store has, and the file of one window.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{json, Value};
use spanprof_read::query::{Filter, TypeSummary};

use super::request::{ms, summaries, ApiError, ApiRequest, ApiResult, ResponseContent};
use crate::files::directory;
use crate::files::window::StoredWindow;

/// Sum of several windows' summaries of one service or type.
struct SummaryTotals {
    unit: String,
    types: BTreeSet<String>,
    windows: usize,
    samples: usize,
    total: i64,
    from_unix_nano: u64,
    to_unix_nano: u64,
}

fn totals_by<'a>(
    windows: &'a [Arc<StoredWindow>],
    filter: &'a Filter,
    name: impl Fn(&'a TypeSummary) -> &'a str,
) -> BTreeMap<&'a str, SummaryTotals> {
    let mut totals = BTreeMap::new();
    for summary in summaries(windows, filter) {
        let sum = totals.entry(name(summary)).or_insert_with(|| SummaryTotals {
            unit: summary.unit.clone(),
            types: BTreeSet::new(),
            windows: 0,
            samples: 0,
            total: 0,
            from_unix_nano: u64::MAX,
            to_unix_nano: 0,
        });
        sum.types.insert(summary.type_name.clone());
        sum.windows += 1;
        sum.samples += summary.samples;
        sum.total = sum.total.saturating_add(summary.total);
        sum.from_unix_nano = sum.from_unix_nano.min(summary.from_unix_nano);
        sum.to_unix_nano = sum.to_unix_nano.max(summary.to_unix_nano);
    }
    totals
}

/// The services, with their types.
pub(crate) fn services(request: &ApiRequest) -> ApiResult {
    let windows = request.windows();
    let totals = totals_by(&windows, &request.filter, |summary| &summary.service).into_iter();
    let services = totals.map(|(name, sum)| {
        json!({
            "name": name, "types": sum.types, "samples": sum.samples,
            "from_ms": ms(sum.from_unix_nano), "to_ms": ms(sum.to_unix_nano),
        })
    });
    Ok(json!({"services": services.collect::<Value>()}).into())
}

/// The profile types.
pub(crate) fn types(request: &ApiRequest) -> ApiResult {
    let windows = request.windows();
    let totals = totals_by(&windows, &request.filter, |summary| &summary.type_name).into_iter();
    let types = totals.map(|(name, sum)| {
        json!({
            "type": name, "unit": sum.unit, "windows": sum.windows, "samples": sum.samples, "total": sum.total,
            "from_ms": ms(sum.from_unix_nano), "to_ms": ms(sum.to_unix_nano),
        })
    });
    Ok(json!({"types": types.collect::<Value>()}).into())
}

/// The kept requests, newest first.
pub(crate) fn windows(request: &ApiRequest) -> ApiResult {
    let windows = request.windows();
    let windows = windows.iter().rev().map(|window| {
        json!({
            "name": window.name(), "bytes": window.bytes, "received_ms": window.received_unix_ms,
            "from_ms": ms(window.from_unix_nano), "to_ms": ms(window.to_unix_nano),
        })
    });
    Ok(json!({"windows": windows.collect::<Value>()}).into())
}

/// The unmodified bytes of one kept request. The name must be that of a window in the index, which excludes other paths.
pub(crate) fn window(request: &ApiRequest) -> ApiResult {
    let name = request.path.strip_prefix("/api/windows/").unwrap_or_default();
    let window = request.state.store.windows().into_iter().find(|window| window.name() == name);
    let bytes = window.and_then(|window| directory::read(&window.path).ok());
    let bytes = bytes.ok_or_else(|| ApiError::not_found(request.path))?;
    Ok(ResponseContent { content_type: "application/octet-stream", bytes, windows_left_out: 0 })
}
