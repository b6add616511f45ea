//! The page at `/`: one document with its style, its script and those of the flame graph, without external resources.

use std::hash::{BuildHasher, RandomState};

use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use hyper::{Request, StatusCode};
use spanprof_profile::encode::flamegraph;

use super::reply::{self, Reply};

const DOCUMENT: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// Preact 10.29.8 (MIT) as its npm package has it: forms, tables and history. The browser tests compare it with the package.
const PREACT: &str = include_str!("page/preact.min.umd.js");
/// The parts of one function, so that they share their declarations but add none to the page.
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\nconst { h, render, Component } = preact;\nconst root = document.documentElement;\n",
    include_str!("page/quantities.js"),
    include_str!("page/address.js"),
    include_str!("page/store.js"),
    include_str!("page/header.js"),
    include_str!("page/labels.js"),
    include_str!("page/filters.js"),
    include_str!("page/timeline.js"),
    include_str!("page/table.js"),
    include_str!("page/flame.js"),
    include_str!("page/function.js"),
    include_str!("page/requests.js"),
    include_str!("page/compare.js"),
    include_str!("page/waiting.js"),
    include_str!("page/keys.js"),
    include_str!("page/page.js"),
    "})();\n"
);

pub(crate) fn respond(_: &Request<Incoming>) -> Reply {
    // Only scripts with the nonce run: text of a profile is never executed.
    let nonce = format!("{:016x}", RandomState::new().hash_one(0));
    let document = DOCUMENT
        .replace("{{nonce}}", &nonce)
        .replace("{{version}}", env!("CARGO_PKG_VERSION"))
        .replace("{{style}}", &[flamegraph::STYLE, STYLE].join("\n"))
        .replace("{{script}}", &[PREACT, flamegraph::SCRIPT, SCRIPT].join("\n"));
    let mut page = reply::body(StatusCode::OK, "text/html; charset=utf-8", document);
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
