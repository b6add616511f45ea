//! Classifies a gRPC response: status code, RetryInfo, partial success. Performs no I/O.

use crate::outcome::{AttemptOutcome, OtlpSignal, Redactor, RetryReason};
use crate::send::http_response::partial_success;
use crate::send::wire::{ExportServiceResponse, RpcStatus};
use prost::Message;
use tonic::{Code, Status};

/// Phrases of servers for a message over their limit: Go, C++ and Java, Rust, .NET.
const TOO_LARGE: [&str; 4] =
    ["larger than max", "exceeds maximum size", "message length too large", "exceeds the maximum"];

/// Applies the retry table of OTLP/gRPC (OTLP specification, section "OTLP/gRPC Response").
pub(crate) fn classify_status(
    status: &Status,
    signal: OtlpSignal,
    receiver: &str,
    redactor: &Redactor,
) -> AttemptOutcome {
    let code = status.code();
    let shown = redactor.redact(status.message());
    let message = if shown.is_empty() {
        format!("{receiver} answered {code:?}")
    } else {
        format!("{receiver} answered {code:?}: {shown}")
    };
    let requested = RpcStatus::decode(status.details()).ok().and_then(|rpc_status| rpc_status.retry_delay());
    let is_too_large = TOO_LARGE.iter().any(|phrase| status.message().contains(phrase));
    match code {
        // Some servers send a retryable code for a message that is too large, but a retry would send the same bytes.
        Code::ResourceExhausted | Code::OutOfRange if is_too_large && requested.is_none() => {
            AttemptOutcome::TooLarge { message }
        }
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => AttemptOutcome::Retry { reason: RetryReason::Throttled(requested), message },
        Code::ResourceExhausted if requested.is_some() => {
            AttemptOutcome::Retry { reason: RetryReason::Throttled(requested), message }
        }
        Code::Unimplemented => AttemptOutcome::NoService { message: format!("{message}; {}", signal.no_service()) },
        Code::Unauthenticated | Code::PermissionDenied => {
            AttemptOutcome::Rejected { message: format!("{message}; check the headers that authenticate") }
        }
        _ => AttemptOutcome::Rejected { message },
    }
}

/// Classifies the message of a response with status OK.
pub(crate) fn classify_message(body: &[u8], signal: OtlpSignal, receiver: &str, redactor: &Redactor) -> AttemptOutcome {
    match ExportServiceResponse::decode(body) {
        Ok(response) => partial_success(response, signal, receiver, redactor),
        Err(_) => AttemptOutcome::Rejected {
            message: format!(
                "{receiver} answered OK with {} bytes that are not an OTLP response; is it an OTLP receiver?",
                body.len()
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::classify_status;
    use crate::outcome::{AttemptOutcome, OtlpSignal, Redactor, RetryReason};
    use crate::send::wire::{Any, ProtobufDuration, RetryInfo, RpcStatus};
    use prost::Message;
    use std::time::Duration;
    use tonic::{Code, Status};

    fn classified(status: &Status) -> AttemptOutcome {
        classify_status(status, OtlpSignal::Profiles, "http://r", &Redactor::new(std::iter::empty()))
    }

    fn with_retry_info(code: Code, seconds: i64) -> Status {
        let info = RetryInfo { retry_delay: Some(ProtobufDuration { seconds, nanos: 0 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = vec![Any { type_url, value: info.encode_to_vec() }];
        let rpc_status = RpcStatus { code: code as i32, message: String::new(), details };
        Status::with_details(code, "busy", rpc_status.encode_to_vec().into())
    }

    #[test]
    fn resource_exhausted_is_retried_only_with_retry_info() {
        assert!(matches!(classified(&Status::new(Code::ResourceExhausted, "quota")), AttemptOutcome::Rejected { .. }));
        let AttemptOutcome::Retry { reason, .. } = classified(&with_retry_info(Code::ResourceExhausted, 9)) else {
            panic!()
        };
        assert_eq!(reason, RetryReason::Throttled(Some(Duration::from_secs(9))));
        let AttemptOutcome::Retry { reason, .. } = classified(&with_retry_info(Code::Unavailable, 3)) else { panic!() };
        assert_eq!(reason, RetryReason::Throttled(Some(Duration::from_secs(3))));
    }

    #[test]
    fn a_message_over_the_limit_is_too_large_with_each_code_that_servers_send() {
        for (code, text) in [
            (Code::ResourceExhausted, "grpc: received message larger than max (5243707 vs. 4194304)"),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes"),
            (Code::ResourceExhausted, "gRPC message exceeds maximum size 4194304: 5243707"),
        ] {
            assert!(matches!(classified(&Status::new(code, text)), AttemptOutcome::TooLarge { .. }), "{text}");
        }
    }
}
