//! Delivers encoded profiles over the network and to files; never knows a sample, a configuration or a language: its input is bytes.
//!
//! An [`Exporter`] owns one thread, one bounded queue per [`Destination`] and the counters of every [`ExportPayload`]. It
//! handles encoded bytes and reads no environment variable. After [`Exporter::start`] no call blocks beyond its deadline or
//! returns an error. The folders, each of which uses only those before it: `connect` and `queue` · `send` and `files` · `deliver`.
//! Its callers are the profiler and `spanprof scrape`.
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

mod clock;
mod connect;
mod deliver;
mod error;
mod exporter;
mod files;
mod outcome;
mod payload;
mod payload_writer;
mod queue;
mod secret;
mod send;
mod settings;
mod stats;

pub use clock::{Clock, SystemClock};
pub use connect::endpoint::{check_url, shown as shown_url};
pub use connect::owned_descriptor::OwnedDescriptor;
pub use connect::server_connector::ServerConnector;
pub use connect::tls_client::TlsClient;
pub use error::{ExportError, ExportErrorKind};
pub use exporter::{Exporter, LossBaseline};
pub use payload::{ExportPayload, SplitFn};
pub use payload_writer::{PayloadWriter, WriteError, WriteErrorKind};
pub use secret::Secret;
pub use settings::{
    BufferSettings, Compression, Destination, ExporterSettings, FileDirectory, LookUp, OtlpEndpoint, ProxySettings,
    StartThread, TlsFiles,
};
pub use stats::{DestinationStats, DiscardReason, Discarded, MetricsStats, RemovedFiles};
