//! The dispatch of a request by path. Called by `connection` for every request on either port.

use std::net::IpAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, ALLOW, CONTENT_TYPE, HOST, ORIGIN};
use hyper::{Method, Request, StatusCode};

use super::page;
use crate::api::endpoints;
use crate::receive::{otlp_grpc, otlp_http};
use crate::reply::{self, Reply};
use crate::state::server_state::ServerState;

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
    let response = if is_page { page::respond(&request) } else { endpoints::respond(state, path, &request).await };
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
