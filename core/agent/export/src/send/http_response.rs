//! Classifies an HTTP response: status, Retry-After, partial success, error text. Reads no socket and no clock.

use crate::outcome::{AttemptOutcome, OtlpSignal, Redactor, RetryReason, HINT_PROXY_USER, NO_PUSH_SERVICE};
use crate::send::wire::{ExportServiceResponse, RpcStatus};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::header::{self, HeaderMap};
use http::StatusCode;
use prost::Message;
use std::io::Read;
use std::time::{Duration, UNIX_EPOCH};

/// Limit of OTLP for a response, before and after decompression.
pub(crate) const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Limit of an error text: a server's list of 30 labels of 2 KiB each, and the reason after it.
const MAX_ERROR_TEXT_BYTES: usize = 128 << 10;

/// Protocol of the bodies and responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpProtocol {
    /// OTLP/HTTP with protobuf.
    Otlp(OtlpSignal),
    /// A unary call of the Connect protocol with protobuf: `push.v1.PusherService/Push`.
    PyroscopePush,
}

/// A response, as far as it was received.
pub(crate) struct ReceiverResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ResponseBody,
}

pub(crate) enum ResponseBody {
    Complete(Bytes),
    /// The connection or the timeout ended before the body.
    Incomplete,
    TooLong,
}

/// Applies the retry table of OTLP/HTTP (OTLP specification, section "OTLP/HTTP Response").
pub(crate) fn classify(
    response: ReceiverResponse,
    protocol: HttpProtocol,
    receiver: &str,
    redactor: &Redactor,
    unix_now: Duration,
) -> AttemptOutcome {
    let status = response.status;
    let body = match plain_body(&response) {
        Ok(body) => body,
        Err(why) => return AttemptOutcome::Rejected { message: format!("{receiver} answered {status} with {why}") },
    };
    if status.is_success() {
        let signal = match protocol {
            // The response of `Push` has no fields.
            HttpProtocol::PyroscopePush if media_type(&response.headers) == "application/proto" => {
                return AttemptOutcome::Accepted { warning: None };
            }
            HttpProtocol::PyroscopePush => OtlpSignal::Profiles,
            HttpProtocol::Otlp(signal) => signal,
        };
        return classify_success(&response, body.as_deref(), signal, receiver, redactor);
    }
    let body = body.unwrap_or_default();
    let rpc_status = if is_protobuf(&response.headers) { RpcStatus::decode(body.as_ref()).ok() } else { None };
    let error_text = match &rpc_status {
        Some(rpc_status) => rpc_status.message.clone(),
        None if is_text(&response.headers) => {
            String::from_utf8_lossy(&body[..body.len().min(MAX_ERROR_TEXT_BYTES)]).into_owned()
        }
        None => String::new(),
    };
    let shown = redactor.redact(&error_text);
    let message = if shown.is_empty() {
        format!("{receiver} answered {status}")
    } else {
        format!("{receiver} answered {status}: {shown}")
    };
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            let requested = retry_after(&response.headers, unix_now);
            let requested = requested.or_else(|| rpc_status.and_then(|rpc_status| rpc_status.retry_delay()));
            AttemptOutcome::Retry { reason: RetryReason::Throttled(requested), message }
        }
        413 => AttemptOutcome::TooLarge { message },
        // The Collector's response to a body over its limit.
        400 if error_text.contains("request body too large") => AttemptOutcome::TooLarge { message },
        404 => {
            let hint = match protocol {
                HttpProtocol::Otlp(signal) => signal.no_service(),
                HttpProtocol::PyroscopePush => NO_PUSH_SERVICE,
            };
            AttemptOutcome::NoService { message: format!("{message}; {hint}") }
        }
        401 | 403 => AttemptOutcome::Rejected { message: format!("{message}; check the headers that authenticate") },
        407 => AttemptOutcome::Rejected { message: format!("{message}{HINT_PROXY_USER}") },
        300..=399 => {
            let to =
                response.headers.get(header::LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
            let to = redactor.redact(&crate::connect::endpoint::shown(to));
            AttemptOutcome::Rejected {
                message: format!(
                    "{message}: a redirect to `{to}`, which is not followed; give the final URL as endpoint"
                ),
            }
        }
        _ => AttemptOutcome::Rejected { message },
    }
}

fn classify_success(
    response: &ReceiverResponse,
    body: Option<&[u8]>,
    signal: OtlpSignal,
    receiver: &str,
    redactor: &Redactor,
) -> AttemptOutcome {
    let status = response.status;
    let Some(body) = body else {
        // The status arrived, so the receiver accepted the request: a retry would count every sample twice.
        let warning = format!("{receiver} answered {status}, then the connection ended within the response");
        return AttemptOutcome::Accepted { warning: Some(warning) };
    };
    if body.is_empty() {
        return AttemptOutcome::Accepted { warning: None };
    }
    if is_json(&response.headers) {
        // Requests accept protobuf, but some receivers send only JSON.
        let text = String::from_utf8_lossy(body);
        let shown = redactor.redact(&text);
        return match rejected_in_json(&text, signal) {
            0 if text.trim() == "{}" => AttemptOutcome::Accepted { warning: None },
            0 => AttemptOutcome::Accepted { warning: Some(format!("{receiver} answered {status} with JSON: {shown}")) },
            rejected => {
                AttemptOutcome::Partial { rejected, message: partial_message(receiver, rejected, signal, &shown) }
            }
        };
    }
    let decoded = is_protobuf(&response.headers).then(|| ExportServiceResponse::decode(body).ok()).flatten();
    let Some(response) = decoded else {
        let kind =
            response.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("unknown type");
        let kind = redactor.redact(kind);
        return AttemptOutcome::Rejected {
            message: format!(
                "{receiver} answered {status} with {} bytes of {kind} that are not an OTLP response; is it an OTLP receiver?",
                body.len()
            ),
        };
    };
    partial_success(response, signal, receiver, redactor)
}

/// An empty partial success is success; an error message without rejected elements is a warning.
pub(crate) fn partial_success(
    response: ExportServiceResponse,
    signal: OtlpSignal,
    receiver: &str,
    redactor: &Redactor,
) -> AttemptOutcome {
    let partial = response.partial_success.unwrap_or_default();
    let shown = redactor.redact(&partial.error_message);
    match u64::try_from(partial.rejected).unwrap_or(0) {
        0 if shown.is_empty() => AttemptOutcome::Accepted { warning: None },
        0 => AttemptOutcome::Accepted {
            warning: Some(format!("{receiver} accepted everything with a warning: {shown}")),
        },
        rejected => AttemptOutcome::Partial { rejected, message: partial_message(receiver, rejected, signal, &shown) },
    }
}

fn partial_message(receiver: &str, rejected: u64, signal: OtlpSignal, shown: &str) -> String {
    format!("{receiver} rejected {rejected} {} of a request: {shown}", signal.elements())
}

/// The number of rejected elements, which protobuf's JSON mapping writes as a string; 0 when absent.
fn rejected_in_json(text: &str, signal: OtlpSignal) -> u64 {
    let name = match signal {
        OtlpSignal::Profiles => "\"rejectedProfiles\"",
        OtlpSignal::Metrics => "\"rejectedDataPoints\"",
    };
    let after_name = text.split_once(name).map_or("", |(_, rest)| rest);
    let digits = after_name.trim_start_matches([':', ' ', '"']);
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The decompressed body; `None` when it is incomplete.
fn plain_body(response: &ReceiverResponse) -> Result<Option<Bytes>, &'static str> {
    const TOO_LONG: &str = "more than 4 MiB, the limit of OTLP";
    let body = match &response.body {
        ResponseBody::Complete(body) => body,
        ResponseBody::Incomplete => return Ok(None),
        ResponseBody::TooLong => return Err(TOO_LONG),
    };
    let encoding = response.headers.get(header::CONTENT_ENCODING).map_or(&b""[..], |value| value.as_bytes());
    match encoding.to_ascii_lowercase().as_slice() {
        b"" | b"identity" => Ok(Some(body.clone())),
        b"gzip" | b"x-gzip" => {
            let mut plain = Vec::new();
            let mut decoder = MultiGzDecoder::new(body.as_ref()).take(MAX_RESPONSE_BYTES as u64 + 1);
            decoder.read_to_end(&mut plain).map_err(|_| "a body that is not valid gzip")?;
            if plain.len() > MAX_RESPONSE_BYTES {
                return Err(TOO_LONG);
            }
            Ok(Some(Bytes::from(plain)))
        }
        _ => Err("an unsupported compression"),
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A body without a type is treated as protobuf.
fn is_protobuf(headers: &HeaderMap) -> bool {
    matches!(media_type(headers).as_str(), "" | "application/x-protobuf" | "application/protobuf")
}

fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers) == "application/json"
}

fn is_text(headers: &HeaderMap) -> bool {
    is_json(headers) || media_type(headers) == "text/plain"
}

/// Seconds or a date; a date in the past is zero.
fn retry_after(headers: &HeaderMap, unix_now: Duration) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(unix_now))
}
