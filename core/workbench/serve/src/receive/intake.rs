//! Receives the bytes of one request: checks, decodes and stores them. Shared by the routes, which differ only in framing and
//! status codes. Called by `otlp_http` and `otlp_grpc`.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use spanprof_profile::encode::gzip;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::redact::UnredactedProfiles;
use spanprof_profile::transform::separate_exact_values;
use spanprof_profile::ProfilesData;
use spanprof_read::decode::{self, DecodeError};
use tokio::time::Instant;

use crate::state::server_state::{IntakeCounters, ServerState};

const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// `BODY_DEADLINE` while every connection is in use and others may wait.
const BODY_DEADLINE_WHEN_FULL: Duration = Duration::from_secs(3);
/// Limit on the bytes of all requests that are arriving or being decoded.
const MAX_HELD_BYTES: usize = 64 << 20;
/// Retry-After of a request that was refused for lack of memory or disk space.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 5;

/// Reason that a request was refused. Each has one HTTP status and one gRPC code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400 / INVALID_ARGUMENT: permanent.
    Invalid(String),
    /// 413 / RESOURCE_EXHAUSTED.
    TooLarge(String),
    /// 408 / DEADLINE_EXCEEDED: the body arrived too slowly.
    TooSlow,
    /// 503 / UNAVAILABLE: retryable.
    Unavailable(String),
    /// The connection failed; the response has no reader.
    Broken(String),
}

impl Refusal {
    pub(crate) fn message(&self) -> String {
        match self {
            Refusal::Invalid(text) | Refusal::TooLarge(text) | Refusal::Unavailable(text) | Refusal::Broken(text) => {
                text.clone()
            }
            Refusal::TooSlow => format!(
                "the request did not arrive within {} s, or {} s while every connection is in use",
                BODY_DEADLINE.as_secs(),
                BODY_DEADLINE_WHEN_FULL.as_secs()
            ),
        }
    }

    pub(crate) fn http_status(&self) -> u16 {
        match self {
            Refusal::Invalid(_) | Refusal::Broken(_) => 400,
            Refusal::TooLarge(_) => 413,
            Refusal::TooSlow => 408,
            Refusal::Unavailable(_) => 503,
        }
    }

    /// The `google.rpc.Code`.
    pub(crate) fn grpc_code(&self) -> u32 {
        match self {
            Refusal::Invalid(_) => 3,
            Refusal::TooSlow => 4,
            Refusal::TooLarge(_) => 8,
            Refusal::Unavailable(_) => 14,
            Refusal::Broken(_) => 1,
        }
    }

    fn counter<'a>(&self, counters: &'a IntakeCounters) -> &'a AtomicU64 {
        match self {
            Refusal::Invalid(_) => &counters.refused_invalid,
            Refusal::TooLarge(_) => &counters.refused_too_large,
            Refusal::TooSlow => &counters.refused_too_slow,
            Refusal::Unavailable(_) => &counters.refused_unavailable,
            Refusal::Broken(_) => &counters.broken,
        }
    }
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        Refusal::Invalid(error.to_string())
    }
}

/// Encoding of an OTLP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadFormat {
    Protobuf { gzipped: bool },
    Json { gzipped: bool },
}

/// Checks the schema revision of a request: absent means 1, the only supported one.
pub(crate) fn check_revision(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(Revision::HEADER).iter();
    let expected = Revision::One.header_value();
    match (values.next(), values.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if value == expected => Ok(()),
        (Some(value), None) => Err(Refusal::Invalid(format!(
            "{}: expected {expected}, got {:?}; this receiver reads opentelemetry-proto 1.10 and 1.11",
            Revision::HEADER,
            String::from_utf8_lossy(value.as_bytes()),
        ))),
        (Some(_), Some(_)) => Err(Refusal::Invalid(format!("{}: expected one value, got several", Revision::HEADER))),
    }
}

/// Bytes of a request; they count toward [`MAX_HELD_BYTES`] until they are dropped.
pub(crate) struct RequestBody {
    pub bytes: Bytes,
    _reservation: MemoryReservation,
}

/// Share of [`MAX_HELD_BYTES`].
struct MemoryReservation {
    state: Arc<ServerState>,
    bytes: usize,
}

impl MemoryReservation {
    fn grow(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes += bytes;
        if self.state.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_HELD_BYTES {
            return Err(Refusal::Unavailable(format!(
                "requests of more than {MAX_HELD_BYTES} bytes are arriving at once; try again"
            )));
        }
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.state.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The whole body, within the size limits and the deadline.
pub(crate) async fn collect(state: &Arc<ServerState>, mut body: Incoming) -> Result<RequestBody, Refusal> {
    let max_bytes = state.settings.max_request_bytes;
    let mut reservation = MemoryReservation { state: state.clone(), bytes: 0 };
    let arrival = async {
        let mut buffer = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refusal::Broken(format!("the request was interrupted: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if buffer.len() + data.len() > max_bytes {
                return Err(Refusal::TooLarge(format!(
                    "the request is larger than {max_bytes} bytes; send smaller windows"
                )));
            }
            reservation.grow(data.len())?;
            buffer.extend_from_slice(&data);
        }
        Ok(buffer.freeze())
    };
    let late = state.connection_slots.deadline_passed(Instant::now(), BODY_DEADLINE_WHEN_FULL, BODY_DEADLINE);
    let bytes = tokio::select! {
        biased;
        bytes = arrival => bytes?,
        () = late => return Err(Refusal::TooSlow),
    };
    Ok(RequestBody { bytes, _reservation: reservation })
}

/// Decodes and stores an OTLP request on a blocking thread.
pub(crate) async fn store(state: &Arc<ServerState>, payload: PayloadFormat, body: RequestBody) -> Result<(), Refusal> {
    let shared = state.clone();
    let size = body.bytes.len() as u64;
    let stored = state.decode_slots.run(move || store_otlp(&shared, payload, &body.bytes)).await;
    let samples = match stored {
        Ok(outcome) => outcome?,
        Err(reason) => return Err(Refusal::Unavailable(reason)),
    };
    let counters = &state.counters;
    counters.requests.fetch_add(1, Ordering::Relaxed);
    counters.bytes.fetch_add(size, Ordering::Relaxed);
    counters.samples.fetch_add(samples, Ordering::Relaxed);
    Ok(())
}

/// Counts a refusal and logs it at a decreasing rate.
pub(crate) fn report_refusal(state: &ServerState, reason: &Refusal) {
    let before = reason.counter(&state.counters).fetch_add(1, Ordering::Relaxed);
    // At powers of two of each kind: a misconfigured exporter repeats its request every few seconds.
    if (before + 1).is_power_of_two() {
        state.report(&format!("refused a request ({} of this kind): {}", before + 1, reason.message()));
    }
}

fn store_otlp(state: &ServerState, payload: PayloadFormat, bytes: &[u8]) -> Result<u64, Refusal> {
    let is_gzip = bytes.starts_with(&[0x1f, 0x8b]);
    let (PayloadFormat::Protobuf { gzipped } | PayloadFormat::Json { gzipped }) = payload;
    if gzipped != is_gzip {
        let (declared, actual) = if gzipped { ("gzip", "something else") } else { ("no compression", "gzip") };
        return Err(Refusal::Invalid(format!("the headers declare {declared}, the body is {actual}")));
    }
    let data = decode::otlp::decode(bytes, &state.settings.limits)?;
    // The received bytes are stored unchanged, so that `check` applies to what the sender encoded.
    keep(state, data, matches!(payload, PayloadFormat::Protobuf { .. }).then_some(bytes))
}

/// Stores profiles without the duplicates of earlier requests, and returns the number of samples. `unchanged`: their bytes as
/// OTLP, plain or gzip, which are stored unless a profile is left out or redacted.
fn keep(state: &ServerState, mut data: ProfilesData, unchanged: Option<&[u8]>) -> Result<u64, Refusal> {
    let claim = state.store.received.claim(&mut data);
    state.counters.duplicate_profiles.fetch_add(claim.duplicates, Ordering::Relaxed);
    let samples = data.sample_count() as u64;
    // An empty request is a success and is not stored.
    if samples == 0 {
        return Ok(0);
    }
    if let Some(redactor) = &state.redactor {
        let mut redactor = redactor.lock().unwrap_or_else(PoisonError::into_inner);
        data = UnredactedProfiles::new(data).redacted_with_resources(&mut redactor);
    }
    let kept = match unchanged.filter(|_| claim.duplicates == 0 && state.redactor.is_none()) {
        Some(bytes) if bytes.starts_with(&[0x1f, 0x8b]) => Cow::Borrowed(bytes),
        Some(bytes) => Cow::Owned(gzip(bytes)),
        None => Cow::Owned(gzip(&otlp::encode(&separate_exact_values(data.clone()), Revision::One))),
    };
    announce_new_services(state, &data);
    state.store.keep(&kept, &data).map_err(|error| {
        state.store.received.withdraw(&claim);
        Refusal::Unavailable(format!("cannot write into {}: {error}", state.store.directory().display()))
    })?;
    Ok(samples)
}

/// Logs one line for each service that sends for the first time.
fn announce_new_services(state: &ServerState, data: &ProfilesData) {
    for resource in &data.resources {
        let service = resource.service_name();
        if resource.profiles.iter().any(|profile| !profile.samples.is_empty()) && state.is_new_service(service) {
            let mut types: Vec<&str> = resource.profiles.iter().map(|profile| profile.type_name()).collect();
            types.sort_unstable();
            types.dedup();
            state.report(&format!("first profiles from {service:?}: {}", types.join(", ")));
        }
    }
}
