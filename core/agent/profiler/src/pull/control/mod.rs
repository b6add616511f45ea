//! Control operations over HTTP, without the transport: status, enable, disable, changed keys, burst. The server passes a
//! request and sends the response. Not here: sockets, tokens (the pull server), the effect of a change (`profiler`).
//!
//! Requests that change something require a token (`pull_token`), and are refused when a browser sends them: pages of other
//! origins can reach servers of the loopback.

mod burst;
mod status;

use serde_json::{json, Value};

use crate::host_log::{log, LogLevel};
use crate::http::message::{HttpRequest, HttpResponse};
use crate::session::current::current_session;
use crate::session::Session;
use spanprof_config::{flattened, from_json, nearest_key, nearest_nested, ConfigSource, Error, ErrorKind, KEYS};

/// Path of the operations; the burst has `/burst` below it.
pub const CONTROL_PATH: &str = "/debug/spanprof";

/// Logs what a request has changed.
fn log_change(request: &HttpRequest, change: &str) {
    let client = if request.client.is_empty() { "the program's web server" } else { &*request.client };
    log(LogLevel::Info, &format!("spanprof: {change} ({} {} from {client})", request.method, request.path));
}

fn json_response(status: u16, body: &Value) -> HttpResponse {
    HttpResponse { status, ..HttpResponse::page("application/json", format!("{body}\n").into_bytes()) }
}

fn refused(status: u16, error: &str, hint: &str) -> HttpResponse {
    json_response(status, &json!({ "error": error, "hint": hint }))
}

fn failed(error: Error) -> HttpResponse {
    let status = if error.kind == ErrorKind::InvalidConfig { 400 } else { 503 };
    refused(status, &error.message, &error.hint)
}

/// Whether a path belongs to the control operations.
pub fn is_control_path(path: &str) -> bool {
    path.strip_prefix(CONTROL_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Performs the operation of a request that has access. `has_token`: the access needed a token.
pub fn respond(request: &HttpRequest, has_token: bool) -> HttpResponse {
    let path = request.path.strip_prefix(CONTROL_PATH).unwrap_or_default().trim_end_matches('/');
    let allow = match path {
        "" => "GET, POST, DELETE, PATCH",
        "/burst" => "POST, DELETE",
        _ => return refused(404, "no such path", &format!("use {CONTROL_PATH}")),
    };
    if !allow.split(", ").any(|method| method == request.method) {
        return refused(405, &format!("{} is not allowed here", request.method), allow).with("Allow", allow);
    }
    if let Some(refusal) = refusal(request, has_token) {
        return refusal;
    }
    let Some(session) = current_session() else {
        return refused(409, "the profiler does not run", "the program calls start()");
    };
    let changed = match (path, &*request.method) {
        ("/burst", "POST") => burst::begin(&session, request),
        ("/burst", _) => burst::end(&session, request),
        (_, "POST") => set_enabled(&session, request, true),
        (_, "DELETE") => set_enabled(&session, request, false),
        (_, "PATCH") => change(&session, request),
        _ => Ok(()),
    };
    changed.map_or_else(|refusal| refusal, |()| json_response(200, &status::status(&session)))
}

/// The reason why a request may not be performed.
fn refusal(request: &HttpRequest, has_token: bool) -> Option<HttpResponse> {
    if request.method == "GET" {
        return None;
    }
    // Only browsers send these headers.
    if ["origin", "sec-fetch-site"].iter().any(|name| request.header(name).is_some()) {
        return Some(refused(403, "requests of browsers change nothing", "use curl or another client"));
    }
    (!has_token).then(|| {
        refused(403, "changes require a token", "set pull_token, and send it as Authorization: Bearer <pull_token>")
    })
}

fn set_enabled(session: &Session, request: &HttpRequest, is_enabled: bool) -> Result<(), HttpResponse> {
    let changes = [("enabled".to_owned(), is_enabled.into())];
    session.change(|running| running.changed(&changes, &ConfigSource::Endpoint)).map_err(failed)?;
    log_change(request, &format!("enabled={is_enabled} was set"));
    Ok(())
}

/// Changes the keys of a JSON object, all or none.
fn change(session: &Session, request: &HttpRequest) -> Result<(), HttpResponse> {
    let text = std::str::from_utf8(&request.body).map_err(|_| refused(400, "the body is not UTF-8", ""))?;
    let changes = from_json(text)
        .map_err(|error| refused(400, &error.message, "send a JSON object such as {\"sample_rate\": 50}"))?;
    let (changes, conflicts) = flattened(changes);
    if let Some(conflict) = conflicts.first() {
        return Err(refused(400, conflict, "remove one of them"));
    }
    for (key, _) in &changes {
        if !KEYS.iter().any(|row| row.name == key) {
            let nearest = nearest_nested(key).or_else(|| nearest_key(key, &[]).map(str::to_owned));
            let hint = nearest.map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
            return Err(refused(400, &format!("unknown key `{key}`"), &hint));
        }
    }
    session.change(|running| running.changed(&changes, &ConfigSource::Endpoint)).map_err(failed)?;
    // Texts of the effective configuration contain no secrets.
    let entries = session.config.requested.load().entries();
    let shown = entries.iter().filter(|(key, _, _)| changes.iter().any(|(changed, _)| changed == key));
    let shown = shown.map(|(key, text, _)| format!("{key}={text}")).collect::<Vec<_>>().join(", ");
    log_change(request, &format!("{shown} was set"));
    Ok(())
}
