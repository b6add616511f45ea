//! OTLP over gRPC: the unary method `ProfilesService/Export`, with its own framing: one unary method needs no server framework, of
//! which only the client half is linked. Called by `route`.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};

use super::intake::{self, PayloadFormat, Refusal};
use super::otlp_http::SUCCESS;
use crate::reply::{self, Reply};
use crate::state::server_state::ServerState;

const SERVICE: &str = "opentelemetry.proto.collector.profiles.v1development.ProfilesService";
const METHOD: &str = "Export";

const UNIMPLEMENTED: u32 = 12;

/// Whether a request is gRPC by its content type.
pub(crate) fn is_grpc(content_type: &[u8]) -> bool {
    content_type == b"application/grpc"
        || content_type.starts_with(b"application/grpc+")
        || content_type.starts_with(b"application/grpc;")
}

pub(crate) async fn respond(state: &Arc<ServerState>, request: Request<Incoming>) -> Reply {
    if request.method() != hyper::Method::POST {
        return reply::text(StatusCode::METHOD_NOT_ALLOWED, "gRPC calls are sent with POST");
    }
    let path = request.uri().path().trim_start_matches('/');
    let (service, method) = path.rsplit_once('/').unwrap_or((path, ""));
    if service != SERVICE {
        return reply::grpc_error(
            UNIMPLEMENTED,
            &format!("unknown service {service}; this receiver accepts profiles only"),
        );
    }
    if method != METHOD {
        return reply::grpc_error(UNIMPLEMENTED, &format!("unknown method {method} for service {SERVICE}"));
    }
    let encoding = request.headers().get("grpc-encoding").map_or(&b"identity"[..], |value| value.as_bytes());
    let compressed_is_gzip = match encoding {
        b"identity" => false,
        b"gzip" => true,
        other => {
            let other = String::from_utf8_lossy(other);
            return reply::grpc_error(
                UNIMPLEMENTED,
                &format!("grpc-encoding: expected gzip or identity, got {other:?}"),
            );
        }
    };
    match receive(state, request, compressed_is_gzip).await {
        Ok(()) => reply::grpc_message(SUCCESS),
        Err(reason) => {
            intake::report_refusal(state, &reason);
            reply::grpc_error(reason.grpc_code(), &reason.message())
        }
    }
}

async fn receive(
    state: &Arc<ServerState>,
    request: Request<Incoming>,
    compressed_is_gzip: bool,
) -> Result<(), Refusal> {
    intake::check_revision(request.headers())?;
    let mut body = intake::collect(state, request.into_body()).await?;
    let message = unframe(&mut body.bytes).map_err(Refusal::Invalid)?;
    let gzipped = match message {
        (false, _) => false,
        (true, _) if compressed_is_gzip => true,
        (true, _) => {
            return Err(Refusal::Invalid("the message is compressed, but grpc-encoding is not set".to_owned()))
        }
    };
    body.bytes = message.1;
    intake::store(state, PayloadFormat::Protobuf { gzipped }, body).await
}

/// The message of a unary call: a flag byte, four bytes of length, the message.
fn unframe(body: &mut Bytes) -> Result<(bool, Bytes), String> {
    if body.len() < 5 {
        return Err(format!("a gRPC message starts with 5 bytes, got {}", body.len()));
    }
    let flag = body.get_u8();
    let length = body.get_u32() as usize;
    if flag > 1 {
        return Err(format!("the compressed flag of a gRPC message is 0 or 1, got {flag}"));
    }
    if length != body.len() {
        return Err(format!("expected one gRPC message of {length} bytes, got {}", body.len()));
    }
    Ok((flag == 1, body.split_to(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unary_body_is_exactly_one_message() {
        let mut body = Bytes::from_static(&[1, 0, 0, 0, 2, 7, 8]);
        assert_eq!(unframe(&mut body), Ok((true, Bytes::from_static(&[7, 8]))));
        for wrong in [
            &[][..],
            &[0, 0, 0],
            &[2, 0, 0, 0, 0],
            &[0, 0, 0, 0, 2, 7],
            &[0, 0, 0, 0, 1, 7, 8],
            &[0, 255, 255, 255, 255],
        ] {
            assert!(unframe(&mut Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn content_types_of_grpc_are_recognized() {
        assert!(is_grpc(b"application/grpc") && is_grpc(b"application/grpc+proto"));
        assert!(!is_grpc(b"application/grpc-web") && !is_grpc(b"application/x-protobuf"));
    }
}
