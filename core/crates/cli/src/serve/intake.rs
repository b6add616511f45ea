//! Takes one request's bytes in: checks, decodes, keeps. The same for HTTP and gRPC, which differ only in how they frame
//! the bytes and word the outcome. Called by `otlp_http` and `otlp_grpc`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use spanprof_profile::decode;
use spanprof_profile::encode::otlp::{self, Revision};
use spanprof_profile::ProfilesData;
use tokio::time::Instant;

use super::connection::{first, First};
use super::route::Shared;
use super::store::gzip;

/// Time a request has to arrive whole.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// The same while every connection is taken and others may wait.
const BODY_DEADLINE_WHEN_FULL: Duration = Duration::from_secs(3);
/// Bytes of all requests that are arriving or being decoded.
const MAX_HELD_BYTES: usize = 64 << 20;
/// Seconds after which a request refused for lack of room may come again.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 5;

/// Why a request was not kept. Each has one HTTP status and one gRPC code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// 400 / INVALID_ARGUMENT: it will never be accepted.
    Invalid(String),
    /// 413 / RESOURCE_EXHAUSTED.
    TooLarge(String),
    /// 408 / DEADLINE_EXCEEDED: it did not arrive in time.
    TooSlow,
    /// 503 / UNAVAILABLE: worth sending again.
    Unavailable(String),
    /// The connection broke; nobody reads the answer.
    Broken(String),
}

impl Refused {
    pub(crate) fn message(&self) -> String {
        match self {
            Refused::Invalid(text) | Refused::TooLarge(text) | Refused::Unavailable(text) | Refused::Broken(text) => {
                text.clone()
            }
            Refused::TooSlow => format!(
                "the request did not arrive within {} s, or {} s while every connection is taken",
                BODY_DEADLINE.as_secs(),
                BODY_DEADLINE_WHEN_FULL.as_secs()
            ),
        }
    }

    pub(crate) fn http_status(&self) -> u16 {
        match self {
            Refused::Invalid(_) | Refused::Broken(_) => 400,
            Refused::TooLarge(_) => 413,
            Refused::TooSlow => 408,
            Refused::Unavailable(_) => 503,
        }
    }

    /// The `google.rpc.Code`.
    pub(crate) fn grpc_code(&self) -> u32 {
        match self {
            Refused::Invalid(_) => 3,
            Refused::TooSlow => 4,
            Refused::TooLarge(_) => 8,
            Refused::Unavailable(_) => 14,
            Refused::Broken(_) => 1,
        }
    }
}

/// What arrived and what became of it, for `/api/stats`.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub requests: AtomicU64,
    pub bytes: AtomicU64,
    pub samples: AtomicU64,
    /// Profiles that an earlier request brought.
    pub duplicate_profiles: AtomicU64,
    pub refused_invalid: AtomicU64,
    pub refused_too_large: AtomicU64,
    pub refused_too_slow: AtomicU64,
    pub refused_unavailable: AtomicU64,
    pub broken: AtomicU64,
}

impl Counters {
    fn refused(&self, reason: &Refused) -> &AtomicU64 {
        match reason {
            Refused::Invalid(_) => &self.refused_invalid,
            Refused::TooLarge(_) => &self.refused_too_large,
            Refused::TooSlow => &self.refused_too_slow,
            Refused::Unavailable(_) => &self.refused_unavailable,
            Refused::Broken(_) => &self.broken,
        }
    }
}

/// How the payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Protobuf { gzipped: bool },
    Json { gzipped: bool },
}

/// The schema revision a request names: absent means 1, and 1 is the only one there is.
pub(crate) fn check_revision(headers: &HeaderMap) -> Result<(), Refused> {
    let mut values = headers.get_all(Revision::HEADER).iter();
    let wanted = Revision::One.header_value();
    match (values.next(), values.next()) {
        (None, _) => Ok(()),
        (Some(value), None) if value == wanted => Ok(()),
        (Some(value), None) => Err(Refused::Invalid(format!(
            "{}: expected {wanted}, got {:?}; this receiver reads opentelemetry-proto 1.10 and 1.11",
            Revision::HEADER,
            String::from_utf8_lossy(value.as_bytes()),
        ))),
        (Some(_), Some(_)) => Err(Refused::Invalid(format!("{}: expected one value, got several", Revision::HEADER))),
    }
}

/// A request's bytes, counted against what all requests together may hold until they are dropped.
pub(crate) struct Held {
    pub bytes: Bytes,
    _room: Room,
}

/// Part of [`MAX_HELD_BYTES`].
struct Room {
    shared: Arc<Shared>,
    taken: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), Refused> {
        self.taken += bytes;
        if self.shared.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_HELD_BYTES {
            return Err(Refused::Unavailable(format!(
                "requests of more than {MAX_HELD_BYTES} bytes are arriving at once; try again"
            )));
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.shared.held_bytes.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// The whole body, within the size limits and the deadline.
pub(crate) async fn collect(shared: &Arc<Shared>, mut body: Incoming) -> Result<Held, Refused> {
    let max_bytes = shared.settings.max_request_bytes;
    let mut room = Room { shared: shared.clone(), taken: 0 };
    let arrival = async {
        let mut buffer = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refused::Broken(format!("the request broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if buffer.len() + data.len() > max_bytes {
                return Err(Refused::TooLarge(format!(
                    "the request is larger than {max_bytes} bytes; send smaller windows"
                )));
            }
            room.take(data.len())?;
            buffer.extend_from_slice(&data);
        }
        Ok(buffer.freeze())
    };
    let late = shared.places.crowded_out(Instant::now(), BODY_DEADLINE_WHEN_FULL, BODY_DEADLINE);
    let First::Left(bytes) = first(arrival, late).await else { return Err(Refused::TooSlow) };
    let bytes = bytes?;
    Ok(Held { bytes, _room: room })
}

/// Decodes and keeps a payload, on a blocking thread.
pub(crate) async fn keep(shared: &Arc<Shared>, payload: Payload, body: Held) -> Result<(), Refused> {
    let owned = shared.clone();
    let size = body.bytes.len() as u64;
    let kept = shared.decode_slots.run(move || keep_now(&owned, payload, &body.bytes)).await;
    let samples = match kept {
        Ok(outcome) => outcome?,
        Err(reason) => return Err(Refused::Unavailable(reason)),
    };
    let counters = &shared.counters;
    counters.requests.fetch_add(1, Ordering::Relaxed);
    counters.bytes.fetch_add(size, Ordering::Relaxed);
    counters.samples.fetch_add(samples, Ordering::Relaxed);
    Ok(())
}

/// Counts a refusal and reports it, sparingly.
pub(crate) fn note_refusal(shared: &Shared, reason: &Refused) {
    let before = shared.counters.refused(reason).fetch_add(1, Ordering::Relaxed);
    // The first of each kind and then ever fewer: a misconfigured exporter repeats itself every few seconds.
    if (before + 1).is_power_of_two() {
        shared.report(&format!("refused a request ({} of this kind): {}", before + 1, reason.message()));
    }
}

fn keep_now(shared: &Shared, payload: Payload, bytes: &[u8]) -> Result<u64, Refused> {
    let is_gzip = bytes.starts_with(&[0x1f, 0x8b]);
    let (Payload::Protobuf { gzipped } | Payload::Json { gzipped }) = payload;
    if gzipped != is_gzip {
        let (said, found) = if gzipped { ("gzip", "something else") } else { ("no compression", "gzip") };
        return Err(Refused::Invalid(format!("the headers say {said}, the body is {found}")));
    }
    let limits = &shared.settings.limits;
    let mut data = decode::otlp::decode(bytes, limits).map_err(|error| Refused::Invalid(error.to_string()))?;
    let claim = shared.store.received.claim(&mut data);
    shared.counters.duplicate_profiles.fetch_add(claim.duplicates, Ordering::Relaxed);
    let samples = data.sample_count() as u64;
    // Nothing to show, nothing to keep; still a success on the wire.
    if samples == 0 {
        return Ok(0);
    }
    let gzipped: Vec<u8>;
    let kept = match payload {
        _ if claim.duplicates > 0 => {
            gzipped = gzip(&otlp::encode(&data, Revision::One));
            &gzipped
        }
        // What came is what is kept: a file can be checked for what the sender really sent.
        Payload::Protobuf { gzipped: true } => bytes,
        Payload::Protobuf { gzipped: false } => {
            gzipped = gzip(bytes);
            &gzipped
        }
        Payload::Json { .. } => {
            gzipped = gzip(&otlp::encode(&data, Revision::One));
            &gzipped
        }
    };
    announce_new_services(shared, &data);
    shared.store.keep(kept, &data).map_err(|error| {
        shared.store.received.withdraw(&claim);
        Refused::Unavailable(format!("cannot write into {}: {error}", shared.store.directory().display()))
    })?;
    Ok(samples)
}

/// One line for each service that sends for the first time: the moment a new user waits for.
fn announce_new_services(shared: &Shared, data: &ProfilesData) {
    for resource in &data.resources {
        let service = resource.service_name();
        if resource.profiles.iter().any(|profile| !profile.samples.is_empty()) && shared.is_new_service(service) {
            let mut types: Vec<&str> = resource.profiles.iter().map(|profile| profile.type_name()).collect();
            types.sort_unstable();
            types.dedup();
            shared.report(&format!("first profiles from {service:?}: {}", types.join(", ")));
        }
    }
}
