//! Decoder of OTLP profiles: the protobuf request, and both formats of the Collector's file exporter (JSON lines; protobuf
//! with 4-byte length prefixes). Resolves references into the string table, which Collectors since 0.161 write for the
//! attributes of a resource.
//!
//! Discarded: schema URLs, scope attributes, original payloads. Arrays, lists and bytes are converted to text.

mod attributes;
mod convert;
mod encoded;
mod tables;

use std::borrow::Cow;

use prost::Message;

use super::{decompress, json_bound, DecodeError, DecodeLimits};
use crate::wire::messages::HasSchema;
use crate::wire::{otlp as wire, scan};
use convert::convert;
use encoded::EncodedParts;
use spanprof_profile::ProfilesData;

pub(crate) const WHAT: &str = "OTLP profiles";

/// Decodes plain or gzipped bytes. Several requests in one file are appended in their order.
pub fn decode(bytes: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    decode_decompressed(decompress::decompress(WHAT, bytes, limits)?, limits)
}

pub(super) fn decode_decompressed(body: Cow<'_, [u8]>, limits: &DecodeLimits) -> Result<ProfilesData, DecodeError> {
    let mut data = ProfilesData::default();
    each_request_of(&body, limits, |request, nth| {
        let converted = match request {
            OtlpRequest::Protobuf(bytes) => EncodedParts::split(bytes)
                .map_err(protobuf_error)
                .and_then(|(request, encoded)| convert(&request, &encoded, &mut data, limits)),
            OtlpRequest::Json(request) => convert(&request, &EncodedParts::default(), &mut data, limits),
        };
        converted.map_err(|error| within(nth, error))?;
        Ok(model_bytes(&data))
    })?;
    Ok(data)
}

/// Calls `visit` with the wire message of each request, and its position when the format allows several. `visit` returns the
/// memory of its results so far, which reduces the limit for the rest.
pub(crate) fn each_request(
    bytes: &[u8],
    limits: &DecodeLimits,
    mut visit: impl FnMut(wire::ProfilesData, Option<usize>) -> Result<usize, DecodeError>,
) -> Result<(), DecodeError> {
    each_request_of(&decompress::decompress(WHAT, bytes, limits)?, limits, |request, nth| {
        let message = match request {
            OtlpRequest::Protobuf(bytes) => wire::ProfilesData::decode(bytes).map_err(protobuf_error),
            OtlpRequest::Json(message) => Ok(message),
        };
        visit(message.map_err(|error| within(nth, error))?, nth)
    })
}

/// A request within the limits.
enum OtlpRequest<'b> {
    Protobuf(&'b [u8]),
    Json(wire::ProfilesData),
}

fn each_request_of(
    body: &[u8],
    limits: &DecodeLimits,
    mut visit: impl FnMut(OtlpRequest<'_>, Option<usize>) -> Result<usize, DecodeError>,
) -> Result<(), DecodeError> {
    let mut rest = *limits;
    let mut each = |request: Result<OtlpRequest<'_>, DecodeError>, nth: Option<usize>, rest: &mut DecodeLimits| {
        let used = visit(request.map_err(|error| within(nth, error))?, nth)?;
        rest.memory_bytes = limits.memory_bytes.saturating_sub(used);
        Ok::<(), DecodeError>(())
    };
    match encoding_of(body) {
        OtlpEncoding::Protobuf => each(message(body, &rest), None, &mut rest),
        OtlpEncoding::JsonLines => {
            for (nth, line) in body.split(|byte| *byte == b'\n').enumerate() {
                if !line.trim_ascii().is_empty() {
                    each(json(line, &rest), Some(nth), &mut rest)?;
                }
            }
            Ok(())
        }
        OtlpEncoding::LengthPrefixed => {
            let (mut tail, mut nth) = (body, 0);
            while !tail.is_empty() {
                let (request, after) = frame(tail).map_err(|error| within(Some(nth), error))?;
                each(message(request, &rest), Some(nth), &mut rest)?;
                (tail, nth) = (after, nth + 1);
            }
            Ok(())
        }
    }
}

enum OtlpEncoding {
    Protobuf,
    JsonLines,
    LengthPrefixed,
}

/// Detects the encoding. No protobuf message begins with a zero byte (field 0). A request begins with a line feed (field 1)
/// and may continue with `{` (a length of 123), so valid protobuf takes precedence over JSON.
fn encoding_of(body: &[u8]) -> OtlpEncoding {
    let is_request =
        || scan::outer_fields(body).is_some_and(|fields| fields.iter().all(|field| matches!(field, 1 | 2)));
    match body.trim_ascii_start().first() {
        Some(b'{') if !is_request() => OtlpEncoding::JsonLines,
        _ if body.first() == Some(&0) => OtlpEncoding::LengthPrefixed,
        _ => OtlpEncoding::Protobuf,
    }
}

/// Checks the size of one request in protobuf or JSON.
pub(super) fn check_size(body: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    match encoding_of(body) {
        OtlpEncoding::JsonLines => check_json_size(body, limits),
        _ => scan::scan(WHAT, body, wire::ProfilesData::schema(), limits),
    }
}

fn message<'b>(bytes: &'b [u8], limits: &DecodeLimits) -> Result<OtlpRequest<'b>, DecodeError> {
    scan::scan(WHAT, bytes, wire::ProfilesData::schema(), limits)?;
    Ok(OtlpRequest::Protobuf(bytes))
}

fn protobuf_error(error: prost::DecodeError) -> DecodeError {
    DecodeError {
        what: WHAT,
        at: String::new(),
        expected: "a profiles request in protobuf".to_owned(),
        got: error.to_string(),
    }
}

fn json(line: &[u8], limits: &DecodeLimits) -> Result<OtlpRequest<'static>, DecodeError> {
    check_json_size(line, limits)?;
    let message = serde_json::from_slice(line);
    message.map(OtlpRequest::Json).map_err(|error| json_error("OTLP profiles in JSON".to_owned(), error.to_string()))
}

fn check_json_size(line: &[u8], limits: &DecodeLimits) -> Result<(), DecodeError> {
    if json_bound::memory_bytes(line) > limits.memory_bytes {
        Err(json_error(format!("JSON of at most {} bytes in memory", limits.memory_bytes), "more".to_owned()))
    } else {
        Ok(())
    }
}

fn json_error(expected: String, got: String) -> DecodeError {
    DecodeError { what: WHAT, at: String::new(), expected, got }
}

fn frame(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let decode_error = |expected: String, got: usize| DecodeError {
        what: WHAT,
        at: String::new(),
        expected,
        got: format!("{got} bytes"),
    };
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(decode_error("a length of 4 bytes".to_owned(), bytes.len()));
    };
    let length = u32::from_be_bytes(*length) as usize;
    rest.split_at_checked(length).ok_or_else(|| decode_error(format!("a message of {length} bytes"), rest.len()))
}

fn within(nth: Option<usize>, error: DecodeError) -> DecodeError {
    match nth {
        None => error,
        Some(nth) => {
            let at = if error.at.is_empty() {
                format!("request {}", nth + 1)
            } else {
                format!("request {}: {}", nth + 1, error.at)
            };
            DecodeError { at, ..error }
        }
    }
}

fn model_bytes(data: &ProfilesData) -> usize {
    let samples = |profile: &spanprof_profile::Profile| {
        let elements: usize = profile.samples.iter().map(|s| s.values.len() + s.timestamps_unix_nano.len()).sum();
        profile.samples.capacity() * (size_of::<spanprof_profile::Sample>() + 32) + elements * 8
    };
    data.dictionary.memory_bytes() + data.profiles().map(|(_, profile)| 512 + samples(profile)).sum::<usize>()
}

#[cfg(test)]
mod tests;
