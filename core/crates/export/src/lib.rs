//! Delivers encoded profiles over the network and to files; never knows a sample, a configuration or a language: its input is bytes.
//!
//! An [`Exporter`] owns one thread, one bounded queue per [`Destination`] and the counters of every [`ExportPayload`]. It
//! handles encoded bytes and reads no environment variable. After [`Exporter::start`] no call blocks beyond its deadline or
//! returns an error. Its callers are the profiler and `spanprof scrape`.
//!
//! ```no_run
//! use spanprof_export::{Destination, ExportPayload, Exporter, ExporterSettings, OtlpEndpoint};
//! use std::time::Duration;
//!
//! let destination = Destination::OtlpHttp(OtlpEndpoint::new("http://localhost:4318/v1development/profiles"));
//! let exporter = Exporter::start(vec![destination], ExporterSettings::default())?;
//! exporter.enqueue(0, ExportPayload { body: vec![], samples: 0, ..ExportPayload::default() });
//! exporter.stop(Duration::from_secs(2));
//! # Ok::<(), spanprof_export::ExportError>(())
//! ```
#![forbid(unsafe_code)]

mod backoff;
mod blocking;
mod buffered_request;
mod clock;
mod compressed_body;
mod connect;
mod delivery;
mod disk_buffer;
mod endpoint;
mod error;
mod exporter;
mod file;
mod file_limits;
mod file_name;
mod grpc_status;
mod headers;
mod http_response;
mod http_sender;
mod metrics_delivery;
mod otlp_grpc;
mod outcome;
mod owned_descriptor;
mod payload;
mod payload_writer;
mod proxy;
mod queue;
mod request_sender;
mod secret;
mod server_connector;
mod settings;
mod socket;
mod spool;
mod stats;
mod tls;
mod tls_client;
mod wire;
mod writer_sender;

pub use clock::{Clock, SystemClock};
pub use endpoint::{check_url, shown as shown_url};
pub use error::ExportError;
pub use exporter::{Exporter, LossBaseline};
pub use owned_descriptor::OwnedDescriptor;
pub use payload::{ExportPayload, SplitFn};
pub use payload_writer::{PayloadWriter, WriteError, WriteErrorKind};
pub use secret::Secret;
pub use server_connector::ServerConnector;
pub use settings::{
    BufferSettings, Compression, Destination, ExporterSettings, FileDirectory, OtlpEndpoint, ProxySettings,
    StartThread, TlsFiles,
};
pub use stats::{DestinationStats, DiscardReason, Discarded, MetricsStats, RemovedFiles};
pub use tls_client::TlsClient;
