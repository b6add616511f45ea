//! The JSON API under `/api/`, for the page and for the verbs that query a running server. All accept the same filters as
//! query parameters: `service type label trace_id span_id from to`. Called by `route` after the Host check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, VARY};
use hyper::{Request, StatusCode};
use serde_json::{json, Value};
use spanprof_profile::encode::{folded, otlp, page, pprof};
use spanprof_profile::transform::{self, StackTree};
use spanprof_profile::ProfilesData;
use spanprof_read::query::{self, Filter, Granularity, LabelMatcher, MatchOperator, TopTable};

use super::comparison;
use super::flame::{self, FlameRequest};
use super::function::{self, FunctionRequest};
use super::requests;
use super::selected_windows::{summaries, windows};
use super::stack_view::{self, StackView};
use super::timeline::{self, ms};
use super::top::{self, TopRequest};
use crate::answers::{self, LEFT_OUT_HEADER};
use crate::detail::Detail;
use crate::gzip::gzip;
use crate::moment::unix_ns;
use crate::serve::files::directory;
use crate::serve::files::window::StoredWindow;
use crate::serve::query::label_groups;
use crate::serve::query::queries::QueryResult;
use crate::serve::reply::{self, Reply};
use crate::serve::state::server_state::ServerState;
use crate::{query_string, selection};

const JSON: &str = "application/json";
/// Rows of a list when the request has no limit.
const DEFAULT_ROWS: usize = 200;
/// Windows of which an exported page has the labels: an hour. They are read one by one, and sums have no labels.
const LABELED_WINDOWS: usize = 360;
/// Smaller responses are not compressed.
const MIN_GZIP_BYTES: usize = 2048;

/// What is discarded when an hour replaces its windows.
const HOURS_LACK: [&str; 5] = [
    "timestamps of samples: totals are per minute, stacks per hour",
    "labels of single windows: a label is of the hour",
    "labels with more than 100 values",
    "samples of single spans, except for the 200 heaviest of each profile type; sums of at most 8,000 spans stay",
    "states within the hour, such as memory in use: its last one and the totals of each minute stay",
];

struct ResponseContent {
    content_type: &'static str,
    bytes: Vec<u8>,
    windows_left_out: usize,
}

/// The body, or a status and a message.
type ApiResult = Result<ResponseContent, (StatusCode, String)>;

pub(crate) async fn respond(state: &Arc<ServerState>, path: &str, request: &Request<Incoming>) -> Reply {
    let accepts_gzip = request
        .headers()
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip")));
    let path = path.to_owned();
    let parameters = query_string::parse(request.uri().query().unwrap_or(""));
    let shared = state.clone();
    let work = move || {
        outcome(&shared, &path, &parameters).map(|content| {
            let is_gzipped = accepts_gzip && content.bytes.len() >= MIN_GZIP_BYTES;
            let bytes = if is_gzipped { gzip(&content.bytes) } else { content.bytes };
            (ResponseContent { bytes, ..content }, is_gzipped)
        })
    };
    let outcome = match state.query_slots.run(work).await {
        Ok(outcome) => outcome,
        Err(message) => Err((StatusCode::INTERNAL_SERVER_ERROR, message)),
    };
    let mut response = match outcome {
        Ok((content, is_gzipped)) => {
            let mut response = reply::body(StatusCode::OK, content.content_type, content.bytes);
            if content.windows_left_out > 0 {
                response.headers_mut().insert(LEFT_OUT_HEADER, content.windows_left_out.into());
            }
            if is_gzipped {
                reply::set(&mut response, CONTENT_ENCODING, "gzip");
            }
            response
        }
        Err((status, message)) => reply::body(status, JSON, json!({"error": message}).to_string()),
    };
    reply::set(&mut response, CACHE_CONTROL, "no-store");
    reply::set(&mut response, VARY, "accept-encoding");
    response
        .headers_mut()
        .insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    response
}

/// Rejects unknown parameters: a misspelt filter would otherwise be ignored.
fn refuse_unknown(path: &str, parameters: &[(String, String)]) -> Result<(), (StatusCode, String)> {
    let own: &[&str] = match path {
        "/api/top" => &top::PARAMETERS,
        "/api/flamegraph" => &flame::PARAMETERS,
        "/api/function" => &function::PARAMETERS,
        "/api/timeline" => &timeline::PARAMETERS,
        "/api/labels" => &["limit", "weights"],
        "/api/profile" => &["format", "detail"],
        "/api/diff" => &comparison::PARAMETERS,
        "/api/requests" => &requests::TABLE_PARAMETERS,
        _ => &[],
    };
    let of_stacks: &[&str] = match path {
        "/api/top" | "/api/flamegraph" | "/api/function" | "/api/timeline" | "/api/diff" => &stack_view::SELECTION,
        _ => &[],
    };
    let accepted = || selection::PARAMETERS.iter().chain(own).chain(of_stacks).copied();
    match parameters.iter().find(|(name, _)| !accepted().any(|accepted| accepted == name)) {
        None => Ok(()),
        Some((name, _)) => {
            let accepted: Vec<_> = accepted().collect();
            let message = format!("unknown parameter `{name}` of {path}: expected one of {}", accepted.join(", "));
            Err((StatusCode::BAD_REQUEST, message))
        }
    }
}

fn bad_request(message: String) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, message)
}

fn outcome(state: &ServerState, path: &str, parameters: &[(String, String)]) -> ApiResult {
    refuse_unknown(path, parameters)?;
    let filter = selection::of_parameters(parameters, unix_ns()).map_err(bad_request)?;
    let parameter = |name: &str| parameters.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    let owned_parameter = |name: &str| parameter(name).map(str::to_owned);
    let limit = || match parameter("limit") {
        None => Ok(DEFAULT_ROWS),
        Some(text) => {
            text.parse().map_err(|_| (StatusCode::BAD_REQUEST, format!("`limit`: expected a number, got `{text}`")))
        }
    };
    let view = StackView::parse(parameters).map_err(bad_request)?;
    let stacks = || state.store.query(&filter, Detail::Stacks);
    let json = match path {
        "/api/services" => services(&windows(state, &filter), &filter),
        "/api/types" => types(&windows(state, &filter), &filter),
        "/api/labels" if parameter("weights") == Some("1") => {
            let result = state.store.query(&filter, Detail::LabelsOnly);
            let type_name = selection::type_to_show(&result.data, &filter);
            let table = query::labels(&result.data, &type_name);
            let mut members = answers::labels::members(&table, &type_name, limit()?);
            // Equal label sets are merged: the sum of the values tells how many observations of a label they are, or nothing does.
            let samples = result.samples_of(&type_name);
            if samples != table.samples {
                let labels = members.get_mut("labels").and_then(Value::as_array_mut).into_iter().flatten();
                labels.for_each(|label| label["samples"] = Value::Null);
            }
            members.insert("samples".to_owned(), samples.into());
            result.with_completeness(members)
        }
        "/api/labels" => labels(&windows(state, &filter), &filter),
        "/api/timeline" => timeline::respond(state, &filter, &view, parameter("by")).map_err(bad_request)?,
        "/api/windows" => window_list(&windows(state, &filter)),
        "/api/stats" => stats(state),
        "/api/requests" => requests::table(state, &filter, owned_parameter, limit()?).map_err(bad_request)?,
        "/api/explain" => requests::findings(state, &filter),
        "/api/request" => requests::one(state, &filter).map_err(bad_request)?,
        "/api/top" => {
            let request = TopRequest::parse(owned_parameter).map_err(bad_request)?;
            let result = stacks();
            let beside_filter = request.beside_filter(&filter);
            let beside = beside_filter.map(|filter| (state.store.query(&filter, Detail::Stacks), filter));
            let beside_table = beside.as_ref().map(|(result, filter)| top_table(state, result, filter, &view));
            let table = top_table(state, &result, &filter, &view);
            let mut members = request.members(&table, beside_table.as_deref());
            // The number of samples per stack is not kept.
            let samples = (!view.has_filters()).then(|| result.samples_of(&table.type_name));
            members.insert("samples".to_owned(), samples.into());
            let results = beside.iter().map(|(result, _)| result).chain([&result]);
            let least_complete = results.max_by_key(|result| result.left_out.windows).unwrap_or(&result);
            let mut answer = least_complete.with_completeness(members);
            answer["windows"] = result.windows.into();
            answer
        }
        "/api/flamegraph" => {
            let request = FlameRequest::parse(owned_parameter).map_err(bad_request)?;
            let result = match view.group() {
                None => stacks(),
                Some(key) => state.store.query(&filter, Detail::OneLabel(key.to_owned())),
            };
            let whole = || stack_tree(state, &result, &filter, &view);
            let tree = if request.is_folded() {
                let key = view.tree_key().to_owned() + &request.folding_key(whole);
                state.trees.get(&result, filter.type_name.as_deref(), &key, || {
                    let whole = whole();
                    let folded = whole.folded(request.unfolded());
                    if view.group().is_some() {
                        label_groups::in_order_of(&whole, folded)
                    } else {
                        folded
                    }
                })
            } else {
                whole()
            };
            let bytes = request.response(&result, &tree, view.is_inverted()).into_bytes();
            return Ok(ResponseContent { content_type: JSON, bytes, windows_left_out: 0 });
        }
        "/api/function" => {
            let request = FunctionRequest::parse(owned_parameter).map_err(bad_request)?;
            let result = stacks();
            let tree = stack_tree(state, &result, &filter, &view.as_called());
            let commit = commit(&windows(state, &filter), &filter);
            let data = view.data(&result);
            result.with_completeness(request.members(&tree, &data, &state.settings, commit.as_deref()))
        }
        "/api/diff" => {
            let text = comparison::json(state, &filter, &view, owned_parameter, limit()?);
            let bytes = text.map_err(bad_request)?.into_bytes();
            return Ok(ResponseContent { content_type: JSON, bytes, windows_left_out: 0 });
        }
        "/api/profile" => {
            let format = parameter("format").unwrap_or("otlp");
            let result = match (parameter("detail"), format) {
                (None, "flamegraph") if windows(state, &filter).len() <= LABELED_WINDOWS => {
                    state.store.query(&filter, Detail::Labels)
                }
                (Some("stacks"), _) | (None, "folded" | "flamegraph") => stacks(),
                _ => state.store.query(&filter, Detail::Everything),
            };
            return profile(&result, &filter, format);
        }
        _ => {
            let name = path.strip_prefix("/api/windows/").unwrap_or("");
            return window_bytes(state, name).ok_or((StatusCode::NOT_FOUND, format!("{path} does not exist")));
        }
    };
    Ok(ResponseContent { content_type: JSON, bytes: json.to_string().into_bytes(), windows_left_out: 0 })
}

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
    name: impl Fn(&'a query::TypeSummary) -> &'a str,
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

fn services(windows: &[Arc<StoredWindow>], filter: &Filter) -> Value {
    let totals = totals_by(windows, filter, |summary| &summary.service).into_iter();
    let services = totals.map(|(name, sum)| {
        json!({
            "name": name, "types": sum.types, "samples": sum.samples,
            "from_ms": ms(sum.from_unix_nano), "to_ms": ms(sum.to_unix_nano),
        })
    });
    json!({"services": services.collect::<Value>()})
}

fn types(windows: &[Arc<StoredWindow>], filter: &Filter) -> Value {
    let totals = totals_by(windows, filter, |summary| &summary.type_name).into_iter();
    let types = totals.map(|(name, sum)| {
        json!({
            "type": name, "unit": sum.unit, "windows": sum.windows, "samples": sum.samples, "total": sum.total,
            "from_ms": ms(sum.from_unix_nano), "to_ms": ms(sum.to_unix_nano),
        })
    });
    json!({"types": types.collect::<Value>()})
}

fn labels(windows: &[Arc<StoredWindow>], filter: &Filter) -> Value {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for service in windows.iter().flat_map(|window| &window.services) {
        if filter.service.as_ref().is_none_or(|name| *name == service.name) {
            for (name, values) in service.labels.iter() {
                labels.entry(name).or_default().extend(values.iter().map(String::as_str));
            }
        }
    }
    let labels = labels.into_iter().map(|(name, values)| json!({"name": name, "values": values}));
    json!({"labels": labels.collect::<Value>()})
}

fn top_table(state: &ServerState, result: &Arc<QueryResult>, filter: &Filter, view: &StackView) -> Arc<TopTable> {
    state.tables.get(result, filter.type_name.as_deref(), &view.selection().key, || {
        let data = view.data(result);
        query::top(&data, &selection::type_to_show(&data, filter), Granularity::Function)
    })
}

fn stack_tree(state: &ServerState, result: &Arc<QueryResult>, filter: &Filter, view: &StackView) -> Arc<StackTree> {
    state.trees.get(result, filter.type_name.as_deref(), view.tree_key(), || {
        let data = view.data(result);
        view.tree(&data, &selection::type_to_show(&data, filter))
    })
}

/// The commit of the program: the selected one, else that of the newest window.
fn commit(windows: &[Arc<StoredWindow>], filter: &Filter) -> Option<String> {
    let is_selected = |label: &&LabelMatcher| label.key == function::COMMIT && label.operator == MatchOperator::Equal;
    let selected = filter.labels.iter().find(is_selected).map(|label| label.value.clone());
    let services = windows.iter().rev().flat_map(|window| &window.services);
    let mut of_service = services.filter(|service| filter.service.as_ref().is_none_or(|name| *name == service.name));
    selected.or_else(|| of_service.find_map(|service| service.labels.get(function::COMMIT)?.last().cloned()))
}

fn profile(result: &QueryResult, filter: &Filter, format: &str) -> ApiResult {
    let tree = || transform::tree(&result.data, &selection::type_to_show(&result.data, filter));
    let (content_type, bytes) = match format {
        "otlp" => (
            "application/x-protobuf",
            otlp::encode(&transform::separate_exact_values(ProfilesData::clone(&result.data)), otlp::Revision::One),
        ),
        "pprof" => ("application/octet-stream", pprof::encode(&result.data)),
        "folded" => ("text/plain; charset=utf-8", folded::encode(&tree()).into_bytes()),
        "flamegraph" => {
            let title = filter.service.as_deref().unwrap_or("all services");
            let type_name = selection::type_to_show(&result.data, filter);
            ("text/html; charset=utf-8", page::html(&result.data, &type_name, title).into_bytes())
        }
        other => {
            let message = format!("`format`: expected otlp, pprof, folded or flamegraph, got `{other}`");
            return Err((StatusCode::BAD_REQUEST, message));
        }
    };
    Ok(ResponseContent { content_type, bytes, windows_left_out: result.left_out.windows })
}

/// The kept requests, newest first.
fn window_list(windows: &[Arc<StoredWindow>]) -> Value {
    let windows = windows.iter().rev().map(|window| {
        json!({
            "name": window.name(), "bytes": window.bytes, "received_ms": window.received_unix_ms,
            "from_ms": ms(window.from_unix_nano), "to_ms": ms(window.to_unix_nano),
        })
    });
    json!({"windows": windows.collect::<Value>()})
}

/// The unmodified bytes of one kept request. The name must be that of a window in the index, which excludes other paths.
fn window_bytes(state: &ServerState, name: &str) -> Option<ResponseContent> {
    let window = state.store.windows().into_iter().find(|window| window.name() == name)?;
    let bytes = directory::read(&window.path).ok()?;
    Some(ResponseContent { content_type: "application/octet-stream", bytes, windows_left_out: 0 })
}

fn stats(state: &ServerState) -> Value {
    let windows = state.store.windows();
    let (intake, store) = (&state.counters, &state.store.counters);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let hours = || windows.iter().filter(|window| window.is_rollup);
    let trace_urls = state.settings.trace_urls.iter().map(|link| json!({"name": link.name, "url": link.url}));
    let trace_urls = trace_urls.collect::<Value>();
    json!({
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
}

#[cfg(test)]
#[path = "endpoints_tests.rs"]
mod tests;
