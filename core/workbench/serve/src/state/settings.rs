//! What a server is started with, and where it then listens.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use spanprof_profile::redact::RedactionSettings;
use spanprof_read::decode::DecodeLimits;

use super::trace_url::TraceUrl;
use crate::store::Retention;
use spanprof_answers::sources::SourcePaths;

#[derive(Clone)]
pub struct Settings {
    /// Address for OTLP/gRPC; port 0 picks a free one.
    pub grpc: SocketAddr,
    /// Address for OTLP/HTTP, the page and its queries; port 0 picks a free one.
    pub http: SocketAddr,
    /// Directory of the requests; created when missing.
    pub directory: PathBuf,
    /// Limits of the stored requests.
    pub retention: Retention,
    /// Largest request on the wire, compressed or not.
    pub max_request_bytes: usize,
    /// Limits of a decoded request.
    pub limits: DecodeLimits,
    /// Names under which browsers may reach the page, besides localhost and addresses.
    pub allowed_hosts: Vec<String>,
    /// Links to a trace in tracing systems, with different names.
    pub trace_urls: Vec<TraceUrl>,
    /// Where the page may read source files.
    pub source_paths: SourcePaths,
    /// Address of a source file in a repository, with `{path}`, `{line}` and `{commit}`.
    pub source_url: Option<String>,
    /// Applied to each request before it is stored.
    pub redaction: Option<RedactionSettings>,
    /// Receives log lines.
    pub report: Arc<dyn Fn(&str) + Send + Sync>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// OTLP/gRPC.
    pub grpc: SocketAddr,
    /// OTLP/HTTP and the page.
    pub http: SocketAddr,
}
