//! The endpoints under `/api/`, for the page and for the verbs that query a running server. All accept the same filters as
//! query parameters: `service type label trace_id span_id from to`. Called by `http::route` after the Host check.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, VARY};
use hyper::{Request, StatusCode};
use serde_json::json;
use spanprof_answers::selection::{self, query_string};
use spanprof_answers::LEFT_OUT_HEADER;
use spanprof_profile::encode::gzip;

use super::request::{ApiError, ApiRequest, ApiResult, ResponseContent};
use super::{comparison, export, flame, function, index, labels, requests, stats, timeline, top};
use crate::reply::{self, Reply};
use crate::state::server_state::ServerState;

/// Smaller responses are not compressed.
const MIN_GZIP_BYTES: usize = 2048;

struct ApiEndpoint {
    /// After a path that ends with a slash follows a name.
    path: &'static str,
    /// Accepted beside those of the filter.
    parameters: &'static [&'static str],
    answer: fn(&ApiRequest) -> ApiResult,
}

const ENDPOINTS: [ApiEndpoint; 15] = [
    endpoint("/api/services", &[], index::services),
    endpoint("/api/types", &[], index::types),
    endpoint("/api/windows", &[], index::windows),
    endpoint("/api/windows/", &[], index::window),
    endpoint("/api/stats", &[], stats::answer),
    endpoint("/api/labels", &["limit", "weights"], labels::answer),
    endpoint("/api/timeline", &["group", "by", "native", "focus", "ignore"], timeline::answer),
    endpoint("/api/top", &["beside", "limit", "native", "offset", "search", "sort", "focus", "ignore"], top::answer),
    endpoint(
        "/api/flamegraph",
        &["callers", "fold", "group", "invert", "native", "path", "recursion", "search", "width", "focus", "ignore"],
        flame::answer,
    ),
    endpoint("/api/function", &["file", "line", "name", "native", "focus", "ignore"], function::answer),
    endpoint(
        "/api/diff",
        &["baseline", "baseline_from", "baseline_to", "normalize", "limit", "focus", "ignore"],
        comparison::answer,
    ),
    endpoint("/api/requests", &["by", "sort", "endpoint", "limit"], requests::table),
    endpoint("/api/request", &[], requests::one),
    endpoint("/api/explain", &[], requests::findings),
    endpoint("/api/profile", &["format", "detail"], export::answer),
];

const fn endpoint(
    path: &'static str,
    parameters: &'static [&'static str],
    answer: fn(&ApiRequest) -> ApiResult,
) -> ApiEndpoint {
    ApiEndpoint { path, parameters, answer }
}

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
        answer(&shared, &path, &parameters).map(|content| {
            let is_gzipped = accepts_gzip && content.bytes.len() >= MIN_GZIP_BYTES;
            let bytes = if is_gzipped { gzip(&content.bytes) } else { content.bytes };
            (ResponseContent { bytes, ..content }, is_gzipped)
        })
    };
    let outcome = state.query_slots.run(work).await;
    let outcome =
        outcome.unwrap_or_else(|message| Err(ApiError { status: StatusCode::INTERNAL_SERVER_ERROR, message }));
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
        Err(ApiError { status, message }) => {
            reply::body(status, "application/json", json!({"error": message}).to_string())
        }
    };
    reply::set(&mut response, CACHE_CONTROL, "no-store");
    reply::set(&mut response, VARY, "accept-encoding");
    response
        .headers_mut()
        .insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    response
}

/// The answer of the endpoint of `path`. Unknown parameters are an error: a misspelt filter would otherwise be ignored.
fn answer(state: &ServerState, path: &str, parameters: &[(String, String)]) -> ApiResult {
    let has_path = |ApiEndpoint { path: prefix, .. }: &&ApiEndpoint| {
        path == *prefix || (prefix.ends_with('/') && path.starts_with(prefix))
    };
    let endpoint = ENDPOINTS.iter().find(has_path).ok_or_else(|| ApiError::not_found(path))?;
    let accepted = || selection::PARAMETERS.iter().chain(endpoint.parameters).copied();
    if let Some((name, _)) = parameters.iter().find(|(name, _)| !accepted().any(|accepted| accepted == name)) {
        let accepted: Vec<_> = accepted().collect();
        let message = format!("unknown parameter `{name}` of {path}: expected one of {}", accepted.join(", "));
        return Err(message.into());
    }
    (endpoint.answer)(&ApiRequest::parse(state, path, parameters)?)
}

#[cfg(test)]
#[path = "endpoints_tests.rs"]
mod tests;
