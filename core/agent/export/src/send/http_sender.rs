//! OTLP, or Pyroscope's push protocol, over HTTP/1.1: one POST per payload on a persistent connection. Redirects are not
//! followed, so no header ever reaches another host.

use crate::connect::connection::{root_cause, Connector, Transport};
use crate::connect::headers::{request_headers, DEVELOPMENT_VERSION};
use crate::error::{ExportError, ExportErrorKind};
use crate::outcome::{AttemptOutcome, OtlpSignal, Redactor, RetryReason, HINT_GRPC_OR_TLS};
use crate::send::compressed_body::{CompressedBody, Framing};
use crate::send::http_response::{classify, HttpProtocol, ReceiverResponse, ResponseBody, MAX_RESPONSE_BYTES};
use crate::settings::{Compression, ExporterSettings, OtlpEndpoint};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::time::Instant;

/// A connection idle for longer is not reused: a middlebox may have dropped its state without a reset.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(60);

pub(crate) struct HttpSender {
    protocol: HttpProtocol,
    connector: Connector,
    headers: HeaderMap,
    target: Uri,
    body: CompressedBody,
    timeout: Duration,
    redactor: Redactor,
    idle: Option<Http1Connection>,
}

struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    generation: u64,
    used_at: Instant,
}

impl HttpSender {
    pub fn start(
        settings: &OtlpEndpoint,
        protocol: HttpProtocol,
        common: &ExporterSettings,
    ) -> Result<Self, ExportError> {
        let mut connector = Connector::start(settings, b"http/1.1", common)?;
        let mut headers = request_headers(settings, &connector.endpoint, &common.user_agent)?;
        let host = HeaderValue::from_str(&connector.endpoint.authority).map_err(|_| not_usable(&connector))?;
        headers.insert(header::HOST, host);
        let content_type = match protocol {
            HttpProtocol::Otlp(OtlpSignal::Profiles) => "application/x-protobuf",
            HttpProtocol::Otlp(OtlpSignal::Metrics) => {
                headers.remove(DEVELOPMENT_VERSION);
                "application/x-protobuf"
            }
            HttpProtocol::PyroscopePush => {
                headers.remove(DEVELOPMENT_VERSION);
                headers.insert("connect-protocol-version", HeaderValue::from_static("1"));
                "application/proto"
            }
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        if settings.compression == Compression::Gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        } else {
            headers.remove(header::CONTENT_ENCODING);
        }
        let path = connector.endpoint.path_and_query.reveal();
        // Plain HTTP through a proxy uses the absolute form; TLS tunnels and uses the origin form (RFC 9112, section 3.2).
        let uses_absolute_form = connector.proxy.is_some() && !connector.endpoint.secure;
        let target =
            if uses_absolute_form { format!("http://{}{path}", connector.endpoint.authority) } else { path.to_owned() };
        let target = target.parse().map_err(|_| not_usable(&connector))?;
        if uses_absolute_form {
            if let Some(basic) = connector.proxy.as_ref().and_then(|proxy| proxy.basic.as_ref()) {
                let mut value = HeaderValue::from_str(basic.reveal()).map_err(|_| not_usable(&connector))?;
                value.set_sensitive(true);
                headers.insert(header::PROXY_AUTHORIZATION, value);
            }
        }
        let redactor = redactor(settings, &connector);
        connector.refresh_generation();
        Ok(Self {
            protocol,
            connector,
            headers,
            target,
            body: CompressedBody::new(settings.compression, Framing::Bare),
            timeout: settings.timeout,
            redactor,
            idle: None,
        })
    }

    pub fn shown(&self) -> String {
        self.connector.endpoint.shown.clone()
    }

    /// One attempt. The receiver gets at most one request, except that a dead idle connection is replaced once.
    pub async fn attempt(&mut self, plain: &Bytes, unix_now: Duration) -> AttemptOutcome {
        let until = Instant::now() + self.timeout;
        let body = match self.body.encoded(plain) {
            Ok(body) => body,
            Err(error) => {
                return AttemptOutcome::Rejected { message: format!("the body cannot be compressed: {error}") }
            }
        };
        let generation = self.connector.refresh_generation();
        if let Some(idle) = self.idle.take().filter(|idle| idle.is_reusable(generation)) {
            match self.exchange(idle, body.clone(), until, unix_now).await {
                Err(AttemptOutcome::Retry { reason: RetryReason::NoResponse, .. }) if Instant::now() < until => {}
                Ok(outcome) | Err(outcome) => return outcome,
            }
        }
        let sender = match tokio::time::timeout_at(until, self.open()).await {
            Ok(Ok(sender)) => sender,
            Ok(Err(message)) => return AttemptOutcome::Retry { reason: RetryReason::NotConnected, message },
            Err(_) => {
                let message = format!("no connection to {} within {:?}", self.shown(), self.timeout);
                return AttemptOutcome::Retry { reason: RetryReason::NotConnected, message };
            }
        };
        let connection = Http1Connection { sender, generation, used_at: Instant::now() };
        match self.exchange(connection, body, until, unix_now).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    /// Frees the encoded body of a settled payload.
    pub fn forget_payload(&mut self) {
        self.body.forget();
    }

    /// `Err` when no response began.
    async fn exchange(
        &mut self,
        mut connection: Http1Connection,
        body: Bytes,
        until: Instant,
        unix_now: Duration,
    ) -> Result<AttemptOutcome, AttemptOutcome> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        let no_response = |message: String| AttemptOutcome::Retry { reason: RetryReason::NoResponse, message };
        let exchange = async {
            connection.sender.ready().await?;
            connection.sender.send_request(request).await
        };
        let response = match tokio::time::timeout_at(until, exchange).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_parse() => {
                let why = root_cause(&error);
                let message = format!("{} sent a response that is not HTTP: {why}; {HINT_GRPC_OR_TLS}", self.shown());
                return Ok(AttemptOutcome::Rejected { message });
            }
            Ok(Err(error)) => {
                let why = root_cause(&error);
                return Err(no_response(format!("{} closed the connection without a response: {why}", self.shown())));
            }
            Err(_) => {
                return Err(no_response(format!("{} did not respond within {:?}", self.shown(), self.timeout)));
            }
        };
        let (parts, body) = response.into_parts();
        let body = read_body(body, until).await;
        if matches!(body, ResponseBody::Complete(_)) {
            connection.used_at = Instant::now();
            self.idle = Some(connection);
        }
        let response = ReceiverResponse { status: parts.status, headers: parts.headers, body };
        Ok(classify(response, self.protocol, &self.shown(), &self.redactor, unix_now))
    }

    async fn open(&mut self) -> Result<SendRequest<Full<Bytes>>, String> {
        let forward_proxy = self.connector.proxy.clone().filter(|_| !self.connector.endpoint.secure);
        let transport: Box<dyn Transport> = match forward_proxy {
            Some(proxy) => self.connector.connect_to_proxy(&proxy).await?,
            None => self.connector.connect().await?,
        };
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(transport))
            .await
            .map_err(|error| format!("no HTTP with {}: {}", self.shown(), root_cause(&error)))?;
        // Ends with the connection; the pending request returns its error.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

impl Http1Connection {
    fn is_reusable(&self, generation: u64) -> bool {
        !self.sender.is_closed() && self.generation == generation && self.used_at.elapsed() < MAX_IDLE
    }
}

async fn read_body(body: Incoming, until: Instant) -> ResponseBody {
    let limited = Limited::new(body, MAX_RESPONSE_BYTES);
    match tokio::time::timeout_at(until, limited.collect()).await {
        Ok(Ok(collected)) => ResponseBody::Complete(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => ResponseBody::TooLong,
        Ok(Err(_)) | Err(_) => ResponseBody::Incomplete,
    }
}

/// Redacts the secrets of the request, which a receiver may quote.
pub(crate) fn redactor(settings: &OtlpEndpoint, connector: &Connector) -> Redactor {
    let headers = settings.headers.iter().map(|(_, value)| value);
    let proxy = connector.proxy.iter().flat_map(|proxy| &proxy.secrets);
    Redactor::new(headers.chain(&connector.endpoint.secrets).chain(proxy).map(|secret| secret.reveal()))
}

fn not_usable(connector: &Connector) -> ExportError {
    ExportError::new(
        ExportErrorKind::Setting,
        format!("OTLP endpoint `{}` cannot be put into a request", connector.endpoint.shown),
        "expected http://host:port/path or https://host:port/path",
    )
}
