//! pprof and folded stacks over HTTP, by the two protocols of Pyroscope's agents: `POST /ingest` with the profile in the body
//! or in a form, and `push.v1.PusherService/Push`. Called by `route`.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode};
use spanprof_profile::{Profile, ProfilesData};
use spanprof_read::decode::pyroscope::for_each_pushed;
use spanprof_read::decode::{self, DecodeLimits, Format};

use super::intake::{self, Refusal};
use super::pushed_profile::{PushedSeries, StatedTime};
use super::reply::{self, Reply};
use super::state::ServerState;
use crate::moment::unix_ns;
use crate::{moment, query_string};

/// Path of single profiles.
pub(crate) const INGEST: &str = "/ingest";
/// Path of push requests, of Connect's unary protocol.
pub(crate) const PUSH: &str = "/push.v1.PusherService/Push";

const PROTOBUF: &str = "application/proto";
const ACCEPTED: &str = "pprof (format=pprof) or folded stacks (format=folded), plain or gzip";

pub(crate) async fn ingest(state: &Arc<ServerState>, request: Request<Incoming>) -> Reply {
    if request.method() != Method::POST {
        return reply::post_only();
    }
    match receive_profile(state, request).await {
        Ok(()) => reply::body(StatusCode::OK, "text/plain; charset=utf-8", ""),
        Err(reason) => refusal_reply(state, &reason, |status, reason| reply::text(status, &reason.message())),
    }
}

pub(crate) async fn push(state: &Arc<ServerState>, request: Request<Incoming>) -> Reply {
    if request.method() != Method::POST {
        return reply::post_only();
    }
    match receive_push(state, request).await {
        Ok(()) => reply::body(StatusCode::OK, PROTOBUF, ""),
        Err(reason) => refusal_reply(state, &reason, |status, reason| {
            // The names of the codes of gRPC, as Connect writes them.
            let code = match reason.grpc_code() {
                3 => "invalid_argument",
                4 => "deadline_exceeded",
                8 => "resource_exhausted",
                14 => "unavailable",
                _ => "canceled",
            };
            let error = serde_json::json!({"code": code, "message": reason.message()});
            reply::body(status, "application/json", error.to_string())
        }),
    }
}

fn refusal_reply(state: &ServerState, reason: &Refusal, write: impl FnOnce(StatusCode, &Refusal) -> Reply) -> Reply {
    intake::report_refusal(state, reason);
    let mut refused = write(StatusCode::from_u16(reason.http_status()).unwrap_or(StatusCode::BAD_REQUEST), reason);
    if matches!(reason, Refusal::Unavailable(_)) {
        refused.headers_mut().insert(RETRY_AFTER, intake::RETRY_AFTER_SECONDS.into());
    }
    refused
}

async fn receive_push(state: &Arc<ServerState>, request: Request<Incoming>) -> Result<(), Refusal> {
    let media_type = header(request.headers(), CONTENT_TYPE.as_str());
    if media_type.split(';').next().unwrap_or("").trim() != PROTOBUF {
        return Err(Refusal::Unsupported(format!("expected Content-Type {PROTOBUF}, got {media_type:.100?}")));
    }
    check_encoding(request.headers())?;
    let body = intake::collect(state, request.into_body()).await?;
    let time = StatedTime { now: unix_ns(), ..StatedTime::default() };
    let store = move |state: &ServerState, bytes: &[u8]| {
        let limits = &state.settings.limits;
        let mut samples = 0;
        for_each_pushed(bytes, limits, |pushed| {
            let series = PushedSeries::from_labels(pushed.labels).map_err(Refusal::Invalid)?;
            let mut data = decode::pprof::decode(pushed.pprof, limits)?;
            series.complete(&mut data, pushed.pprof, time).map_err(Refusal::Invalid)?;
            samples += intake::keep(state, data, None)?;
            Ok::<(), Refusal>(())
        })?;
        Ok(samples)
    };
    intake::store_with(state, body, store).await
}

async fn receive_profile(state: &Arc<ServerState>, request: Request<Incoming>) -> Result<(), Refusal> {
    let mut parameters = Parameters::parse(request.uri().query().unwrap_or(""), unix_ns())?;
    check_encoding(request.headers())?;
    let media_type = header(request.headers(), CONTENT_TYPE.as_str()).to_owned();
    let body = intake::collect(state, request.into_body()).await?;
    let store = move |state: &ServerState, bytes: &[u8]| {
        let limits = &state.settings.limits;
        let data = match multer::parse_boundary(&media_type) {
            Ok(boundary) => {
                let form = Form::read(bytes, &boundary)?;
                parameters.series.is_mutex = form.is_mutex;
                parameters.format = Some(Format::Pprof);
                parameters.decode(&form.profile, limits)?
            }
            Err(_) => parameters.decode(bytes, limits)?,
        };
        intake::keep(state, data, None)
    };
    intake::store_with(state, body, store).await
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Gzip is recognized by its first bytes.
fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    match header(headers, CONTENT_ENCODING.as_str()).to_ascii_lowercase().as_str() {
        "" | "identity" | "gzip" => Ok(()),
        other => Err(Refusal::Unsupported(format!("expected Content-Encoding gzip or none, got {other:.40?}"))),
    }
}

/// The parameters of `/ingest`.
#[derive(Debug)]
struct Parameters {
    series: PushedSeries,
    time: StatedTime,
    /// Recognized by content if the request names none.
    format: Option<Format>,
    units: String,
    rate_hz: Option<u32>,
}

impl Parameters {
    fn parse(query: &str, now: u64) -> Result<Self, Refusal> {
        let pairs = query_string::parse(query);
        let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
        let format = match value("format") {
            "" => None,
            "pprof" => Some(Format::Pprof),
            "folded" | "groups" => Some(Format::Folded),
            other => return Err(Refusal::Unsupported(format!("format: expected {ACCEPTED}, got {other:.40?}"))),
        };
        let moment = |name: &str| match value(name) {
            "" => Ok(None),
            text => moment::parse(text, now)
                .map(Some)
                .ok_or_else(|| Refusal::Invalid(format!("{name}: expected {}, got {text:.40?}", moment::FORMS))),
        };
        let rate_hz = match value("sampleRate") {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                Refusal::Invalid(format!("sampleRate: expected samples per second, a whole number, got {text:.40?}"))
            })?),
        };
        let series = PushedSeries::from_name(value("name")).map_err(Refusal::Invalid)?;
        let time = StatedTime { from: moment("from")?, until: moment("until")?, now };
        Ok(Self { series, time, format, units: value("units").to_owned(), rate_hz })
    }

    fn decode(mut self, bytes: &[u8], limits: &DecodeLimits) -> Result<ProfilesData, Refusal> {
        let format = match self.format {
            Some(format) => format,
            None => decode::detect(bytes, limits)?,
        };
        let mut data = match format {
            Format::Pprof => decode::pprof::decode(bytes, limits)?,
            Format::Folded => {
                let mut data = decode::folded::decode(bytes, limits)?;
                let folded = self.series.take_folded_type(&self.units, self.rate_hz).map_err(Refusal::Invalid)?;
                for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
                    let samples = std::mem::take(&mut profile.samples);
                    *profile = Profile { samples, ..folded.clone() };
                }
                data
            }
            Format::Otlp | Format::Speedscope | Format::DevToolsCpu | Format::DevToolsHeap => {
                return Err(Refusal::Unsupported(format!("expected {ACCEPTED}, got another format")));
            }
        };
        self.series.complete(&mut data, bytes, self.time).map_err(Refusal::Invalid)?;
        Ok(data)
    }
}

/// The fields of a form.
#[derive(Debug, Default)]
struct Form {
    profile: Bytes,
    is_mutex: bool,
}

/// How a value type of the profile is shown, in the field `sample_type_config`.
type SampleTypeConfig = HashMap<String, serde_json::Map<String, serde_json::Value>>;

impl Form {
    /// On a blocking thread of the runtime: the whole form is in memory.
    fn read(bytes: &[u8], boundary: &str) -> Result<Self, Refusal> {
        let body = futures_util::stream::iter([Ok::<_, Infallible>(Bytes::copy_from_slice(bytes))]);
        let mut fields = multer::Multipart::new(body, boundary);
        let invalid = |error: multer::Error| Refusal::Invalid(format!("cannot read the form: {error}"));
        let mut form = Form::default();
        tokio::runtime::Handle::current().block_on(async {
            while let Some(field) = fields.next_field().await.map_err(invalid)? {
                let name = field.name().unwrap_or("").to_owned();
                let content = field.bytes().await.map_err(invalid)?;
                match name.as_str() {
                    "profile" => form.profile = content,
                    "sample_type_config" => form.is_mutex = Self::is_mutex(&content)?,
                    "prev_profile" if !content.is_empty() => return Err(cumulative("prev_profile")),
                    "jfr" => return Err(Refusal::Unsupported(format!("expected {ACCEPTED}, got a recording of JFR"))),
                    _ => {}
                }
            }
            Ok(())
        })?;
        match form.profile.is_empty() {
            true => Err(Refusal::Invalid("expected the field `profile` in the form, got none".to_owned())),
            false => Ok(form),
        }
    }

    fn is_mutex(content: &[u8]) -> Result<bool, Refusal> {
        let types: SampleTypeConfig = serde_json::from_slice(content).map_err(|error| {
            Refusal::Invalid(format!("sample_type_config: expected an object of objects by type: {error}"))
        })?;
        if let Some((name, _)) = types.iter().find(|(_, of)| of.get("cumulative") == Some(&true.into())) {
            return Err(cumulative(&format!("sample_type_config.{name}.cumulative")));
        }
        let shown = |of: &serde_json::Map<_, _>| {
            of.get("display-name").and_then(serde_json::Value::as_str).is_some_and(|shown| shown.starts_with("mutex"))
        };
        Ok(types.values().any(shown))
    }
}

fn cumulative(field: &str) -> Refusal {
    let expected = "the values since the previous profile (a newer agent subtracts)";
    Refusal::Unsupported(format!("{field}: expected {expected}, got totals since the start"))
}
