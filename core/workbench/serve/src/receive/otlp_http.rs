//! OTLP over HTTP: `POST /v1development/profiles`, protobuf or JSON, plain or gzip. Called by `route`.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};

use super::intake::{self, PayloadFormat, Refusal};
use crate::reply::{self, Reply};
use crate::state::server_state::ServerState;

/// Path of the profiles signal while it is in development.
pub(crate) const PATH: &str = "/v1development/profiles";

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// An `ExportProfilesServiceResponse` with an empty `partial_success`: everything was accepted.
pub(crate) const SUCCESS: &[u8] = &[0x0a, 0x00];

pub(crate) async fn respond(state: &Arc<ServerState>, request: Request<Incoming>) -> Reply {
    if request.method() != Method::POST {
        return reply::post_only();
    }
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let media_type = media_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let is_json = match media_type.as_str() {
        PROTOBUF => false,
        JSON => true,
        other => {
            let line = format!("expected Content-Type {PROTOBUF} or {JSON}, got {other:?}");
            return reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, &line);
        }
    };
    let encoding = request.headers().get(CONTENT_ENCODING).map_or(&b"identity"[..], |value| value.as_bytes());
    let gzipped = match encoding.to_ascii_lowercase().as_slice() {
        b"identity" | b"" => false,
        b"gzip" => true,
        other => {
            let line = format!("expected Content-Encoding gzip or none, got {:?}", String::from_utf8_lossy(other));
            return reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, &line);
        }
    };
    let payload = if is_json { PayloadFormat::Json { gzipped } } else { PayloadFormat::Protobuf { gzipped } };
    match receive(state, request, payload).await {
        Ok(()) if is_json => reply::body(StatusCode::OK, JSON, &br#"{"partialSuccess":{}}"#[..]),
        Ok(()) => reply::body(StatusCode::OK, PROTOBUF, SUCCESS),
        Err(reason) => {
            intake::report_refusal(state, &reason);
            refusal_reply(&reason, is_json)
        }
    }
}

async fn receive(state: &Arc<ServerState>, request: Request<Incoming>, payload: PayloadFormat) -> Result<(), Refusal> {
    intake::check_revision(request.headers())?;
    let body = intake::collect(state, request.into_body()).await?;
    intake::store(state, payload, body).await
}

/// The status and a `google.rpc.Status`, in the format of the request.
fn refusal_reply(reason: &Refusal, is_json: bool) -> Reply {
    let status = StatusCode::from_u16(reason.http_status()).unwrap_or(StatusCode::BAD_REQUEST);
    let (code, message) = (reason.grpc_code(), reason.message());
    let mut refused = if is_json {
        reply::body(status, JSON, serde_json::json!({"code": code, "message": message}).to_string())
    } else {
        reply::body(status, PROTOBUF, rpc_status(code, &message))
    };
    if matches!(reason, Refusal::Unavailable(_)) {
        refused.headers_mut().insert(RETRY_AFTER, intake::RETRY_AFTER_SECONDS.into());
    }
    refused
}

/// `google.rpc.Status { code = 1, message = 2 }` in protobuf.
pub(crate) fn rpc_status(code: u32, message: &str) -> Vec<u8> {
    let mut out = vec![0x08];
    varint(&mut out, u64::from(code));
    out.push(0x12);
    varint(&mut out, message.len() as u64);
    out.extend_from_slice(message.as_bytes());
    out
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rpc_status_is_two_protobuf_fields() {
        assert_eq!(rpc_status(3, "bad"), [0x08, 3, 0x12, 3, b'b', b'a', b'd']);
        let long = rpc_status(3, &"x".repeat(200));
        assert_eq!(&long[..5], [0x08, 3, 0x12, 0xc8, 0x01]);
        assert_eq!(long.len(), 205);
    }
}
