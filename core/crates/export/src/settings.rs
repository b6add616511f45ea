//! Where profiles go and within which bounds; typed values only, no environment and no files of configuration.

use crate::clock::{Clock, SystemClock};
use crate::secret::Secret;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Starts a thread of a name, which runs a body once and ends. The body may panic. The caller's chance to exempt the thread
/// from sampling and to keep signals from it.
pub type StartThread = fn(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Bounds and hooks common to all destinations.
#[derive(Clone)]
pub struct ExporterSettings {
    /// Bytes of bodies that may wait per destination; beyond it the oldest leave. Default 16 MiB.
    pub queue_max_bytes: usize,
    /// Bodies that may wait per destination. Default 1024.
    pub queue_max_payloads: usize,
    /// Largest request before compression; a larger one is split or dropped, never sent. Default 64 MiB, the limit of OTLP.
    pub max_request_bytes: usize,
    /// How long after `enqueue` a body is still retried; then it is dropped as `expired`. Default 15 minutes.
    pub retry_max_age: Duration,
    /// `User-Agent` of every request.
    pub user_agent: String,
    /// Starts each thread of the exporter: its own, and those that resolve names and write files.
    pub start_thread: StartThread,
    /// Ages, dates and pauses.
    pub clock: Arc<dyn Clock>,
}

impl Default for ExporterSettings {
    fn default() -> Self {
        Self {
            queue_max_bytes: 16 << 20,
            queue_max_payloads: 1024,
            max_request_bytes: 64 << 20,
            retry_max_age: Duration::from_secs(15 * 60),
            user_agent: concat!("spanprof/", env!("CARGO_PKG_VERSION")).to_owned(),
            start_thread: |name, body| {
                let name = name.to_string_lossy().into_owned();
                std::thread::Builder::new().name(name).spawn(body).map(drop)
            },
            clock: Arc::new(SystemClock::default()),
        }
    }
}

impl fmt::Debug for ExporterSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ExporterSettings")
            .field("queue_max_bytes", &self.queue_max_bytes)
            .field("queue_max_payloads", &self.queue_max_payloads)
            .field("max_request_bytes", &self.max_request_bytes)
            .field("retry_max_age", &self.retry_max_age)
            .field("user_agent", &self.user_agent)
            .finish_non_exhaustive()
    }
}

/// One place to which every payload given to its index goes.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Rotating files in a directory.
    File(FileDirectory),
    /// OTLP over gRPC; the endpoint is `http://host:port` (plain HTTP/2) or `https://host:port`.
    OtlpGrpc(OtlpEndpoint),
    /// OTLP over HTTP/1.1 with protobuf bodies; the endpoint is the full URL, path included.
    OtlpHttp(OtlpEndpoint),
}

/// A receiver of OTLP profiles.
#[derive(Clone)]
pub struct OtlpEndpoint {
    /// `http://` or `https://` URL. Userinfo becomes basic authentication unless `headers` name `authorization`.
    pub url: String,
    /// Headers or gRPC metadata of every request. They never follow a redirect, since none is followed.
    pub headers: Vec<(String, Secret)>,
    /// Of the request body.
    pub compression: Compression,
    /// Of one attempt, from connecting to the last byte of the answer. Default 10 s.
    pub timeout: Duration,
    /// Value of `OTLP-Profiles-Development-Version`; comes from the encoder that made the bodies.
    pub profiles_development_version: u32,
    /// Certificates; used with `https` only.
    pub tls: TlsFiles,
    /// Proxy to go through.
    pub proxy: Option<ProxySettings>,
}

impl OtlpEndpoint {
    /// An endpoint with the defaults: gzip, 10 s, version 1, trust of the machine, no proxy.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            compression: Compression::Gzip,
            timeout: Duration::from_secs(10),
            profiles_development_version: 1,
            tls: TlsFiles::default(),
            proxy: None,
        }
    }
}

impl fmt::Debug for OtlpEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password, the key path is nobody's business: neither is shown.
        formatter
            .debug_struct("OtlpEndpoint")
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("compression", &self.compression)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Compression of a request body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// gzip, which every receiver knows.
    #[default]
    Gzip,
    /// None.
    None,
}

/// PEM files; read at start and again before a request when 30 s have passed, so that rotated files are taken up.
#[derive(Clone, Default)]
pub struct TlsFiles {
    /// Certificates to trust instead of those of the machine.
    pub certificate: Option<PathBuf>,
    /// Our own certificate chain, for mutual TLS.
    pub client_certificate: Option<PathBuf>,
    /// Its key.
    pub client_key: Option<PathBuf>,
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TlsFiles")
            .field("certificate", &self.certificate.is_some())
            .field("client_certificate", &self.client_certificate.is_some())
            .field("client_key", &self.client_key.is_some())
            .finish()
    }
}

/// An HTTP proxy, as `HTTPS_PROXY`/`HTTP_PROXY` and `NO_PROXY` describe one; the caller reads the variables.
#[derive(Clone)]
pub struct ProxySettings {
    /// `http://[user:password@]host:port`.
    pub url: String,
    /// Comma-separated hosts, domain suffixes, addresses, networks (`10.0.0.0/8`) or `*` that are reached directly.
    pub no_proxy: String,
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ProxySettings").field("no_proxy", &self.no_proxy).finish_non_exhaustive()
    }
}

/// A directory of files `<type>-<unix ms>.pb.gz`, mode 0600, each complete or absent.
#[derive(Clone, Debug)]
pub struct FileDirectory {
    /// Created with mode 0700 when absent.
    pub directory: PathBuf,
    /// Files kept, of all types together; the oldest are removed. Default 100, at least 1.
    pub keep: usize,
}

impl FileDirectory {
    /// Keeps the newest 100 files in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), keep: 100 }
    }
}
