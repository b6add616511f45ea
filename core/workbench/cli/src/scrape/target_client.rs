//! GET requests to a target over HTTP/1.1, with TLS. Each request has its own connection, a deadline and a limit on the body.
//! Redirects are not followed, so no header reaches another host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{HeaderValue, AUTHORIZATION, HOST, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use spanprof_export::TlsClient;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, RwLock};
use tokio::task::JoinHandle;

use super::config::{ScrapeTarget, ScrapedEndpoint};
use crate::http_stream::{secured, HttpTransport};
use spanprof_answers::failure::Failure;

/// Characters of a response that an error quotes.
const MAX_QUOTED_CHARS: usize = 200;
/// Bytes of the body of a response with an error status.
const MAX_ERROR_BYTES: usize = 4096;

/// Cause of a request without a profile.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PullError {
    /// The target sent no response: it is down, or the network to it.
    Unreachable(String),
    /// The target is collecting another profile (status 429).
    Busy(String),
    /// The target has no such profile (status 404).
    Absent(String),
    /// The target responded without a usable profile, or the request could not be built.
    Refused(String),
}

/// Requests profiles from one target.
pub(super) struct TargetClient {
    target: ScrapeTarget,
    tls: Option<Mutex<TlsClient>>,
    /// Held by each pull; exclusively once the target has refused simultaneous ones.
    turn: RwLock<()>,
    is_serial: AtomicBool,
}

/// A running task, aborted on drop.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TargetClient {
    /// Reads the certificates of the target.
    pub fn start(target: ScrapeTarget) -> Result<Self, Failure> {
        let tls = match target.is_secure {
            true => Some(
                TlsClient::start(target.tls.clone())
                    .map_err(|error| Failure::new(format!("{}: {}", target.shown, error.message)).hint(error.hint))?,
            ),
            false => None,
        };
        Ok(Self { target, tls: tls.map(Mutex::new), turn: RwLock::default(), is_serial: AtomicBool::default() })
    }

    /// The body of a successful response. A target that collects one profile at a time is pulled serially after its first
    /// refusal.
    pub async fn get(&self, endpoint: &ScrapedEndpoint) -> Result<Bytes, PullError> {
        if !self.is_serial.load(Ordering::Relaxed) {
            let turn = self.turn.read().await;
            let result = self.get_now(endpoint).await;
            drop(turn);
            if !matches!(result, Err(PullError::Busy(_))) {
                return result;
            }
            self.is_serial.store(true, Ordering::Relaxed);
        }
        let _turn = self.turn.write().await;
        self.get_now(endpoint).await
    }

    /// A request within the endpoint's `seconds` and `timeout`.
    async fn get_now(&self, endpoint: &ScrapedEndpoint) -> Result<Bytes, PullError> {
        let limit = Duration::from_secs(endpoint.seconds.unwrap_or(0)) + endpoint.timeout;
        match tokio::time::timeout(limit, self.exchange(endpoint)).await {
            Ok(result) => result,
            Err(_) => Err(PullError::Unreachable(format!("no response within {limit:?}"))),
        }
    }

    async fn exchange(&self, endpoint: &ScrapedEndpoint) -> Result<Bytes, PullError> {
        let request = self.request(endpoint)?;
        let ScrapeTarget { host, port, .. } = &self.target;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| PullError::Unreachable(format!("cannot connect: {error}")))?;
        let stream = match &self.tls {
            None => secured(stream, host, None).await,
            Some(tls) => secured(stream, host, Some(&mut *tls.lock().await)).await,
        };
        self.send(stream.map_err(PullError::Unreachable)?, request).await
    }

    fn request(&self, endpoint: &ScrapedEndpoint) -> Result<Request<Empty<Bytes>>, PullError> {
        let target = match endpoint.seconds {
            None => endpoint.path.clone(),
            Some(seconds) => {
                let separator = if endpoint.path.contains('?') { '&' } else { '?' };
                format!("{}{separator}seconds={seconds}", endpoint.path)
            }
        };
        let mut request = Request::get(target)
            .header(HOST, &self.target.authority)
            .header(USER_AGENT, concat!("spanprof/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|error| PullError::Refused(format!("the request cannot be built: {error}")))?;
        let bearer = self.target.bearer_token.iter().map(|token| (&AUTHORIZATION, token, "Bearer "));
        let headers = self.target.headers.iter().map(|(name, source)| (name, source, ""));
        for (name, source, prefix) in headers.chain(bearer) {
            let unusable = |problem: String| PullError::Refused(format!("header `{name}`: {problem}"));
            let value = source.read().map_err(unusable)?;
            let mut value = HeaderValue::from_str(&format!("{prefix}{}", value.reveal()))
                .map_err(|_| unusable("the value has characters that headers do not allow".to_owned()))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(request)
    }

    async fn send(&self, stream: Box<dyn HttpTransport>, request: Request<Empty<Bytes>>) -> Result<Bytes, PullError> {
        let no_response = |error: hyper::Error| PullError::Unreachable(format!("no response: {error}"));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(no_response)?;
        let _connection = AbortOnDrop(tokio::spawn(async {
            // The request returns the error.
            let _ = connection.await;
        }));
        let response = sender.send_request(request).await.map_err(no_response)?;
        if !response.status().is_success() {
            let status = response.status();
            let message = self.error_status(response).await;
            return Err(match status {
                StatusCode::TOO_MANY_REQUESTS => PullError::Busy(message),
                StatusCode::NOT_FOUND => PullError::Absent(message),
                _ => PullError::Refused(message),
            });
        }
        let limit = self.target.max_body_bytes;
        match Limited::new(response.into_body(), limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(PullError::Refused(format!("the profile is larger than max_body_size, {limit} bytes")))
            }
            Err(error) => Err(PullError::Unreachable(format!("the response ended early: {error}"))),
        }
    }

    /// The status and the first line of the body, without the values of the target's headers.
    async fn error_status<B>(&self, response: Response<B>) -> String
    where
        B: hyper::body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let mut line: String =
            text.trim().lines().next().unwrap_or("").chars().filter(|letter| !letter.is_control()).collect();
        let sources = self.target.headers.iter().map(|(_, source)| source).chain(&self.target.bearer_token);
        for secret in sources.filter_map(|source| source.read().ok()) {
            line = line.replace(secret.reveal(), "***");
        }
        let line: String = line.chars().take(MAX_QUOTED_CHARS).collect();
        match (line.as_str(), status.is_redirection()) {
            (_, true) => format!("status {status}; redirects are not followed, give the final URL"),
            ("", _) => format!("status {status}"),
            (line, _) => format!("status {status}: {line}"),
        }
    }
}
