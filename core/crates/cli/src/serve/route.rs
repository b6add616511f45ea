//! What all requests of a server share, and which of the doors a request goes through. Called by `connection` for every
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

use super::connection::Places;
use super::reply::{self, Reply};
use super::store::Store;
use super::{api, intake, otlp_grpc, otlp_http, page, Addresses, Settings};

/// Services whose first arrival is remembered, for one line each.
const MAX_KNOWN_SERVICES: usize = 1024;

/// One server's state.
pub(crate) struct Shared {
    pub settings: Settings,
    pub addresses: Addresses,
    pub store: Store,
    pub counters: intake::Counters,
    pub started: Instant,
    /// Bytes of requests in memory, see `intake`.
    pub held_bytes: AtomicUsize,
    pub places: Places,
    /// Requests decoded at once.
    pub decode_slots: Slots,
    /// Queries answered at once.
    pub query_slots: Slots,
    known_services: Mutex<BTreeSet<String>>,
}

impl Shared {
    pub(crate) fn new(settings: Settings, addresses: Addresses, store: Store) -> Self {
        Shared {
            settings,
            addresses,
            store,
            counters: intake::Counters::default(),
            started: Instant::now(),
            held_bytes: AtomicUsize::new(0),
            places: Places::new(),
            // Each may take as much memory as the decoder's limits allow.
            decode_slots: Slots::new(2),
            query_slots: Slots::new(1),
            known_services: Mutex::default(),
        }
    }

    /// Says something to whoever runs the server.
    pub(crate) fn report(&self, line: &str) {
        (self.settings.report)(line);
    }

    /// True once per service name.
    pub(crate) fn is_new_service(&self, name: &str) -> bool {
        let mut known = self.known_services.lock().unwrap_or_else(PoisonError::into_inner);
        known.len() < MAX_KNOWN_SERVICES && known.insert(name.to_owned())
    }
}

/// Bounds how many pieces of blocking work of one kind run at once; further ones wait.
pub(crate) struct Slots(Arc<Semaphore>);

impl Slots {
    fn new(count: usize) -> Self {
        Slots(Arc::new(Semaphore::new(count)))
    }

    /// Runs `work` on a blocking thread. A panic in it is an error of this one request.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let slot = self.0.clone().acquire_owned().await.map_err(|_| "the server is stopping".to_owned())?;
        let task = tokio::task::spawn_blocking(move || {
            let outcome = work();
            drop(slot);
            outcome
        });
        task.await.map_err(|_| "this request met a defect of spanprof; please report it".to_owned())
    }
}

/// Answers one request.
pub(crate) async fn answer(shared: &Arc<Shared>, request: Request<Incoming>) -> Reply {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if let Some(refused) = refuse_foreign_pages(shared, &request) {
        return refused;
    }
    if otlp_grpc::is_grpc(content_type) {
        return otlp_grpc::answer(shared, request).await;
    }
    // A base URL that ends in a slash, joined with a path that begins with one, means the path.
    let path = request.uri().path();
    let path = if path.starts_with("//") { &path[path.len() - path.trim_start_matches('/').len() - 1..] } else { path };
    if path == otlp_http::PATH {
        return otlp_http::answer(shared, request).await;
    }
    let is_page = path == "/" || path == "/index.html";
    if !is_page && !path.starts_with("/api/") {
        let line = match path {
            "/v1/profiles" => format!("profiles are in development: send them to {}", otlp_http::PATH),
            "/v1/traces" | "/v1/metrics" | "/v1/logs" => "this receiver takes profiles only".to_owned(),
            _ => "not found".to_owned(),
        };
        return reply::text(StatusCode::NOT_FOUND, &line);
    }
    let is_head = request.method() == Method::HEAD;
    if !is_head && request.method() != Method::GET {
        let mut refused = reply::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD here");
        reply::set(&mut refused, ALLOW, "GET, HEAD");
        return refused;
    }
    if let Some(refused) = refuse_foreign_host(shared, &request) {
        return refused;
    }
    let answered = if is_page { page::answer(&request) } else { api::answer(shared, path, &request).await };
    if is_head {
        reply::without_body(answered)
    } else {
        answered
    }
}

/// A page of another site whose name was made to resolve to this machine (DNS rebinding) still sends that site's name.
fn refuse_foreign_host(shared: &Shared, request: &Request<Incoming>) -> Option<Reply> {
    // RFC 9112, section 3.2: a proxy in front may have checked the other one.
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Some(reply::text(StatusCode::BAD_REQUEST, "expected one Host header, got several"));
    }
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST).and_then(|value| value.to_str().ok()),
    };
    match host {
        None => Some(reply::text(StatusCode::BAD_REQUEST, "the Host header is missing")),
        Some(host) if is_allowed_host(host, &shared.settings.allowed_hosts) => None,
        Some(host) => {
            let line = format!(
                "{host:?} is not a name of this server: use localhost or an IP address, or start with --allow-host NAME"
            );
            Some(reply::text(StatusCode::FORBIDDEN, &line))
        }
    }
}

/// Browsers say which page sends a request; programs do not. Another site's page has nothing to do here.
fn refuse_foreign_pages(shared: &Shared, request: &Request<Incoming>) -> Option<Reply> {
    let origin = request.headers().get(ORIGIN)?;
    let host = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    match host {
        Some(host) if is_allowed_host(host, &shared.settings.allowed_hosts) => None,
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
