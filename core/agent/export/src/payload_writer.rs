//! Destinations that another crate writes, such as object storage: the exporter queues, retries and counts.

use std::fmt;

/// Writes payloads to a storage outside this crate.
pub trait PayloadWriter: fmt::Debug + Send + Sync {
    /// Kind of the destination in the statistics.
    fn kind(&self) -> &'static str;

    /// The storage without secrets, for messages.
    fn shown(&self) -> String;

    /// Writes one body; may block. After a failure that can be repaired it is called again with the same name and body, so the
    /// second write must replace the first.
    ///
    /// # Errors
    /// When the body is not stored.
    fn write(&self, name: &str, body: &[u8]) -> Result<(), WriteError>;
}

/// Cause of a body that was not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// For logs and statistics, without secrets.
    pub message: String,
    /// Whether another attempt can succeed.
    pub kind: WriteErrorKind,
}

/// Whether another attempt can succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteErrorKind {
    /// No: the storage refused it.
    Permanent,
    /// Yes, but there is no connection. `stop` does not try again.
    NotConnected,
    /// Yes.
    Temporary,
}
