//! Settings of the exporter as typed values. Reads no environment variable and no configuration file.

use crate::clock::{Clock, SystemClock};
use crate::payload::SplitFn;
use crate::payload_writer::PayloadWriter;
use crate::secret::Secret;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Starts a named thread that runs `body` once and ends. The body may panic. The caller can exempt the thread from sampling
/// and block signals in it.
pub type StartThread = fn(name: &'static CStr, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

/// Resolves a host name. The caller can exclude forks meanwhile.
pub type LookUp = fn(host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

/// Bounds and hooks common to all destinations.
#[derive(Clone)]
pub struct ExporterSettings {
    /// Maximum number of bytes of queued bodies per destination; beyond it the oldest are discarded. Default 16 MiB.
    pub queue_max_bytes: usize,
    /// Maximum number of queued bodies per destination. Default 1024.
    pub queue_max_payloads: usize,
    /// Largest request before compression; a larger one is split or discarded. Default 64 MiB, the limit of OTLP.
    pub max_request_bytes: usize,
    /// Time after `enqueue` in which a body is retried; then it is discarded as `expired`. Default 15 minutes.
    pub retry_max_age: Duration,
    /// Stores the requests of every destination except files and writers on disk until they are settled. Default none.
    pub buffer: Option<BufferSettings>,
    /// Receivers of the profiler's own metrics, given to [`Exporter::send_metrics`](crate::Exporter::send_metrics):
    /// [`Destination::OtlpHttp`] with the URL of metrics, or [`Destination::OtlpGrpc`]. Others receive none.
    pub metrics: Vec<Destination>,
    /// `User-Agent` of every request.
    pub user_agent: String,
    /// Starts each thread of the exporter: its own, and those for connections, name resolution and files.
    pub start_thread: StartThread,
    /// Resolves the names of receivers, on a thread of its own.
    pub look_up: LookUp,
    /// Clock for ages, dates and delays.
    pub clock: Arc<dyn Clock>,
}

impl Default for ExporterSettings {
    fn default() -> Self {
        Self {
            queue_max_bytes: 16 << 20,
            queue_max_payloads: 1024,
            max_request_bytes: 64 << 20,
            retry_max_age: Duration::from_secs(15 * 60),
            buffer: None,
            metrics: Vec::new(),
            user_agent: concat!("spanprof/", env!("CARGO_PKG_VERSION")).to_owned(),
            start_thread: |name, body| {
                let name = name.to_string_lossy().into_owned();
                std::thread::Builder::new().name(name).spawn(body).map(drop)
            },
            look_up: |host, port| Ok((host, port).to_socket_addrs()?.collect()),
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
            .field("buffer", &self.buffer)
            .field("metrics", &self.metrics)
            .field("user_agent", &self.user_agent)
            .finish_non_exhaustive()
    }
}

/// A directory for requests that are not settled. Requests of an exited process are sent by the next exporter with the same
/// directory, service and destination.
#[derive(Clone, Debug)]
pub struct BufferSettings {
    /// On a local disk, since processes lock their directories with `flock`. Created with mode 0700 when absent.
    pub directory: PathBuf,
    /// Separates services that share the directory.
    pub service: String,
    /// Maximum number of bytes of stored bodies per exporter and destination; beyond it the oldest are discarded.
    pub max_bytes: u64,
    /// Age since the start of the window at which a request is discarded as `expired`. Replaces `retry_max_age`.
    pub max_age: Duration,
    /// Splits requests of exited processes, whose own function is unknown.
    pub split: Option<SplitFn>,
}

/// One destination. Payloads are enqueued by its index.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Rotating files in a directory.
    File(FileDirectory),
    /// OTLP over gRPC; the endpoint is `http://host:port` (plain HTTP/2) or `https://host:port`.
    OtlpGrpc(OtlpEndpoint),
    /// OTLP over HTTP/1.1 with protobuf bodies; the endpoint is the full URL, path included.
    OtlpHttp(OtlpEndpoint),
    /// Pyroscope's push protocol over HTTP/1.1; the endpoint is the full URL, path included. Bodies are `push.v1.PushRequest`.
    Pyroscope(OtlpEndpoint),
    /// A storage that the caller writes, under names `<type>-<unix ms>-<n>.pb.gz`. Bodies are written unchanged.
    Writer(Arc<dyn PayloadWriter>),
}

/// A receiver of OTLP profiles.
#[derive(Clone)]
pub struct OtlpEndpoint {
    /// `http://` or `https://` URL. Userinfo becomes basic authentication unless `headers` name `authorization`.
    pub url: String,
    /// Headers or gRPC metadata of every request. They never follow a redirect, since none is followed.
    pub headers: Vec<(String, Secret)>,
    /// Compression of the request body.
    pub compression: Compression,
    /// Timeout of one attempt, from connecting to the last byte of the response. Default 10 s.
    pub timeout: Duration,
    /// Value of `OTLP-Profiles-Development-Version`, from the encoder of the bodies.
    pub profiles_development_version: u32,
    /// Certificates; used with `https` only.
    pub tls: TlsFiles,
    /// HTTP proxy.
    pub proxy: Option<ProxySettings>,
}

impl OtlpEndpoint {
    /// An endpoint with the defaults: gzip, 10 s, version 1, the system's trust anchors, no proxy.
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
        // The URL may contain a password and the key path is private: both are omitted.
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
    /// gzip, which every receiver supports.
    #[default]
    Gzip,
    /// None.
    None,
}

/// PEM files, read at start and again before a request after 30 s, so that rotated files are reloaded.
#[derive(Clone, Default)]
pub struct TlsFiles {
    /// Trust anchors that replace those of the system.
    pub certificate: Option<PathBuf>,
    /// Client certificate chain, for mutual TLS.
    pub client_certificate: Option<PathBuf>,
    /// Private key of the client certificate.
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

/// An HTTP proxy as in `HTTPS_PROXY`/`HTTP_PROXY` and `NO_PROXY`; the caller reads the variables.
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
    /// Files kept, of all types and processes together; the oldest are removed after each write. Default 100, at least 1.
    pub keep: usize,
    /// Time since the last modification after which a file is removed, except the newest. Default none.
    pub max_age: Option<Duration>,
    /// Maximum number of bytes of all files with their side-cars; beyond it the oldest are removed, except the newest. Default
    /// none.
    pub max_bytes: Option<u64>,
}

impl FileDirectory {
    /// Keeps the newest 100 files in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), keep: 100, max_age: None, max_bytes: None }
    }
}
