//! Errors of a start: the only errors that the exporter returns.

use std::fmt;

/// What makes an exporter unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportErrorKind {
    /// A setting that no system accepts.
    Setting,
    /// A file or a directory that a setting names.
    File,
    /// The system refused a thread, memory or a descriptor.
    System,
}

/// The reason for which an exporter could not start. Contains no header values, passwords or key paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    /// What is unusable.
    pub kind: ExportErrorKind,
    /// Expected and actual value.
    pub message: String,
    /// The remedy; "" for none.
    pub hint: String,
}

impl ExportError {
    pub(crate) fn new(kind: ExportErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(formatter, "\nhint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for ExportError {}
