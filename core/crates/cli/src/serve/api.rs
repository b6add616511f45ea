//! The JSON API under `/api/`, for the page and for the verbs that ask a running server. All take the same filters as query
//! parameters: `service type label trace_id span_id from to`. Called by `route` after the Host check.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, VARY};
use hyper::{Request, StatusCode};
use spanprof_profile::encode::{flamegraph, folded, otlp, pprof};
use spanprof_profile::query::{self, Filter};

use super::directory;
use super::reply::{self, Reply};
use super::route::Shared;
use super::store::{gzip, unix_ns, Answer};
use super::window::Window;
use crate::detail::Detail;
use crate::json::Json;
use crate::{query_string, selection};

const JSON: &str = "application/json";
/// Rows of a top table when the request does not say.
const DEFAULT_ROWS: usize = 200;
/// Steps of a timeline.
const TIMELINE_STEPS: u64 = 120;
/// Smaller answers travel uncompressed.
const WORTH_COMPRESSING_BYTES: usize = 2048;

/// Says in an answer that carries no such member how many windows it could not take in.
pub(crate) const LEFT_OUT_HEADER: &str = "x-spanprof-windows-left-out";

/// What is sent back.
struct Found {
    content_type: &'static str,
    bytes: Vec<u8>,
    windows_left_out: usize,
}

/// The answer, or a status and a sentence.
type Outcome = Result<Found, (StatusCode, String)>;

pub(crate) async fn answer(shared: &Arc<Shared>, path: &str, request: &Request<Incoming>) -> Reply {
    let accepts_gzip = request
        .headers()
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip")));
    let path = path.to_owned();
    let parameters = query_string::parse(request.uri().query().unwrap_or(""));
    let owned = shared.clone();
    let work = move || {
        outcome(&owned, &path, &parameters).map(|found| {
            let is_gzipped = accepts_gzip && found.bytes.len() >= WORTH_COMPRESSING_BYTES;
            let bytes = if is_gzipped { gzip(&found.bytes) } else { found.bytes };
            (Found { bytes, ..found }, is_gzipped)
        })
    };
    let outcome = match shared.query_slots.run(work).await {
        Ok(outcome) => outcome,
        Err(message) => Err((StatusCode::INTERNAL_SERVER_ERROR, message)),
    };
    let mut answered = match outcome {
        Ok((found, is_gzipped)) => {
            let mut answered = reply::body(StatusCode::OK, found.content_type, found.bytes);
            if found.windows_left_out > 0 {
                answered.headers_mut().insert(LEFT_OUT_HEADER, found.windows_left_out.into());
            }
            if is_gzipped {
                reply::set(&mut answered, CONTENT_ENCODING, "gzip");
            }
            answered
        }
        Err((status, message)) => {
            let mut json = Json::new();
            json.object(|json| {
                json.key("error").string(&message);
            });
            reply::body(status, JSON, json.finish())
        }
    };
    reply::set(&mut answered, CACHE_CONTROL, "no-store");
    reply::set(&mut answered, VARY, "accept-encoding");
    answered
        .headers_mut()
        .insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    answered
}

/// A misspelt parameter would otherwise answer another question.
fn refuse_unknown(path: &str, parameters: &[(String, String)]) -> Result<(), (StatusCode, String)> {
    let own: &[&str] = match path {
        "/api/top" | "/api/traces" => &["limit"],
        "/api/profile" => &["format", "detail"],
        _ => &[],
    };
    let known = || selection::PARAMETERS.iter().chain(own).copied();
    match parameters.iter().find(|(name, _)| !known().any(|known| known == name)) {
        None => Ok(()),
        Some((name, _)) => {
            let known: Vec<_> = known().collect();
            let message = format!("unknown parameter `{name}` of {path}: expected one of {}", known.join(", "));
            Err((StatusCode::BAD_REQUEST, message))
        }
    }
}

fn outcome(shared: &Shared, path: &str, parameters: &[(String, String)]) -> Outcome {
    refuse_unknown(path, parameters)?;
    let filter =
        selection::of_parameters(parameters, unix_ns()).map_err(|message| (StatusCode::BAD_REQUEST, message))?;
    let parameter = |name: &str| parameters.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
    let limit = || match parameter("limit") {
        None => Ok(DEFAULT_ROWS),
        Some(text) => {
            text.parse().map_err(|_| (StatusCode::BAD_REQUEST, format!("`limit`: expected a number, got `{text}`")))
        }
    };
    let stacks = || shared.store.answer(&filter, Detail::Stacks, &shared.settings.limits);
    let json = match path {
        "/api/services" => services(&windows(shared, &filter), &filter),
        "/api/types" => types(&windows(shared, &filter), &filter),
        "/api/labels" => labels(&windows(shared, &filter), &filter),
        // Labels and links are not in the index.
        "/api/timeline" if !filter.labels.is_empty() || filter.trace_id.is_some() || filter.span_id.is_some() => {
            timeline(stacks().parts.iter(), &filter)
        }
        "/api/timeline" => timeline(summaries(&windows(shared, &filter), &filter), &filter),
        "/api/windows" => window_list(&windows(shared, &filter)),
        "/api/stats" => stats(shared),
        "/api/top" => top(&stacks(), &filter, limit()?),
        "/api/traces" => traces(&stacks(), &filter, limit()?),
        "/api/flamegraph" => flame(&stacks(), &filter),
        "/api/profile" => {
            let format = parameter("format").unwrap_or("otlp");
            let answer = match (parameter("detail"), format) {
                (Some("stacks"), _) | (None, "folded" | "flamegraph") => stacks(),
                _ => shared.store.answer(&filter, Detail::Everything, &shared.settings.limits),
            };
            return profile(&answer, &filter, format);
        }
        _ => {
            let name = path.strip_prefix("/api/windows/").unwrap_or("");
            return window_bytes(shared, name).ok_or((StatusCode::NOT_FOUND, format!("there is no {path}")));
        }
    };
    Ok(Found { content_type: JSON, bytes: json.finish().into_bytes(), windows_left_out: 0 })
}

fn windows(shared: &Shared, filter: &Filter) -> Vec<Arc<Window>> {
    shared.store.windows().into_iter().filter(|window| window.may_hold(filter)).collect()
}

/// The parts of the windows' summaries that the filter's service and type leave.
fn summaries<'a>(windows: &'a [Arc<Window>], filter: &'a Filter) -> impl Iterator<Item = &'a query::TypeSummary> + 'a {
    windows
        .iter()
        .flat_map(|window| &window.services)
        .filter(|service| filter.service.as_ref().is_none_or(|name| *name == service.name))
        .flat_map(|service| &service.types)
        .filter(|of| filter.type_name.as_ref().is_none_or(|name| *name == of.type_name))
}

/// Several windows' summaries of one service or type in one.
struct Span {
    unit: String,
    types: BTreeSet<String>,
    windows: usize,
    samples: usize,
    total: i64,
    from_unix_nano: u64,
    to_unix_nano: u64,
}

fn spans<'a>(
    windows: &'a [Arc<Window>],
    filter: &'a Filter,
    name: impl Fn(&'a query::TypeSummary) -> &'a str,
) -> BTreeMap<&'a str, Span> {
    let mut spans = BTreeMap::new();
    for of in summaries(windows, filter) {
        let span = spans.entry(name(of)).or_insert_with(|| Span {
            unit: of.unit.clone(),
            types: BTreeSet::new(),
            windows: 0,
            samples: 0,
            total: 0,
            from_unix_nano: u64::MAX,
            to_unix_nano: 0,
        });
        span.types.insert(of.type_name.clone());
        span.windows += 1;
        span.samples += of.samples;
        span.total = span.total.saturating_add(of.total);
        span.from_unix_nano = span.from_unix_nano.min(of.from_unix_nano);
        span.to_unix_nano = span.to_unix_nano.max(of.to_unix_nano);
    }
    spans
}

fn services(windows: &[Arc<Window>], filter: &Filter) -> Json {
    let mut json = Json::new();
    json.object(|json| {
        json.key("services").array(|json| {
            for (name, span) in spans(windows, filter, |of| &of.service) {
                json.object(|json| {
                    json.key("name").string(name).key("types").array(|json| {
                        span.types.iter().for_each(|name| {
                            json.string(name);
                        });
                    });
                    json.key("samples").number(span.samples as u64);
                    range(json, span.from_unix_nano, span.to_unix_nano);
                });
            }
        });
    });
    json
}

fn types(windows: &[Arc<Window>], filter: &Filter) -> Json {
    let mut json = Json::new();
    json.object(|json| {
        json.key("types").array(|json| {
            for (name, span) in spans(windows, filter, |of| &of.type_name) {
                json.object(|json| {
                    json.key("type").string(name).key("unit").string(&span.unit);
                    json.key("windows").number(span.windows as u64).key("samples").number(span.samples as u64);
                    json.key("total").number(span.total);
                    range(json, span.from_unix_nano, span.to_unix_nano);
                });
            }
        });
    });
    json
}

fn labels(windows: &[Arc<Window>], filter: &Filter) -> Json {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for service in windows.iter().flat_map(|window| &window.services) {
        if filter.service.as_ref().is_none_or(|name| *name == service.name) {
            for (name, values) in &service.labels {
                labels.entry(name).or_default().extend(values.iter().map(String::as_str));
            }
        }
    }
    let mut json = Json::new();
    json.object(|json| {
        json.key("labels").array(|json| {
            for (name, values) in labels {
                json.object(|json| {
                    json.key("name").string(name).key("values").array(|json| {
                        values.iter().for_each(|value| {
                            json.string(value);
                        });
                    });
                });
            }
        });
    });
    json
}

/// Weight over time, in equal steps; a window's weight is spread evenly over its duration.
fn timeline<'a>(all: impl Iterator<Item = &'a query::TypeSummary>, filter: &Filter) -> Json {
    let all: Vec<_> = all.filter(|of| of.samples > 0).collect();
    let from = filter.from_unix_nano.or(all.iter().map(|of| of.from_unix_nano).min()).unwrap_or(0);
    let to = filter.to_unix_nano.or(all.iter().map(|of| of.to_unix_nano).max()).unwrap_or(from);
    // Not below a second: windows are seconds long.
    let step = to.saturating_sub(from).div_ceil(TIMELINE_STEPS).max(1_000_000_000);
    let mut totals = vec![0i64; to.saturating_sub(from).div_ceil(step) as usize];
    for of in &all {
        let duration = of.to_unix_nano.saturating_sub(of.from_unix_nano).max(1);
        // Both ends within the range, hence at most as many steps as there are.
        let (start, end) = (of.from_unix_nano.max(from), of.from_unix_nano.saturating_add(duration).min(to));
        let mut spent = 0;
        let mut at = start;
        while at < end {
            let nth = (at - from) / step;
            let next = from.saturating_add((nth + 1).saturating_mul(step)).min(end);
            // By what is spent up to here, so that roundings do not add up.
            let upto = i128::from(of.total) * i128::from(next - start) / i128::from(duration);
            if let Some(total) = totals.get_mut(nth as usize) {
                *total = total.saturating_add((upto - spent) as i64);
            }
            spent = upto;
            at = next;
        }
    }
    let mut json = Json::new();
    json.object(|json| {
        range(json, from, to);
        json.key("step_ms").number(step / 1_000_000);
        json.key("unit").string(all.first().map_or("", |of| &of.unit)).key("totals").array(|json| {
            totals.iter().for_each(|total| {
                json.number(*total);
            });
        });
    });
    json
}

/// Milliseconds: what a script's numbers hold exactly.
fn range(json: &mut Json, from_unix_nano: u64, to_unix_nano: u64) {
    json.key("from_ms").number(from_unix_nano / 1_000_000).key("to_ms").number(to_unix_nano / 1_000_000);
}

fn top(answer: &Answer, filter: &Filter, limit: usize) -> Json {
    let table = query::top(&answer.data, &selection::type_to_show(&answer.data, filter));
    let mut json = Json::new();
    json.object(|json| {
        crate::verbs::top::fields(json, &table, limit);
        json.key("samples").number(answer.spans.samples(&table.type_name) as u64);
        completeness(json, answer);
    });
    json
}

fn traces(answer: &Answer, filter: &Filter, limit: usize) -> Json {
    let mut json = Json::new();
    json.object(|json| {
        answer.spans.fields(json, &selection::type_to_show(&answer.data, filter), limit);
        completeness(json, answer);
    });
    json
}

fn flame(answer: &Answer, filter: &Filter) -> Json {
    let tree = query::tree(&answer.data, &selection::type_to_show(&answer.data, filter));
    let mut json = Json::new();
    json.object(|json| {
        json.key("type").string(&tree.type_name).key("unit").string(&tree.unit);
        completeness(json, answer);
        json.key("tree").raw(&flamegraph::json(&tree));
    });
    json
}

fn completeness(json: &mut Json, answer: &Answer) {
    json.key("windows").number(answer.windows as u64);
    json.key("windows_left_out").number(answer.windows_left_out as u64);
}

fn profile(answer: &Answer, filter: &Filter, format: &str) -> Outcome {
    let tree = || query::tree(&answer.data, &selection::type_to_show(&answer.data, filter));
    let (content_type, bytes) = match format {
        "otlp" => ("application/x-protobuf", otlp::encode(&answer.data, otlp::Revision::One)),
        "pprof" => ("application/octet-stream", pprof::encode(&answer.data)),
        "folded" => ("text/plain; charset=utf-8", folded::encode(&tree()).into_bytes()),
        "flamegraph" => {
            let title = filter.service.as_deref().unwrap_or("all services");
            ("text/html; charset=utf-8", flamegraph::html(&tree(), title).into_bytes())
        }
        other => {
            let message = format!("`format`: expected otlp, pprof, folded or flamegraph, got `{other}`");
            return Err((StatusCode::BAD_REQUEST, message));
        }
    };
    Ok(Found { content_type, bytes, windows_left_out: answer.windows_left_out })
}

/// The kept requests, newest first.
fn window_list(windows: &[Arc<Window>]) -> Json {
    let mut json = Json::new();
    json.object(|json| {
        json.key("windows").array(|json| {
            for window in windows.iter().rev() {
                json.object(|json| {
                    json.key("name").string(&window.name()).key("bytes").number(window.bytes);
                    json.key("received_ms").number(window.received_unix_ms);
                    range(json, window.from_unix_nano, window.to_unix_nano);
                });
            }
        });
    });
    json
}

/// One kept request as it came. The name is looked up among the known ones, hence is never a path.
fn window_bytes(shared: &Shared, name: &str) -> Option<Found> {
    let window = shared.store.windows().into_iter().find(|window| window.name() == name)?;
    let bytes = directory::read(&window.path).ok()?;
    Some(Found { content_type: "application/octet-stream", bytes, windows_left_out: 0 })
}

fn stats(shared: &Shared) -> Json {
    let windows = shared.store.windows();
    let mut json = Json::new();
    json.object(|json| {
        json.key("version").string(env!("CARGO_PKG_VERSION"));
        json.key("uptime_s").number(shared.started.elapsed().as_secs());
        json.key("grpc").string(&shared.addresses.grpc.to_string());
        json.key("http").string(&shared.addresses.http.to_string());
        json.key("dir").string(&shared.store.directory().to_string_lossy());
        json.key("indexing").boolean(shared.store.is_indexing());
        json.key("windows").number(windows.len() as u64);
        json.key("bytes").number(windows.iter().map(|window| window.bytes).sum::<u64>());
        let (received, kept) = (&shared.counters, &shared.store.counters);
        for (name, counter) in [
            ("received_requests", &received.requests),
            ("received_bytes", &received.bytes),
            ("received_samples", &received.samples),
            ("duplicate_profiles", &received.duplicate_profiles),
            ("refused_invalid", &received.refused_invalid),
            ("refused_too_large", &received.refused_too_large),
            ("refused_too_slow", &received.refused_too_slow),
            ("refused_unavailable", &received.refused_unavailable),
            ("broken_off", &received.broken),
            ("removed_by_size", &kept.removed_by_size),
            ("removed_by_age", &kept.removed_by_age),
            ("unreadable_files", &kept.unreadable_files),
        ] {
            json.key(name).number(counter.load(Ordering::Relaxed));
        }
    });
    json
}
