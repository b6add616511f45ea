//! What an HTTP answer means: status, Retry-After, partial success, error text. Pure; it reads no socket and no clock.

use crate::outcome::{Outcome, Redactor, RetryReason, PROFILES_NOT_ENABLED};
use crate::wire::{ExportProfilesServiceResponse, RpcStatus};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::header::{self, HeaderMap};
use http::StatusCode;
use prost::Message;
use std::io::Read;
use std::time::{Duration, UNIX_EPOCH};

/// Limit of OTLP for an answer, before and after decompression.
pub(crate) const LONGEST_ANSWER_BYTES: usize = 4 << 20;

/// Of an error text. A server's list of 30 labels of 2 KiB each, and the reason behind it.
const LONGEST_REMARK_BYTES: usize = 128 << 10;

/// A whole answer, as far as it came.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: AnswerBody,
}

pub(crate) enum AnswerBody {
    Complete(Bytes),
    /// The connection ended, or the time, before the body did.
    Broken,
    TooLong,
}

/// The retry table of OTLP/HTTP.
pub(crate) fn judge(answer: Answer, receiver: &str, redactor: &Redactor, unix_now: Duration) -> Outcome {
    let status = answer.status;
    let body = match plain_body(&answer) {
        Ok(body) => body,
        Err(why) => return Outcome::Refused { message: format!("{receiver} answered {status} with {why}") },
    };
    if status.is_success() {
        return judge_success(&answer, body.as_deref(), receiver, redactor);
    }
    let body = body.unwrap_or_default();
    let rpc_status = if is_protobuf(&answer.headers) { RpcStatus::decode(body.as_ref()).ok() } else { None };
    let remark = match &rpc_status {
        Some(rpc_status) => rpc_status.message.clone(),
        None if is_text(&answer.headers) => {
            String::from_utf8_lossy(&body[..body.len().min(LONGEST_REMARK_BYTES)]).into_owned()
        }
        None => String::new(),
    };
    let shown = redactor.shown(&remark);
    let message = match shown.is_empty() {
        true => format!("{receiver} answered {status}"),
        false => format!("{receiver} answered {status}: {shown}"),
    };
    match status.as_u16() {
        429 | 502 | 503 | 504 => {
            let demanded = retry_after(&answer.headers, unix_now);
            let demanded = demanded.or_else(|| rpc_status.and_then(|rpc_status| rpc_status.retry_delay()));
            Outcome::Retry { reason: RetryReason::Asked(demanded), message }
        }
        413 => Outcome::TooLarge { message },
        // The Collector's answer to a body over its limit.
        400 if remark.contains("request body too large") => Outcome::TooLarge { message },
        404 => Outcome::Refused { message: format!("{message}; {PROFILES_NOT_ENABLED}") },
        401 | 403 => Outcome::Refused { message: format!("{message}; check the headers that authenticate") },
        300..=399 => {
            let to =
                answer.headers.get(header::LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
            let to = redactor.shown(&crate::endpoint::shown(to));
            Outcome::Refused {
                message: format!(
                    "{message}: a redirect to `{to}`, which is not followed; give the final URL as endpoint"
                ),
            }
        }
        _ => Outcome::Refused { message },
    }
}

fn judge_success(answer: &Answer, body: Option<&[u8]>, receiver: &str, redactor: &Redactor) -> Outcome {
    let status = answer.status;
    let Some(body) = body else {
        // The status came, so the request was taken: sending it again would count every sample twice.
        let warning = format!("{receiver} answered {status}, then the connection broke within the answer");
        return Outcome::Accepted { warning: Some(warning) };
    };
    if body.is_empty() {
        return Outcome::Accepted { warning: None };
    }
    if is_json(&answer.headers) {
        // Not what we asked for, but some receivers know no other language.
        let text = String::from_utf8_lossy(body);
        let shown = redactor.shown(&text);
        return match rejected_in_json(&text) {
            0 if text.trim() == "{}" => Outcome::Accepted { warning: None },
            0 => Outcome::Accepted { warning: Some(format!("{receiver} answered {status} with JSON: {shown}")) },
            rejected_profiles => Outcome::Partial {
                rejected_profiles,
                message: format!("{receiver} refused {rejected_profiles} profiles of a request: {shown}"),
            },
        };
    }
    let decoded = is_protobuf(&answer.headers).then(|| ExportProfilesServiceResponse::decode(body).ok()).flatten();
    let Some(response) = decoded else {
        let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no type");
        let kind = redactor.shown(kind);
        return Outcome::Refused {
            message: format!(
                "{receiver} answered {status} with {} bytes of {kind} that are no OTLP answer; is it an OTLP receiver?",
                body.len()
            ),
        };
    };
    partial_success(response, receiver, redactor)
}

/// An empty partial success is success; a remark without refusals is a warning.
pub(crate) fn partial_success(response: ExportProfilesServiceResponse, receiver: &str, redactor: &Redactor) -> Outcome {
    let partial = response.partial_success.unwrap_or_default();
    let remark = redactor.shown(&partial.error_message);
    match u64::try_from(partial.rejected_profiles).unwrap_or(0) {
        0 if remark.is_empty() => Outcome::Accepted { warning: None },
        0 => Outcome::Accepted { warning: Some(format!("{receiver} took everything and remarks: {remark}")) },
        rejected_profiles => Outcome::Partial {
            rejected_profiles,
            message: format!("{receiver} refused {rejected_profiles} profiles of a request: {remark}"),
        },
    }
}

/// The number at `rejectedProfiles`, which JSON of protobuf writes as text; 0 where there is none.
fn rejected_in_json(text: &str) -> u64 {
    let after_name = text.split_once("\"rejectedProfiles\"").map_or("", |(_, rest)| rest);
    let digits = after_name.trim_start_matches([':', ' ', '"']);
    let end = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// The body without its compression; `None` when it did not arrive whole.
fn plain_body(answer: &Answer) -> Result<Option<Bytes>, &'static str> {
    const TOO_LONG: &str = "more than 4 MiB, the limit of OTLP";
    let body = match &answer.body {
        AnswerBody::Complete(body) => body,
        AnswerBody::Broken => return Ok(None),
        AnswerBody::TooLong => return Err(TOO_LONG),
    };
    let encoding = answer.headers.get(header::CONTENT_ENCODING).map_or(&b""[..], |value| value.as_bytes());
    match encoding.to_ascii_lowercase().as_slice() {
        b"" | b"identity" => Ok(Some(body.clone())),
        b"gzip" | b"x-gzip" => {
            let mut plain = Vec::new();
            let mut decoder = MultiGzDecoder::new(body.as_ref()).take(LONGEST_ANSWER_BYTES as u64 + 1);
            decoder.read_to_end(&mut plain).map_err(|_| "a body that is not the gzip it claims to be")?;
            if plain.len() > LONGEST_ANSWER_BYTES {
                return Err(TOO_LONG);
            }
            Ok(Some(Bytes::from(plain)))
        }
        _ => Err("a compression we did not ask for"),
    }
}

fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A body without a type is taken for what we asked for.
fn is_protobuf(headers: &HeaderMap) -> bool {
    matches!(media_type(headers).as_str(), "" | "application/x-protobuf" | "application/protobuf")
}

fn is_json(headers: &HeaderMap) -> bool {
    media_type(headers) == "application/json"
}

fn is_text(headers: &HeaderMap) -> bool {
    is_json(headers) || media_type(headers) == "text/plain"
}

/// Seconds or a date; a date in the past asks for no pause.
fn retry_after(headers: &HeaderMap, unix_now: Duration) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(unix_now))
}
