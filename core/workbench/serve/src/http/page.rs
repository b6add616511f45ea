//! The page at `/`, and what a browser may load for it.

use std::hash::{BuildHasher, RandomState};

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use hyper::{Request, StatusCode};
use spanprof_view::page;

use crate::reply::{self, Reply};

pub(crate) fn respond(_: &Request<Incoming>) -> Reply {
    // Only scripts with the nonce run: text of a profile is never executed.
    let nonce = format!("{:016x}", RandomState::new().hash_one(0));
    let mut page = reply::body(StatusCode::OK, "text/html; charset=utf-8", page::served(&nonce));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    reply::set(&mut page, CACHE_CONTROL, "no-store");
    reply::set(&mut page, REFERRER_POLICY, "no-referrer");
    reply::set(&mut page, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    page
}
