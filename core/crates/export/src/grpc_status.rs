//! What a gRPC answer means: code, RetryInfo, partial success. Pure.

use crate::http_answer::partial_success;
use crate::outcome::{Outcome, Redactor, RetryReason, PROFILES_NOT_ENABLED};
use crate::wire::{ExportProfilesServiceResponse, RpcStatus};
use prost::Message;
use tonic::{Code, Status};

/// How servers say that a message is larger than they take: Go, C++ and Java, Rust, .NET.
const TOO_LARGE: [&str; 4] =
    ["larger than max", "exceeds maximum size", "message length too large", "exceeds the maximum"];

/// The retry table of OTLP/gRPC.
pub(crate) fn judge_status(status: &Status, receiver: &str, redactor: &Redactor) -> Outcome {
    let code = status.code();
    let shown = redactor.shown(status.message());
    let message = match shown.is_empty() {
        true => format!("{receiver} answered {code:?}"),
        false => format!("{receiver} answered {code:?}: {shown}"),
    };
    let demanded = RpcStatus::decode(status.details()).ok().and_then(|rpc_status| rpc_status.retry_delay());
    let says_too_large = TOO_LARGE.iter().any(|phrase| status.message().contains(phrase));
    match code {
        // Some servers give a code that is otherwise worth a retry; the same bytes would be as large next time.
        Code::ResourceExhausted | Code::OutOfRange if says_too_large && demanded.is_none() => {
            Outcome::TooLarge { message }
        }
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => Outcome::Retry { reason: RetryReason::Asked(demanded), message },
        Code::ResourceExhausted if demanded.is_some() => {
            Outcome::Retry { reason: RetryReason::Asked(demanded), message }
        }
        Code::Unimplemented => Outcome::Refused { message: format!("{message}; {PROFILES_NOT_ENABLED}") },
        Code::Unauthenticated | Code::PermissionDenied => {
            Outcome::Refused { message: format!("{message}; check the headers that authenticate") }
        }
        _ => Outcome::Refused { message },
    }
}

/// The message of an answer with status OK.
pub(crate) fn judge_answer(body: &[u8], receiver: &str, redactor: &Redactor) -> Outcome {
    match ExportProfilesServiceResponse::decode(body) {
        Ok(response) => partial_success(response, receiver, redactor),
        Err(_) => Outcome::Refused {
            message: format!(
                "{receiver} answered OK with {} bytes that are no OTLP answer; is it an OTLP receiver?",
                body.len()
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{judge_answer, judge_status};
    use crate::outcome::{Outcome, Redactor, RetryReason};
    use crate::wire::{Any, ProtobufDuration, RetryInfo, RpcStatus};
    use prost::Message;
    use std::time::Duration;
    use tonic::{Code, Status};

    fn judged(status: &Status) -> Outcome {
        judge_status(status, "http://r", &Redactor::new(["marker"].into_iter()))
    }

    fn with_retry_info(code: Code, seconds: i64) -> Status {
        let info = RetryInfo { retry_delay: Some(ProtobufDuration { seconds, nanos: 0 }) };
        let type_url = "type.googleapis.com/google.rpc.RetryInfo".to_owned();
        let details = vec![Any { type_url, value: info.encode_to_vec() }];
        let rpc_status = RpcStatus { code: code as i32, message: String::new(), details };
        Status::with_details(code, "busy", rpc_status.encode_to_vec().into())
    }

    #[test]
    fn exactly_the_codes_of_the_specification_are_retried() {
        let retried = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Aborted,
            Code::OutOfRange,
            Code::Unavailable,
            Code::DataLoss,
        ];
        for number in 1..=16 {
            let code = Code::from_i32(number);
            let is_retry = matches!(judged(&Status::new(code, "why")), Outcome::Retry { .. });
            assert_eq!(is_retry, retried.contains(&code), "{code:?}");
        }
    }

    #[test]
    fn exhausted_is_retried_only_when_the_receiver_says_when() {
        assert!(matches!(judged(&Status::new(Code::ResourceExhausted, "quota")), Outcome::Refused { .. }));
        let Outcome::Retry { reason, .. } = judged(&with_retry_info(Code::ResourceExhausted, 9)) else { panic!() };
        assert_eq!(reason, RetryReason::Asked(Some(Duration::from_secs(9))));
        let Outcome::Retry { reason, .. } = judged(&with_retry_info(Code::Unavailable, 3)) else { panic!() };
        assert_eq!(reason, RetryReason::Asked(Some(Duration::from_secs(3))));
    }

    #[test]
    fn a_message_over_the_limit_is_too_large_whatever_the_code() {
        for (code, words) in [
            (Code::ResourceExhausted, "grpc: received message larger than max (5243707 vs. 4194304)"),
            (Code::OutOfRange, "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes"),
            (Code::ResourceExhausted, "gRPC message exceeds maximum size 4194304: 5243707"),
        ] {
            assert!(matches!(judged(&Status::new(code, words)), Outcome::TooLarge { .. }), "{words}");
        }
    }

    #[test]
    fn an_unknown_service_is_explained() {
        let Outcome::Refused { message } = judged(&Status::unimplemented("unknown service x")) else { panic!() };
        assert!(message.contains("service.profilesSupport"), "{message}");
    }

    #[test]
    fn a_status_that_quotes_our_token_is_shown_without_it() {
        let Outcome::Refused { message } = judged(&Status::unauthenticated("token marker is wrong")) else { panic!() };
        assert!(message.contains("token *** is wrong"), "{message}");
    }

    #[test]
    fn an_ok_with_bytes_of_another_kind_is_no_success() {
        let redactor = Redactor::new(std::iter::empty());
        assert_eq!(judge_answer(b"", "r", &redactor), Outcome::Accepted { warning: None });
        assert_eq!(judge_answer(&[0x0a, 0x00], "r", &redactor), Outcome::Accepted { warning: None });
        assert!(matches!(judge_answer(b"<html>", "r", &redactor), Outcome::Refused { .. }));
    }
}
