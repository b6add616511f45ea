//! OTLP over gRPC: one unary call per payload on an HTTP/2 connection kept open between windows. tonic writes the metadata
//! and reads the answer and its status. The connection is the one HTTP uses too, so that TLS, proxy and failures are the
//! same; so is the compression, since tonic's level costs the host eight times the CPU, and again at each attempt.

use crate::compressed_body::{CompressedBody, Framing};
use crate::connect::{innermost, Connector};
use crate::error::ExportError;
use crate::grpc_status::{judge_answer, judge_status};
use crate::headers::request_headers;
use crate::http_answer::LONGEST_ANSWER_BYTES;
use crate::otlp_http::{redactor, LONGEST_IDLE};
use crate::outcome::{Outcome, Redactor, RetryReason, MAYBE_HTTP};
use crate::queue::Parcel;
use crate::settings::{Compression, ExporterSettings, OtlpEndpoint};
use bytes::{Buf, Bytes};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::Status;
use tower_service::Service;

const GRPC_ENCODING: &str = "grpc-encoding";

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

pub(crate) struct OtlpGrpcSender {
    connector: Connector,
    metadata: HeaderMap,
    origin: Uri,
    body: CompressedBody,
    timeout: Duration,
    redactor: Redactor,
    kept: Option<Kept>,
}

struct Kept {
    connection: Connection,
    generation: u64,
    used_at: Instant,
    /// A call on it was answered, so that the receiver is known to understand HTTP/2.
    has_answered: bool,
}

impl OtlpGrpcSender {
    pub fn start(settings: &OtlpEndpoint, common: &ExporterSettings) -> Result<Self, ExportError> {
        let mut connector = Connector::start(settings, b"h2", common.start_thread)?;
        let mut metadata = request_headers(settings, &connector.endpoint, &common.user_agent)?;
        metadata.remove(GRPC_ENCODING);
        if settings.compression == Compression::Gzip {
            metadata.insert(GRPC_ENCODING, HeaderValue::from_static("gzip"));
        }
        let scheme = if connector.endpoint.secure { "https" } else { "http" };
        let origin = format!("{scheme}://{}", connector.endpoint.authority).parse().map_err(|_| {
            ExportError::new(
                format!("OTLP endpoint `{}` cannot be put into a request", connector.endpoint.shown),
                "expected http://host:port or https://host:port",
            )
        })?;
        let redactor = redactor(settings, &connector);
        connector.generation();
        Ok(Self {
            connector,
            metadata,
            origin,
            body: CompressedBody::new(settings.compression, Framing::GrpcMessage),
            timeout: settings.timeout,
            redactor,
            kept: None,
        })
    }

    pub fn shown(&self) -> String {
        self.connector.endpoint.shown.clone()
    }

    /// One attempt: at most one call that may have been seen by the receiver, except that a kept connection which turns
    /// out dead is replaced once.
    pub async fn attempt(&mut self, parcel: &Parcel) -> Outcome {
        let until = Instant::now() + self.timeout;
        let body = match self.body.of(&parcel.body) {
            Ok(body) => body,
            Err(error) => return Outcome::Refused { message: format!("the body cannot be compressed: {error}") },
        };
        let generation = self.connector.generation();
        if let Some(kept) = self.kept.take().filter(|kept| kept.is_usable(generation)) {
            match self.call(kept, body.clone(), until).await {
                Outcome::Retry { reason: RetryReason::NoAnswer, .. } if Instant::now() < until => {}
                outcome => return outcome,
            }
        }
        let not_connected = |message| Outcome::Retry { reason: RetryReason::NotConnected, message };
        let connection = match tokio::time::timeout_at(until, self.open()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(message)) => return not_connected(message),
            Err(_) => return not_connected(format!("no connection to {} within {:?}", self.shown(), self.timeout)),
        };
        let kept = Kept { connection, generation, used_at: Instant::now(), has_answered: false };
        self.call(kept, body, until).await
    }

    async fn call(&mut self, kept: Kept, body: Bytes, until: Instant) -> Outcome {
        let receiver = self.shown();
        let seen = Arc::new(Seen::default());
        let service = Call { connection: kept.connection.clone(), body: Some(body), seen: seen.clone() };
        let mut client = tonic::client::Grpc::with_origin(service, self.origin.clone())
            .max_decoding_message_size(LONGEST_ANSWER_BYTES)
            // Collectors answer in the coding of the request.
            .accept_compressed(CompressionEncoding::Gzip);
        let mut request = tonic::Request::new(());
        *request.metadata_mut() = MetadataMap::from_headers(self.metadata.clone());
        request.set_timeout(until.saturating_duration_since(Instant::now()));
        let exchange = async {
            client.ready().await?;
            client.unary(request, PathAndQuery::from_static(EXPORT), BytesCodec).await
        };
        let result = tokio::time::timeout_at(until, exchange).await;
        let no_answer = |message| Outcome::Retry { reason: RetryReason::NoAnswer, message };
        match result {
            // A connection that let a call time out is not trusted with the next one.
            Err(_) => no_answer(format!("{receiver} did not answer within {:?}", self.timeout)),
            Ok(Err(status)) if seen.broken.load(Ordering::Relaxed) => {
                let why = self.redactor.shown(status.message());
                // An HTTP/1 server answers `400` and closes. Which of the two is seen first, its bytes or the end of the
                // connection, is not determined.
                let hint = match kept.has_answered {
                    true => String::new(),
                    false => format!("; {MAYBE_HTTP}"),
                };
                no_answer(format!("{receiver} hung up without an answer: {why}{hint}"))
            }
            // The status is tonic's own word for an answer it cannot read; the request may well have been taken.
            Ok(Err(status)) if !seen.status.load(Ordering::Relaxed) => {
                let why = self.redactor.shown(status.message());
                Outcome::Refused { message: format!("{receiver} gave an answer that is not gRPC or too long: {why}") }
            }
            Ok(Err(status)) => {
                self.keep(kept);
                judge_status(&status, &receiver, &self.redactor)
            }
            Ok(Ok(response)) => {
                self.keep(kept);
                judge_answer(response.get_ref(), &receiver, &self.redactor)
            }
        }
    }

    fn keep(&mut self, kept: Kept) {
        self.kept = Some(Kept { used_at: Instant::now(), has_answered: true, ..kept });
    }

    /// Called once a payload is settled: what was kept for its next attempt is freed.
    pub fn forget_payload(&mut self) {
        self.body.forget();
    }

    async fn open(&mut self) -> Result<Connection, String> {
        let transport = self.connector.connect().await?;
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(transport))
            .await
            .map_err(|error| format!("no HTTP/2 with {}: {}", self.shown(), innermost(&error)))?;
        // Ends with the connection; what went wrong is told to whoever waits for an answer.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

impl Kept {
    fn is_usable(&self, generation: u64) -> bool {
        !self.connection.is_closed() && self.generation == generation && self.used_at.elapsed() < LONGEST_IDLE
    }
}

type Connection = SendRequest<Full<Bytes>>;

/// What tonic's status does not tell: whose word it is.
#[derive(Default)]
struct Seen {
    /// The connection failed.
    broken: AtomicBool,
    /// The receiver gave a gRPC status, or an HTTP status that stands for one.
    status: AtomicBool,
}

impl Seen {
    fn connection_failed(&self, error: &hyper::Error) -> Status {
        self.broken.store(true, Ordering::Relaxed);
        Status::unavailable(innermost(error))
    }

    fn look_for_status(&self, headers: &HeaderMap) {
        if headers.contains_key(Status::GRPC_STATUS) {
            self.status.store(true, Ordering::Relaxed);
        }
    }
}

/// One call on the connection.
struct Call {
    connection: Connection,
    /// The whole message, framed; goes in place of what tonic would encode.
    body: Option<Bytes>,
    seen: Arc<Seen>,
}

impl Service<Request<tonic::body::Body>> for Call {
    type Response = Response<UnsyncBoxBody<Bytes, Status>>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.connection.poll_ready(context).map_err(|error| self.seen.connection_failed(&error))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let body = self.body.take().unwrap_or_default();
        let sent = self.connection.send_request(request.map(|_| Full::new(body)));
        let seen = self.seen.clone();
        Box::pin(async move {
            let response = sent.await.map_err(|error| seen.connection_failed(&error))?;
            seen.look_for_status(response.headers());
            if response.status() != http::StatusCode::OK {
                seen.status.store(true, Ordering::Relaxed);
            }
            let (seen_in_frames, seen_at_end) = (seen.clone(), seen);
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    frame.trailers_ref().into_iter().for_each(|trailers| seen_in_frames.look_for_status(trailers));
                    frame
                })
                .map_err(move |error| seen_at_end.connection_failed(&error))
                .boxed_unsync()
            }))
        })
    }
}

/// tonic is given no message to encode, since the call brings its own; answers are decoded by us.
struct BytesCodec;

impl Codec for BytesCodec {
    type Encode = ();
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
