//! Control operations over HTTP, without the transport: status, enable, disable, changed keys, burst. The server passes a
//! request and sends the response. Not here: sockets, tokens (the pull server), the effect of a change (`profiler`).
//!
//! Requests that change something require a token (`pull_token`), and are refused when a browser sends them: pages of other
//! origins can reach servers of the loopback.

mod burst;
mod status;

use serde_json::{json, Value};

use crate::host_log::{log, LogLevel};
use crate::Profiler;
use spanprof_config::{flattened, from_json, nearest_key, nearest_nested, ConfigSource, Error, ErrorKind, KEYS};

/// Path of the operations; the burst has `/burst` below it.
pub const CONTROL_PATH: &str = "/debug/spanprof";

/// The token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenCheck {
    /// No token is configured.
    NotConfigured,
    /// The request has none, or a wrong one.
    Refused,
    /// The request has the configured token.
    Accepted,
}

/// A request to [`CONTROL_PATH`] or a path below it.
#[derive(Clone, Copy, Debug)]
pub struct ControlRequest<'a> {
    /// Method in upper case.
    pub method: &'a str,
    /// Path without the query.
    pub path: &'a str,
    /// Query without the question mark; may be empty.
    pub query: &'a str,
    /// Body; may be empty.
    pub body: &'a [u8],
    /// Result of the server's check of the token.
    pub token: TokenCheck,
    /// Whether the request has a header `Origin` or `Sec-Fetch-Site`, which only browsers send.
    pub is_from_browser: bool,
    /// Address and port of the client, for the log; empty where the program's web framework has the connection.
    pub client: &'a str,
}

impl ControlRequest<'_> {
    /// Logs what the request has changed.
    fn log(&self, change: &str) {
        let client = if self.client.is_empty() { "the program's web server" } else { self.client };
        log(LogLevel::Info, &format!("spanprof: {change} ({} {} from {client})", self.method, self.path));
    }
}

/// The response: a JSON object.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlResponse {
    /// HTTP status.
    pub status: u16,
    /// Body of the type `application/json`.
    pub body: String,
    /// Value of the header `Allow`, with status 405.
    pub allow: Option<&'static str>,
}

impl ControlResponse {
    fn new(status: u16, body: &Value) -> Self {
        Self { status, body: format!("{body}\n"), allow: None }
    }

    fn refused(status: u16, error: &str, hint: &str) -> Self {
        Self::new(status, &json!({ "error": error, "hint": hint }))
    }
}

impl From<Error> for ControlResponse {
    fn from(error: Error) -> Self {
        let status = if error.kind == ErrorKind::InvalidConfig { 400 } else { 503 };
        Self::refused(status, &error.message, &error.hint)
    }
}

/// Whether a path belongs to the control operations.
pub fn is_control_path(path: &str) -> bool {
    path.strip_prefix(CONTROL_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Performs the operation of a request.
pub fn respond(request: &ControlRequest<'_>) -> ControlResponse {
    let path = request.path.strip_prefix(CONTROL_PATH).unwrap_or_default().trim_end_matches('/');
    let allow = match path {
        "" => "GET, POST, DELETE, PATCH",
        "/burst" => "POST, DELETE",
        _ => return ControlResponse::refused(404, "no such path", &format!("use {CONTROL_PATH}")),
    };
    if !allow.split(", ").any(|method| method == request.method) {
        let refused = ControlResponse::refused(405, &format!("{} is not allowed here", request.method), allow);
        return ControlResponse { allow: Some(allow), ..refused };
    }
    if let Some(refused) = refusal(request) {
        return refused;
    }
    let Some(profiler) = Profiler::running() else {
        return ControlResponse::refused(409, "the profiler does not run", "the program calls start()");
    };
    let changed = match (path, request.method) {
        ("/burst", "POST") => burst::begin(&profiler, request),
        ("/burst", _) => burst::end(&profiler, request),
        (_, "POST") => set_enabled(&profiler, request, true),
        (_, "DELETE") => set_enabled(&profiler, request, false),
        (_, "PATCH") => change(&profiler, request),
        _ => Ok(()),
    };
    changed.map_or_else(|refused| refused, |()| ControlResponse::new(200, &status::status(&profiler)))
}

/// The reason why a request may not be performed.
fn refusal(request: &ControlRequest<'_>) -> Option<ControlResponse> {
    if request.token == TokenCheck::Refused {
        return Some(ControlResponse::refused(
            401,
            "the token is missing or wrong",
            "send Authorization: Bearer <pull_token>",
        ));
    }
    if request.method == "GET" {
        return None;
    }
    if request.is_from_browser {
        return Some(ControlResponse::refused(
            403,
            "requests of browsers change nothing",
            "use curl or another client",
        ));
    }
    (request.token == TokenCheck::NotConfigured).then(|| {
        ControlResponse::refused(
            403,
            "changes require a token",
            "set pull_token, and send it as Authorization: Bearer <pull_token>",
        )
    })
}

fn set_enabled(profiler: &Profiler, request: &ControlRequest<'_>, is_enabled: bool) -> Result<(), ControlResponse> {
    let changes = [("enabled".to_owned(), is_enabled.into())];
    profiler.reconfigure(|running| running.changed(&changes, &ConfigSource::Endpoint))?;
    request.log(&format!("enabled={is_enabled} was set"));
    Ok(())
}

/// Changes the keys of a JSON object, all or none.
fn change(profiler: &Profiler, request: &ControlRequest<'_>) -> Result<(), ControlResponse> {
    let text =
        std::str::from_utf8(request.body).map_err(|_| ControlResponse::refused(400, "the body is not UTF-8", ""))?;
    let changes = from_json(text).map_err(|error| {
        ControlResponse::refused(400, &error.message, "send a JSON object such as {\"sample_rate\": 50}")
    })?;
    let (changes, conflicts) = flattened(changes);
    if let Some(conflict) = conflicts.first() {
        return Err(ControlResponse::refused(400, conflict, "remove one of them"));
    }
    for (key, _) in &changes {
        if !KEYS.iter().any(|known| known.name == key) {
            let nearest = nearest_nested(key).or_else(|| nearest_key(key, &[]).map(str::to_owned));
            let hint = nearest.map(|name| format!("did you mean `{name}`?")).unwrap_or_default();
            return Err(ControlResponse::refused(400, &format!("unknown key `{key}`"), &hint));
        }
    }
    profiler.reconfigure(|running| running.changed(&changes, &ConfigSource::Endpoint))?;
    // Texts of the effective configuration contain no secrets.
    let entries = profiler.config().entries();
    let shown = entries.iter().filter(|(key, _, _)| changes.iter().any(|(changed, _)| changed == key));
    let shown = shown.map(|(key, text, _)| format!("{key}={text}")).collect::<Vec<_>>().join(", ");
    request.log(&format!("{shown} was set"));
    Ok(())
}
