//! OTLP over HTTP/1.1: one POST per payload on a connection kept open between windows. Redirects are not followed, so no
//! header ever reaches another host.

use crate::compressed_body::{CompressedBody, Framing};
use crate::connect::{innermost, Connector, Transport};
use crate::error::ExportError;
use crate::headers::request_headers;
use crate::http_answer::{judge, Answer, AnswerBody, LONGEST_ANSWER_BYTES};
use crate::outcome::{Outcome, Redactor, RetryReason, MAYBE_GRPC_OR_TLS};
use crate::queue::Parcel;
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

/// A connection idle for longer is not trusted: something between may have forgotten it without telling.
pub(crate) const LONGEST_IDLE: Duration = Duration::from_secs(60);

pub(crate) struct OtlpHttpSender {
    connector: Connector,
    headers: HeaderMap,
    target: Uri,
    body: CompressedBody,
    timeout: Duration,
    redactor: Redactor,
    kept: Option<Kept>,
}

struct Kept {
    sender: SendRequest<Full<Bytes>>,
    generation: u64,
    used_at: Instant,
}

impl OtlpHttpSender {
    pub fn start(settings: &OtlpEndpoint, common: &ExporterSettings) -> Result<Self, ExportError> {
        let mut connector = Connector::start(settings, b"http/1.1", common.start_thread)?;
        let mut headers = request_headers(settings, &connector.endpoint, &common.user_agent)?;
        let host = HeaderValue::from_str(&connector.endpoint.authority).map_err(|_| not_usable(&connector))?;
        headers.insert(header::HOST, host);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        if settings.compression == Compression::Gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        } else {
            headers.remove(header::CONTENT_ENCODING);
        }
        let path = connector.endpoint.path_and_query.reveal();
        // A proxy is asked in full for plain http; everything else tunnels and asks the receiver itself.
        let asks_proxy = connector.proxy.is_some() && !connector.endpoint.secure;
        let target =
            if asks_proxy { format!("http://{}{path}", connector.endpoint.authority) } else { path.to_owned() };
        let target = target.parse().map_err(|_| not_usable(&connector))?;
        if asks_proxy {
            if let Some(basic) = connector.proxy.as_ref().and_then(|proxy| proxy.basic.as_ref()) {
                let mut value = HeaderValue::from_str(basic.reveal()).map_err(|_| not_usable(&connector))?;
                value.set_sensitive(true);
                headers.insert(header::PROXY_AUTHORIZATION, value);
            }
        }
        let redactor = redactor(settings, &connector);
        connector.generation();
        Ok(Self {
            connector,
            headers,
            target,
            body: CompressedBody::new(settings.compression, Framing::Bare),
            timeout: settings.timeout,
            redactor,
            kept: None,
        })
    }

    pub fn shown(&self) -> String {
        self.connector.endpoint.shown.clone()
    }

    /// One attempt: at most one request that may have been seen by the receiver, except that a kept connection which
    /// turns out dead is replaced once.
    pub async fn attempt(&mut self, parcel: &Parcel, unix_now: Duration) -> Outcome {
        let until = Instant::now() + self.timeout;
        let body = match self.body.of(&parcel.body) {
            Ok(body) => body,
            Err(error) => return Outcome::Refused { message: format!("the body cannot be compressed: {error}") },
        };
        let generation = self.connector.generation();
        if let Some(kept) = self.kept.take().filter(|kept| kept.is_usable(generation)) {
            match self.exchange(kept, body.clone(), until, unix_now).await {
                Err(Outcome::Retry { reason: RetryReason::NoAnswer, .. }) if Instant::now() < until => {}
                Ok(outcome) | Err(outcome) => return outcome,
            }
        }
        let sender = match tokio::time::timeout_at(until, self.open()).await {
            Ok(Ok(sender)) => sender,
            Ok(Err(message)) => return Outcome::Retry { reason: RetryReason::NotConnected, message },
            Err(_) => {
                let message = format!("no connection to {} within {:?}", self.shown(), self.timeout);
                return Outcome::Retry { reason: RetryReason::NotConnected, message };
            }
        };
        let kept = Kept { sender, generation, used_at: Instant::now() };
        match self.exchange(kept, body, until, unix_now).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    /// Called once a payload is settled: what was kept for its next attempt is freed.
    pub fn forget_payload(&mut self) {
        self.body.forget();
    }

    /// `Err` when there was no answer at all.
    async fn exchange(
        &mut self,
        mut kept: Kept,
        body: Bytes,
        until: Instant,
        unix_now: Duration,
    ) -> Result<Outcome, Outcome> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = self.headers.clone();
        let no_answer = |message: String| Outcome::Retry { reason: RetryReason::NoAnswer, message };
        let exchange = async {
            kept.sender.ready().await?;
            kept.sender.send_request(request).await
        };
        let response = match tokio::time::timeout_at(until, exchange).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_parse() => {
                let why = innermost(&error);
                let message =
                    format!("{} answered something that is not HTTP: {why}; {MAYBE_GRPC_OR_TLS}", self.shown());
                return Ok(Outcome::Refused { message });
            }
            Ok(Err(error)) => {
                return Err(no_answer(format!("{} hung up without an answer: {}", self.shown(), innermost(&error))));
            }
            Err(_) => {
                return Err(no_answer(format!("{} did not answer within {:?}", self.shown(), self.timeout)));
            }
        };
        let (parts, body) = response.into_parts();
        let body = read_body(body, until).await;
        if matches!(body, AnswerBody::Complete(_)) {
            kept.used_at = Instant::now();
            self.kept = Some(kept);
        }
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        Ok(judge(answer, &self.shown(), &self.redactor, unix_now))
    }

    async fn open(&mut self) -> Result<SendRequest<Full<Bytes>>, String> {
        let asked_proxy = self.connector.proxy.clone().filter(|_| !self.connector.endpoint.secure);
        let transport: Box<dyn Transport> = match asked_proxy {
            Some(proxy) => self.connector.connect_to_proxy(&proxy).await?,
            None => self.connector.connect().await?,
        };
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(transport))
            .await
            .map_err(|error| format!("no HTTP with {}: {}", self.shown(), innermost(&error)))?;
        // Ends with the connection; what went wrong is told to whoever waits for an answer.
        tokio::spawn(async { drop(connection.await) });
        Ok(sender)
    }
}

impl Kept {
    fn is_usable(&self, generation: u64) -> bool {
        !self.sender.is_closed() && self.generation == generation && self.used_at.elapsed() < LONGEST_IDLE
    }
}

async fn read_body(body: Incoming, until: Instant) -> AnswerBody {
    let limited = Limited::new(body, LONGEST_ANSWER_BYTES);
    match tokio::time::timeout_at(until, limited.collect()).await {
        Ok(Ok(collected)) => AnswerBody::Complete(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => AnswerBody::TooLong,
        Ok(Err(_)) | Err(_) => AnswerBody::Broken,
    }
}

/// Knows everything a receiver may quote of what we sent it.
pub(crate) fn redactor(settings: &OtlpEndpoint, connector: &Connector) -> Redactor {
    let headers = settings.headers.iter().map(|(_, value)| value);
    let proxy = connector.proxy.iter().flat_map(|proxy| &proxy.secrets);
    Redactor::new(headers.chain(&connector.endpoint.secrets).chain(proxy).map(|secret| secret.reveal()))
}

fn not_usable(connector: &Connector) -> ExportError {
    ExportError::new(
        format!("OTLP endpoint `{}` cannot be put into a request", connector.endpoint.shown),
        "expected http://host:port/path or https://host:port/path",
    )
}
