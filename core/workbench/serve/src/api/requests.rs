//! `/api/requests` and `/api/request`: endpoints and spans with all profile types, as `spanprof spans` lists them, and one span
//! against the others of its endpoint. `/api/explain`: the findings of `spanprof explain`.

use std::time::Duration;

use serde_json::{json, Value};
use spanprof_answers::spans::{baseline_json, duration_of, SpanOrder, SpansReport};
use spanprof_answers::{explain, span_time as span_time_report};
use spanprof_profile::Link;
use spanprof_read::diagnosis::Diagnosis;
use spanprof_read::query::{
    fold_runtime_code, span_baseline, span_time, Filter, Granularity, SpanGrouping, SpanSubject, SpanTotals,
    WaitSource, COMPARED_TYPES,
};

use super::request::{ApiRequest, ApiResult};
use crate::query::left_out::LeftOut;
use crate::state::server_state::ServerState;

/// Functions of a difference.
const MAX_FUNCTIONS: usize = 12;
/// Types of a span whose functions are compared.
const MAX_COMPARED: usize = 3;
/// Time before and after a span whose windows are compared with it: the longest with at most [`MAX_WINDOWS_BESIDE`] windows. More
/// would answer later than within a second, for the same endpoint at another load.
const AROUND: [Duration; 4] =
    [Duration::from_secs(600), Duration::from_secs(150), Duration::from_secs(40), Duration::from_secs(10)];
const MAX_WINDOWS_BESIDE: usize = 32;

/// The endpoints, or the spans of one.
pub(crate) fn table(request: &ApiRequest) -> ApiResult {
    let grouping = match request.parameter("by") {
        None | Some("endpoint") => SpanGrouping::Endpoint,
        Some("span") => SpanGrouping::Span,
        Some("trace") => SpanGrouping::Trace,
        Some(other) => return Err(format!("`by`: expected endpoint, span or trace, got `{other}`").into()),
    };
    let sort = match request.parameter("sort") {
        None | Some("cpu") => SpanOrder::Cpu,
        Some("alloc") => SpanOrder::Alloc,
        Some("wait") => SpanOrder::Wait,
        Some("errors") => SpanOrder::Errors,
        Some("duration") => SpanOrder::Duration,
        Some(other) => {
            return Err(format!("`sort`: expected cpu, alloc, wait, errors or duration, got `{other}`").into())
        }
    };
    let limit = request.limit()?;
    let (totals, left_out) = request.state.store.span_totals(&request.filter);
    let wait = WaitSource::of(&totals.type_names());
    let mut table = totals.table(grouping, |row| sort.weight(row, wait));
    if let Some(endpoint) = request.parameter("endpoint") {
        table.rows.retain(|row| row.endpoint == endpoint);
    }
    Ok(left_out.with(SpansReport { table: &table, grouping, sort, wait, limit }.json()).into())
}

/// One span or trace beside the mean of the others of its endpoint: where its time went, and the functions that differ.
pub(crate) fn one(request: &ApiRequest) -> ApiResult {
    let ApiRequest { state, filter, .. } = request;
    let subject = match (filter.span_id, filter.trace_id) {
        (Some(span_id), trace_id) => SpanSubject::Span(Link { trace_id: trace_id.unwrap_or_default(), span_id }),
        (None, Some(trace_id)) => SpanSubject::Trace(trace_id),
        (None, None) => return Err("expected `span_id` or `trace_id`".to_owned().into()),
    };
    let (range, unread) = range_of(state, filter);
    let Some(range) = range else { return Ok(unread.with(json!({"found": false})).into()) };
    let (near, around) = around(state, filter, range);
    let mut totals = SpanTotals::with_categories(None);
    let mut by_type = COMPARED_TYPES.map(|name| SpanTotals::with_functions(None, name, Granularity::Function));
    let left_out = unread.and(state.store.for_each_window(&near, |mut data| {
        totals.add(&data);
        fold_runtime_code(&mut data);
        by_type.iter_mut().for_each(|totals| totals.add(&data));
    }));
    let Some(time) = span_time(&totals, subject) else { return Ok(left_out.with(json!({"found": false})).into()) };
    let span = &time.subject;
    // Types that it lacks, and spans without an endpoint, have none.
    let baselines = by_type.iter().filter_map(|totals| span_baseline(totals, &time, None).ok());
    let differences: Value =
        baselines.take(MAX_COMPARED).map(|baseline| baseline_json(&baseline, true, MAX_FUNCTIONS)).collect();
    Ok(left_out.with(json!({
        "found": true, "trace_id": hex::encode(span.link.trace_id), "span_id": filter.span_id.map(hex::encode),
        "service": span.service, "endpoint": span.endpoint, "first_ms": span.first_unix_nano / 1_000_000,
        "duration_ns": duration_of(span),
        "spans": span.spans, "type": time.main_type(), "time": span_time_report::json(&time), "differences": differences,
        "others_within_s": around.as_secs(), "hints": explain::request_hints(&time),
    }))
    .into())
}

/// Begin and end of the profiles with samples of the filter's span or trace, and the windows left out.
fn range_of(state: &ServerState, filter: &Filter) -> (Option<(u64, u64)>, LeftOut) {
    let mut range: Option<(u64, u64)> = None;
    let left_out = state.store.for_each_window(&Filter { type_name: None, ..filter.clone() }, |data| {
        for (_, profile) in data.profiles().filter(|(_, profile)| !profile.samples.is_empty()) {
            let (from, to) = range.unwrap_or((profile.time_unix_nano, profile.end_unix_nano()));
            range = Some((from.min(profile.time_unix_nano), to.max(profile.end_unix_nano())));
        }
    });
    (range, left_out)
}

/// The windows with which a span or trace of this range is compared, and the time around it.
fn around(state: &ServerState, filter: &Filter, (from, to): (u64, u64)) -> (Filter, Duration) {
    let within = |around: Duration| {
        let ns = around.as_nanos() as u64;
        let (from, to) = (from.saturating_sub(ns), to.saturating_add(ns));
        Filter {
            from_unix_nano: Some(filter.from_unix_nano.map_or(from, |begin| begin.max(from))),
            to_unix_nano: Some(filter.to_unix_nano.map_or(to, |end| end.min(to))),
            span_id: None,
            trace_id: None,
            type_name: None,
            ..filter.clone()
        }
    };
    let is_few = |around: &Duration| state.store.count_windows(&within(*around)) <= MAX_WINDOWS_BESIDE;
    let around = AROUND.into_iter().find(is_few).unwrap_or(AROUND[AROUND.len() - 1]);
    (within(around), around)
}

/// The findings of `spanprof explain`; their commands read from this server.
pub(crate) fn findings(request: &ApiRequest) -> ApiResult {
    let ApiRequest { state, filter, .. } = request;
    let mut diagnosis = Diagnosis::default();
    let everything = Filter { type_name: None, ..filter.clone() };
    let left_out = state.store.for_each_part(&everything, |data| diagnosis.add(&data));
    let source = format!("http://{}", state.addresses.http);
    Ok(left_out.with(explain::json(&diagnosis, &diagnosis.findings(), &[source])).into())
}
