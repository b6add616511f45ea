//! Errors in the settings: the only errors that the exporter returns.

use std::fmt;

/// The reason for which an exporter could not start. Contains no header values, passwords or key paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    /// Expected and actual value.
    pub message: String,
    /// The remedy; "" for none.
    pub hint: String,
}

impl ExportError {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
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
