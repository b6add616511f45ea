//! Opens connections: name resolution, TCP, the proxy's CONNECT tunnel and TLS. The HTTP and gRPC senders are its callers.

use crate::connect::blocking::{self, Pending};
use crate::connect::endpoint::Endpoint;
use crate::connect::proxy::proxy_for;
use crate::connect::socket::Socket;
use crate::connect::tls::{self, Tls};
use crate::error::{ExportError, ExportErrorKind};
use crate::outcome::HINT_PROXY_USER;
use crate::settings::{ExporterSettings, LookUp, OtlpEndpoint, StartThread};
use http::StatusCode;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// A byte stream to a receiver or proxy: TCP, TLS or a tunnel.
pub(crate) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Opens connections to one receiver.
pub(crate) struct Connector {
    pub endpoint: Endpoint,
    /// Plain HTTP/1.1 requests go to the proxy itself; TLS and gRPC tunnel through it.
    pub proxy: Option<Endpoint>,
    tls: Option<Tls>,
    resolver: HostResolver,
    start_thread: StartThread,
    timeout: Duration,
}

impl Connector {
    pub fn start(settings: &OtlpEndpoint, alpn: &'static [u8], common: &ExporterSettings) -> Result<Self, ExportError> {
        let endpoint = Endpoint::parse(&settings.url, "OTLP endpoint")?;
        if settings.timeout.is_zero() || settings.timeout > MAX_TIMEOUT {
            return Err(ExportError::new(
                ExportErrorKind::Setting,
                format!("the timeout of {} is {:?}", endpoint.shown, settings.timeout),
                format!("expected more than 0 and at most {} s", MAX_TIMEOUT.as_secs()),
            ));
        }
        let proxy = proxy_for(&endpoint, settings.proxy.as_ref())?;
        let tls = if endpoint.secure { Some(Tls::start(settings.tls.clone(), alpn)?) } else { None };
        let resolver = HostResolver::new(common);
        Ok(Self { endpoint, proxy, tls, resolver, start_thread: common.start_thread, timeout: settings.timeout })
    }

    /// Reloads rotated certificates. A connection opened under another generation must not be reused.
    pub fn refresh_generation(&mut self) -> u64 {
        self.tls.as_mut().map_or(0, Tls::refresh)
    }

    /// Opens a connection to the receiver itself, TLS and proxy tunnel included.
    pub async fn connect(&mut self) -> Result<Box<dyn Transport>, String> {
        let transport = match self.proxy.clone() {
            Some(proxy) => {
                let stream = self.dial(&proxy).await?;
                tunnel(stream, &proxy, &self.endpoint).await?
            }
            None => self.dial(&self.endpoint.clone()).await?,
        };
        let Some(tls) = &mut self.tls else { return Ok(transport) };
        let config = tls.config().map_err(|error| error.message)?;
        let name = ServerName::try_from(self.endpoint.host.clone())
            .map_err(|_| "the host of the endpoint is not a valid name for a certificate".to_owned())?;
        let stream = TlsConnector::from(config)
            .connect(name, transport)
            .await
            .map_err(|error| format!("TLS with {} failed: {}", self.endpoint.shown, root_cause(&error)))?;
        Ok(Box::new(stream))
    }

    /// Opens a connection to the proxy for requests in absolute form (RFC 9112, section 3.2.2).
    pub async fn connect_to_proxy(&mut self, proxy: &Endpoint) -> Result<Box<dyn Transport>, String> {
        self.dial(proxy).await
    }

    async fn dial(&mut self, to: &Endpoint) -> Result<Box<dyn Transport>, String> {
        let addresses = self
            .resolver
            .resolve(&to.host, to.port)
            .await
            .map_err(|error| format!("the host of {} has no address: {error}", to.shown))?;
        // Each address gets a share of the timeout, so that an unresponsive one leaves time for the next.
        let share = self.timeout / addresses.len().clamp(1, 4) as u32;
        let mut failure = format!("the host of {} has no address", to.shown);
        for address in addresses {
            let connecting = Socket::connect(self.start_thread, address, share)
                .map_err(|error| format!("no thread for a connection to {}: {error}", to.shown))?;
            match tokio::time::timeout(share, connecting).await {
                Ok(Ok(Ok(socket))) => return Ok(Box::new(socket)),
                Ok(Ok(Err(error))) if error.kind() != io::ErrorKind::TimedOut => {
                    failure = format!("cannot connect to {}: {error}", to.shown);
                }
                Ok(Err(_)) => failure = format!("cannot connect to {}: an internal error", to.shown),
                Ok(Ok(Err(_))) | Err(_) => {
                    failure = format!("cannot connect to {}: no response within {share:?}", to.shown);
                }
            }
        }
        Err(failure)
    }
}

/// The last cause in a chain of errors, which is the most specific, and for an error of TLS the usual way out.
pub(crate) fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut root_cause = error;
    while let Some(source) = root_cause.source() {
        root_cause = source;
    }
    let text = root_cause.to_string();
    match tls::remedy(&text) {
        Some(remedy) => format!("{text}; {remedy}"),
        None => text,
    }
}

async fn tunnel(stream: Box<dyn Transport>, proxy: &Endpoint, target: &Endpoint) -> Result<Box<dyn Transport>, String> {
    let host = if target.host.contains(':') { format!("[{}]", target.host) } else { target.host.clone() };
    let failed = |why: String| format!("the proxy {} opened no tunnel to {}: {why}", proxy.shown, target.shown);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.to_string()))?;
    tokio::spawn(connection.with_upgrades());
    let authority = format!("{host}:{}", target.port);
    let mut request =
        http::Request::builder().method(http::Method::CONNECT).uri(&authority).header(http::header::HOST, &authority);
    if let Some(basic) = &proxy.basic {
        let mut value = http::HeaderValue::from_str(basic.reveal()).map_err(|error| failed(error.to_string()))?;
        value.set_sensitive(true);
        request = request.header(http::header::PROXY_AUTHORIZATION, value);
    }
    let request = request.body(Empty::<bytes::Bytes>::new()).map_err(|error| failed(error.to_string()))?;
    let response = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
    if !response.status().is_success() {
        let hint = if response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED { HINT_PROXY_USER } else { "" };
        return Err(failed(format!("it answered {}{hint}", response.status())));
    }
    let upgraded = hyper::upgrade::on(response).await.map_err(|error| failed(error.to_string()))?;
    Ok(Box::new(TokioIo::new(upgraded)))
}

/// Resolves host names. The system's resolver blocks, so it runs on a thread of its own. A look-up that outlives its attempt
/// serves the next one.
struct HostResolver {
    start_thread: StartThread,
    look_up: LookUp,
    pending: Option<Pending<io::Result<Vec<SocketAddr>>>>,
}

impl HostResolver {
    fn new(common: &ExporterSettings) -> Self {
        Self { start_thread: common.start_thread, look_up: common.look_up, pending: None }
    }

    async fn resolve(&mut self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        // RFC 6761: always the loopback address. Saves the default endpoint the look-up and its thread.
        if host.eq_ignore_ascii_case("localhost") {
            return Ok(vec![
                SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
                SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port),
            ]);
        }
        let pending = match &mut self.pending {
            Some(pending) => pending,
            none => {
                let (host, look_up) = (host.to_owned(), self.look_up);
                none.insert(blocking::spawn(self.start_thread, move || look_up(&host, port))?)
            }
        };
        let resolved = pending.await;
        self.pending = None;
        resolved.unwrap_or_else(|_| Err(io::Error::other("the look-up ended by an internal error")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Connector, HostResolver};
    use crate::settings::{ExporterSettings, OtlpEndpoint};
    use std::time::Duration;

    fn block_on<T>(future: impl std::future::Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn addresses_and_localhost_are_resolved_without_the_system_resolver() {
        block_on(async {
            let mut resolver = HostResolver::new(&ExporterSettings::default());
            for (host, expected) in [
                ("::1", "[::1]:7"),
                ("192.0.2.1", "192.0.2.1:7"),
                ("LocalHost", "127.0.0.1:7"),
                ("localhost", "127.0.0.1:7"),
            ] {
                let resolved = resolver.resolve(host, 7).await.unwrap();
                assert_eq!(resolved[0].to_string(), expected);
            }
            assert!(resolver.pending.is_none());
        });
    }

    #[test]
    fn a_name_that_does_not_exist_is_an_error_and_can_be_resolved_again() {
        block_on(async {
            let mut resolver = HostResolver::new(&ExporterSettings::default());
            for _ in 0..2 {
                assert!(resolver.resolve("collector.invalid", 7).await.is_err());
                assert!(resolver.pending.is_none());
            }
        });
    }

    #[test]
    fn a_timeout_of_zero_or_above_the_maximum_is_an_error_at_start() {
        for timeout in [Duration::ZERO, Duration::MAX] {
            let settings = OtlpEndpoint { timeout, ..OtlpEndpoint::new("http://u:marker@h") };
            let error = Connector::start(&settings, b"h2", &ExporterSettings::default()).err().unwrap().to_string();
            assert!(error.contains("the timeout of http://h is") && error.contains("at most 3600 s"), "{error}");
        }
    }
}
