//! Responses of the server: one buffer, and trailers for gRPC. Called by every route.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use percent_encoding::{utf8_percent_encode, AsciiSet, CONTROLS};

/// gRPC's header form of a message escapes `%` and bytes other than printable ASCII.
const GRPC_ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// A complete body, then trailers if any.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// An HTTP response with a body.
pub(crate) fn body(status: StatusCode, content_type: &'static str, data: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(data.into()).boxed_unsync());
    *reply.status_mut() = status;
    set(&mut reply, hyper::header::CONTENT_TYPE, content_type);
    set(&mut reply, hyper::header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    reply
}

/// One line of text, for a wrong path or method.
pub(crate) fn text(status: StatusCode, line: &str) -> Reply {
    body(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// The answer to another method than POST where profiles are received.
pub(crate) fn post_only() -> Reply {
    let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "profiles are sent here with POST");
    set(&mut refused, hyper::header::ALLOW, "POST");
    refused
}

/// Sets a header to a constant value.
pub(crate) fn set(reply: &mut Reply, name: HeaderName, value: &'static str) {
    reply.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// Drops the body, for HEAD requests.
pub(crate) fn without_body(mut reply: Reply) -> Reply {
    *reply.body_mut() = UnsyncBoxBody::default();
    reply
}

/// A unary gRPC response: the message, then `grpc-status: 0`.
pub(crate) fn grpc_message(message: &[u8]) -> Reply {
    let mut framed = Vec::with_capacity(5 + message.len());
    framed.push(0);
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(Bytes::from(framed)).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut reply = Response::new(body.boxed_unsync());
    set(&mut reply, hyper::header::CONTENT_TYPE, "application/grpc");
    reply
}

/// A gRPC error: headers only, as the protocol allows when there is no message.
pub(crate) fn grpc_error(code: u32, message: &str) -> Reply {
    let mut reply = Response::new(UnsyncBoxBody::default());
    set(&mut reply, hyper::header::CONTENT_TYPE, "application/grpc");
    set(&mut reply, HeaderName::from_static("grpc-accept-encoding"), "gzip,identity");
    reply.headers_mut().insert("grpc-status", HeaderValue::from(code));
    if let Ok(value) = HeaderValue::from_str(&utf8_percent_encode(message, GRPC_ESCAPED).to_string()) {
        reply.headers_mut().insert("grpc-message", value);
    }
    reply
}

#[cfg(test)]
mod tests {
    use hyper::body::Body;

    use super::*;

    #[test]
    fn a_grpc_message_is_percent_encoded() {
        let reply = grpc_error(3, "100 % größer\n");
        assert_eq!(reply.headers()["grpc-message"], "100 %25 gr%C3%B6%C3%9Fer%0A");
        assert_eq!(reply.headers()["grpc-status"], "3");
        assert!(reply.body().is_end_stream());
    }
}
