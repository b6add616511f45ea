//! OTLP over gRPC: one unary call per payload on a persistent HTTP/2 connection. tonic writes the metadata and reads
//! the response and its status. It shares the connector and the compression of OTLP/HTTP, so TLS, proxy and failures
//! are the same. tonic's own gzip level would cost eight times the CPU at each attempt.

use crate::connect::connection::{root_cause, Connector};
use crate::connect::headers::{request_headers, DEVELOPMENT_VERSION};
use crate::error::{ExportError, ExportErrorKind};
use crate::outcome::{AttemptOutcome, OtlpSignal, Redactor, RetryReason, HINT_HTTP};
use crate::send::compressed_body::{CompressedBody, Framing};
use crate::send::grpc_status::{classify_message, classify_status};
use crate::send::http_response::MAX_RESPONSE_BYTES;
use crate::send::http_sender::{redactor, MAX_IDLE};
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

pub(crate) struct OtlpGrpcSender {
    signal: OtlpSignal,
    connector: Connector,
    metadata: HeaderMap,
    origin: Uri,
    body: CompressedBody,
    timeout: Duration,
    redactor: Redactor,
    idle: Option<Http2Connection>,
}

struct Http2Connection {
    sender: CallSender,
    generation: u64,
    used_at: Instant,
    /// A call on it got a response, so the receiver supports HTTP/2.
    has_responded: bool,
}

impl OtlpGrpcSender {
    pub fn start(settings: &OtlpEndpoint, signal: OtlpSignal, common: &ExporterSettings) -> Result<Self, ExportError> {
        let mut connector = Connector::start(settings, b"h2", common)?;
        let mut metadata = request_headers(settings, &connector.endpoint, &common.user_agent)?;
        metadata.remove(GRPC_ENCODING);
        if signal != OtlpSignal::Profiles {
            metadata.remove(DEVELOPMENT_VERSION);
        }
        if settings.compression == Compression::Gzip {
            metadata.insert(GRPC_ENCODING, HeaderValue::from_static("gzip"));
        }
        let scheme = if connector.endpoint.secure { "https" } else { "http" };
        let origin = format!("{scheme}://{}", connector.endpoint.authority).parse().map_err(|_| {
            ExportError::new(
                ExportErrorKind::Setting,
                format!("OTLP endpoint `{}` cannot be put into a request", connector.endpoint.shown),
                "expected http://host:port or https://host:port",
            )
        })?;
        let redactor = redactor(settings, &connector);
        connector.refresh_generation();
        Ok(Self {
            signal,
            connector,
            metadata,
            origin,
            body: CompressedBody::new(settings.compression, Framing::GrpcMessage),
            timeout: settings.timeout,
            redactor,
            idle: None,
        })
    }

    pub fn shown(&self) -> String {
        self.connector.endpoint.shown.clone()
    }

    /// One attempt. The receiver gets at most one call, except that a dead idle connection is replaced once.
    pub async fn attempt(&mut self, plain: &Bytes) -> AttemptOutcome {
        let until = Instant::now() + self.timeout;
        let body = match self.body.encoded(plain) {
            Ok(body) => body,
            Err(error) => {
                return AttemptOutcome::Rejected { message: format!("the body cannot be compressed: {error}") }
            }
        };
        let generation = self.connector.refresh_generation();
        if let Some(idle) = self.idle.take().filter(|idle| idle.is_reusable(generation)) {
            match self.call(idle, body.clone(), until).await {
                AttemptOutcome::Retry { reason: RetryReason::NoResponse, .. } if Instant::now() < until => {}
                outcome => return outcome,
            }
        }
        let not_connected = |message| AttemptOutcome::Retry { reason: RetryReason::NotConnected, message };
        let sender = match tokio::time::timeout_at(until, self.open()).await {
            Ok(Ok(sender)) => sender,
            Ok(Err(message)) => return not_connected(message),
            Err(_) => return not_connected(format!("no connection to {} within {:?}", self.shown(), self.timeout)),
        };
        let connection = Http2Connection { sender, generation, used_at: Instant::now(), has_responded: false };
        self.call(connection, body, until).await
    }

    async fn call(&mut self, connection: Http2Connection, body: Bytes, until: Instant) -> AttemptOutcome {
        let receiver = self.shown();
        let origin = Arc::new(StatusOrigin::default());
        let service = GrpcCall { sender: connection.sender.clone(), body: Some(body), origin: origin.clone() };
        let mut client = tonic::client::Grpc::with_origin(service, self.origin.clone())
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
            // Collectors compress the response as the request was compressed.
            .accept_compressed(CompressionEncoding::Gzip);
        let mut request = tonic::Request::new(());
        *request.metadata_mut() = MetadataMap::from_headers(self.metadata.clone());
        request.set_timeout(until.saturating_duration_since(Instant::now()));
        let exchange = async {
            client.ready().await?;
            client.unary(request, PathAndQuery::from_static(self.signal.grpc_method()), BytesCodec).await
        };
        let result = tokio::time::timeout_at(until, exchange).await;
        let no_response = |message| AttemptOutcome::Retry { reason: RetryReason::NoResponse, message };
        match result {
            // A connection on which a call timed out is not reused.
            Err(_) => no_response(format!("{receiver} did not respond within {:?}", self.timeout)),
            Ok(Err(status)) if origin.connection_failed.load(Ordering::Relaxed) => {
                let why = self.redactor.redact(status.message());
                // An HTTP/1 server sends `400` and closes. The client may read the bytes or the end of the connection
                // first.
                let hint = if connection.has_responded { String::new() } else { format!("; {HINT_HTTP}") };
                no_response(format!("{receiver} closed the connection without a response: {why}{hint}"))
            }
            // tonic synthesized the status for a malformed response; the receiver may have accepted the request.
            Ok(Err(status)) if !origin.status_received.load(Ordering::Relaxed) => {
                let why = self.redactor.redact(status.message());
                AttemptOutcome::Rejected {
                    message: format!("{receiver} sent a response that is not gRPC or too long: {why}"),
                }
            }
            Ok(Err(status)) => {
                self.keep(connection);
                classify_status(&status, self.signal, &receiver, &self.redactor)
            }
            Ok(Ok(response)) => {
                self.keep(connection);
                classify_message(response.get_ref(), self.signal, &receiver, &self.redactor)
            }
        }
    }

    fn keep(&mut self, connection: Http2Connection) {
        self.idle = Some(Http2Connection { used_at: Instant::now(), has_responded: true, ..connection });
    }

    /// Frees the encoded body of a settled payload.
    pub fn forget_payload(&mut self) {
        self.body.forget();
    }

    async fn open(&mut self) -> Result<CallSender, String> {
        let transport = self.connector.connect().await?;
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(transport))
            .await
            .map_err(|error| format!("no HTTP/2 with {}: {}", self.shown(), root_cause(&error)))?;
        // Ends with the connection; the pending call returns its error.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

impl Http2Connection {
    fn is_reusable(&self, generation: u64) -> bool {
        !self.sender.is_closed() && self.generation == generation && self.used_at.elapsed() < MAX_IDLE
    }
}

type CallSender = SendRequest<Full<Bytes>>;

/// Origin of a tonic `Status`: the connection, the receiver, or (neither set) tonic itself.
#[derive(Default)]
struct StatusOrigin {
    /// The connection failed.
    connection_failed: AtomicBool,
    /// The receiver sent a gRPC status, or an HTTP status that maps to one.
    status_received: AtomicBool,
}

impl StatusOrigin {
    fn set_connection_failed(&self, error: &hyper::Error) -> Status {
        self.connection_failed.store(true, Ordering::Relaxed);
        Status::unavailable(root_cause(error))
    }

    fn check_for_status(&self, headers: &HeaderMap) {
        if headers.contains_key(Status::GRPC_STATUS) {
            self.status_received.store(true, Ordering::Relaxed);
        }
    }
}

/// One call on the connection.
struct GrpcCall {
    sender: CallSender,
    /// The whole message, framed; replaces the empty message that tonic encodes.
    body: Option<Bytes>,
    origin: Arc<StatusOrigin>,
}

impl Service<Request<tonic::body::Body>> for GrpcCall {
    type Response = Response<UnsyncBoxBody<Bytes, Status>>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.sender.poll_ready(context).map_err(|error| self.origin.set_connection_failed(&error))
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let body = self.body.take().unwrap_or_default();
        let sent = self.sender.send_request(request.map(|_| Full::new(body)));
        let origin = self.origin.clone();
        Box::pin(async move {
            let response = sent.await.map_err(|error| origin.set_connection_failed(&error))?;
            origin.check_for_status(response.headers());
            if response.status() != http::StatusCode::OK {
                origin.status_received.store(true, Ordering::Relaxed);
            }
            let (origin_of_trailers, origin_of_error) = (origin.clone(), origin);
            Ok(response.map(|body| {
                body.map_frame(move |frame| {
                    frame.trailers_ref().into_iter().for_each(|trailers| origin_of_trailers.check_for_status(trailers));
                    frame
                })
                .map_err(move |error| origin_of_error.set_connection_failed(&error))
                .boxed_unsync()
            }))
        })
    }
}

/// Encodes nothing, since `GrpcCall` supplies the message; returns the bytes of the response undecoded.
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
