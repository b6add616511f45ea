//! HTTP/1.1 for object_store over the connections of spanprof-export: the same TLS, proxies and trust anchors as the
//! destinations. Idle connections are reused. Redirects are not followed.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderValue, HOST, USER_AGENT};
use hyper::Uri;
use hyper_util::rt::TokioIo;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
};
use object_store::ClientOptions;
use spanprof_export::{ExporterSettings, OtlpEndpoint, ServerConnector, TlsFiles};

use crate::proxy;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The metadata service of a cloud responds at once, or does not exist.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// Of the response's head, and of each part of its body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_RESPONSE_BYTES: usize = 257 << 20;

/// Creates the clients of one storage.
#[derive(Clone, Debug)]
pub(super) struct StorageConnector {
    pub tls: TlsFiles,
}

impl HttpConnector for StorageConnector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(StorageClient { tls: self.tls.clone(), servers: Mutex::default() }))
    }
}

/// Connections to the servers of one storage: its own, and those of credentials.
struct StorageClient {
    tls: TlsFiles,
    servers: Mutex<HashMap<String, Arc<StorageServer>>>,
}

struct StorageServer {
    connector: tokio::sync::Mutex<ServerConnector>,
    idle: Mutex<Vec<SendRequest<HttpRequestBody>>>,
}

impl fmt::Debug for StorageClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StorageClient").finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpService for StorageClient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let server = self.server(request.uri())?;
        let mut connection = server.connection().await?;
        let no_response = || error(HttpErrorKind::Timeout, format!("no response within {READ_TIMEOUT:?}"));
        let response = tokio::time::timeout(READ_TIMEOUT, connection.send_request(in_origin_form(request)?))
            .await
            .map_err(|_| no_response())?
            .map_err(|failure| {
                // A cancelled request was not sent: the connection had ended.
                let kind = if failure.is_canceled() { HttpErrorKind::Request } else { HttpErrorKind::Interrupted };
                error(kind, format!("the connection ended without a response: {failure}"))
            })?;
        let (parts, body) = response.into_parts();
        let body = read(Limited::new(body, MAX_RESPONSE_BYTES)).await?;
        if !connection.is_closed() {
            server.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

impl StorageClient {
    fn server(&self, uri: &Uri) -> Result<Arc<StorageServer>, HttpError> {
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let url = format!("{}://{authority}", uri.scheme_str().unwrap_or("https"));
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(&url) {
            return Ok(server.clone());
        }
        let is_metadata = is_metadata_service(uri.host().unwrap_or_default());
        let settings = OtlpEndpoint {
            timeout: if is_metadata { METADATA_TIMEOUT } else { CONNECT_TIMEOUT },
            tls: self.tls.clone(),
            proxy: proxy::of_environment(&url).filter(|_| !is_metadata),
            ..OtlpEndpoint::new(url.clone())
        };
        let connector = ServerConnector::start(&settings, &ExporterSettings::default())
            .map_err(|failure| error(HttpErrorKind::Unknown, failure.message))?;
        let server = Arc::new(StorageServer { connector: tokio::sync::Mutex::new(connector), idle: Mutex::default() });
        servers.insert(url, server.clone());
        Ok(server)
    }
}

impl StorageServer {
    /// An idle connection, or a new one.
    async fn connection(&self) -> Result<SendRequest<HttpRequestBody>, HttpError> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut connection) = idle else { break };
            if connection.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        let stream =
            self.connector.lock().await.connect().await.map_err(|cause| error(HttpErrorKind::Connect, cause))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|failure| error(HttpErrorKind::Connect, failure.to_string()))?;
        tokio::spawn(async {
            // The request returns the error.
            let _ = driver.await;
        });
        Ok(sender)
    }
}

/// The request as HTTP/1.1 sends it to a server: a path, and the host as a header.
fn in_origin_form(mut request: HttpRequest) -> Result<HttpRequest, HttpError> {
    let unusable = |failure: hyper::http::Error| error(HttpErrorKind::Unknown, failure.to_string());
    if !request.headers().contains_key(HOST) {
        let authority = request.uri().authority().map(|authority| authority.as_str()).unwrap_or_default();
        let host = HeaderValue::from_str(authority).map_err(|failure| unusable(failure.into()))?;
        request.headers_mut().insert(HOST, host);
    }
    let agent = HeaderValue::from_static(concat!("spanprof/", env!("CARGO_PKG_VERSION")));
    request.headers_mut().entry(USER_AGENT).or_insert(agent);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::builder().path_and_query(path).build().map_err(unusable)?;
    Ok(request)
}

/// The whole body: an interrupted one is requested again, which object_store does for a failed request only.
async fn read(mut body: Limited<hyper::body::Incoming>) -> Result<Bytes, HttpError> {
    let mut parts = Vec::new();
    loop {
        let frame = tokio::time::timeout(READ_TIMEOUT, body.frame())
            .await
            .map_err(|_| error(HttpErrorKind::Timeout, format!("the response stopped for {READ_TIMEOUT:?}")))?;
        match frame {
            None => break,
            Some(Ok(frame)) => parts.extend(frame.into_data().ok()),
            Some(Err(failure)) if failure.is::<LengthLimitError>() => {
                return Err(error(HttpErrorKind::Decode, format!("the response is over {MAX_RESPONSE_BYTES} bytes")))
            }
            Some(Err(failure)) => {
                return Err(error(HttpErrorKind::Interrupted, format!("the response ended early: {failure}")))
            }
        }
    }
    Ok(match parts.len() {
        1 => parts.remove(0),
        _ => parts.concat().into(),
    })
}

/// Whether the host serves an instance its credentials: link-local, and never behind a proxy.
fn is_metadata_service(host: &str) -> bool {
    match host.parse() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(_)) => false,
        Err(_) => matches!(host, "metadata" | "metadata.google.internal"),
    }
}

fn error(kind: HttpErrorKind, message: String) -> HttpError {
    HttpError::new_boxed(kind, message.into())
}
