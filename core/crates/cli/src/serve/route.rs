//! The state that all requests of a server share, and the dispatch of a request by path. Called by `connection` for every
//! request on either port.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, ALLOW, CONTENT_TYPE, HOST, ORIGIN};
use hyper::{Method, Request, StatusCode};
use tokio::sync::Semaphore;

use super::connection::ConnectionSlots;
use super::reply::{self, Reply};
use super::store::Store;
use super::{api, intake, otlp_grpc, otlp_http, page, Addresses, Settings};

/// Services whose first request is logged; further ones are not tracked.
const MAX_REPORTED_SERVICES: usize = 1024;

/// State of one server.
pub(crate) struct ServerState {
    pub settings: Settings,
    pub addresses: Addresses,
    pub store: Store,
    pub counters: intake::IntakeCounters,
    pub started: Instant,
    /// Bytes of requests in memory, see `intake`.
    pub held_bytes: AtomicUsize,
    pub connection_slots: ConnectionSlots,
    /// Requests decoded at once.
    pub decode_slots: WorkerSlots,
    /// Queries executed at once.
    pub query_slots: WorkerSlots,
    reported_services: Mutex<BTreeSet<String>>,
}

impl ServerState {
    pub(crate) fn new(settings: Settings, addresses: Addresses, store: Store) -> Self {
        ServerState {
            settings,
            addresses,
            store,
            counters: intake::IntakeCounters::default(),
            started: Instant::now(),
            held_bytes: AtomicUsize::new(0),
            connection_slots: ConnectionSlots::new(),
            // Each may take as much memory as the decoder's limits allow.
            decode_slots: WorkerSlots::new(2),
            query_slots: WorkerSlots::new(1),
            reported_services: Mutex::default(),
        }
    }

    /// Writes a log line.
    pub(crate) fn report(&self, line: &str) {
        (self.settings.report)(line);
    }

    /// True once per service name.
    pub(crate) fn is_new_service(&self, name: &str) -> bool {
        let mut services = self.reported_services.lock().unwrap_or_else(PoisonError::into_inner);
        services.len() < MAX_REPORTED_SERVICES && services.insert(name.to_owned())
    }
}

/// Bounds the number of concurrent blocking tasks of one kind; further ones wait.
pub(crate) struct WorkerSlots(Arc<Semaphore>);

impl WorkerSlots {
    fn new(count: usize) -> Self {
        WorkerSlots(Arc::new(Semaphore::new(count)))
    }

    /// Runs `work` on a blocking thread. A panic is an error of this request only.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let slot = self.0.clone().acquire_owned().await.map_err(|_| "the server is stopping".to_owned())?;
        let task = tokio::task::spawn_blocking(move || {
            let outcome = work();
            drop(slot);
            outcome
        });
        task.await.map_err(|_| "internal error of spanprof; please report it".to_owned())
    }
}

/// Handles one request.
pub(crate) async fn respond(state: &Arc<ServerState>, request: Request<Incoming>) -> Reply {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if let Some(refused) = refuse_foreign_pages(state, &request) {
        return refused;
    }
    if otlp_grpc::is_grpc(content_type) {
        return otlp_grpc::respond(state, request).await;
    }
    // A base URL with a trailing slash joined with an absolute path yields a double slash; it is reduced to one.
    let path = request.uri().path();
    let path = if path.starts_with("//") { &path[path.len() - path.trim_start_matches('/').len() - 1..] } else { path };
    if path == otlp_http::PATH {
        return otlp_http::respond(state, request).await;
    }
    let is_page = path == "/" || path == "/index.html";
    if !is_page && !path.starts_with("/api/") {
        let line = match path {
            "/v1/profiles" => format!("profiles are in development: send them to {}", otlp_http::PATH),
            "/v1/traces" | "/v1/metrics" | "/v1/logs" => "this receiver accepts profiles only".to_owned(),
            _ => "not found".to_owned(),
        };
        return reply::text(StatusCode::NOT_FOUND, &line);
    }
    let is_head = request.method() == Method::HEAD;
    if !is_head && request.method() != Method::GET {
        let mut refused = reply::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are supported");
        reply::set(&mut refused, ALLOW, "GET, HEAD");
        return refused;
    }
    if let Some(refused) = refuse_foreign_host(state, &request) {
        return refused;
    }
    let response = if is_page { page::respond(&request) } else { api::respond(state, path, &request).await };
    if is_head {
        reply::without_body(response)
    } else {
        response
    }
}

/// Prevents DNS rebinding: the page of a site whose name resolves to this machine sends that name as Host.
fn refuse_foreign_host(state: &ServerState, request: &Request<Incoming>) -> Option<Reply> {
    // RFC 9112, section 3.2: a proxy may have checked the other one.
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Some(reply::text(StatusCode::BAD_REQUEST, "expected one Host header, got several"));
    }
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST).and_then(|value| value.to_str().ok()),
    };
    match host {
        None => Some(reply::text(StatusCode::BAD_REQUEST, "the Host header is missing")),
        Some(host) if is_allowed_host(host, &state.settings.allowed_hosts) => None,
        Some(host) => {
            let line = format!(
                "{host:?} is not a name of this server: use localhost or an IP address, or start with --allow-host NAME"
            );
            Some(reply::text(StatusCode::FORBIDDEN, &line))
        }
    }
}

/// Refuses requests of other sites' pages, which browsers mark by Origin; other programs send no Origin.
fn refuse_foreign_pages(state: &ServerState, request: &Request<Incoming>) -> Option<Reply> {
    let origin = request.headers().get(ORIGIN)?;
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    match host {
        Some(host) if is_allowed_host(host, &state.settings.allowed_hosts) => None,
        _ => Some(reply::text(StatusCode::FORBIDDEN, "requests from pages of other sites are refused")),
    }
}

/// Addresses cannot be rebound, and `localhost` is resolved by the machine itself.
fn is_allowed_host(host: &str, allowed: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.split(':').next().unwrap_or(""),
    };
    let name = name.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok()
        || allowed.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_localhost_and_allowed_names_are_hosts() {
        let allowed = ["build.corp".to_owned()];
        for host in ["localhost", "LOCALHOST:4318", "127.0.0.1:4318", "[::1]:4318", "app.localhost", "build.corp:80"] {
            assert!(is_allowed_host(host, &allowed), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example:4318", "localhost.evil.example", "", ":4318", "[", "[evil]"]
        {
            assert!(!is_allowed_host(host, &allowed), "{host}");
        }
    }
}
