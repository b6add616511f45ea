//! What can be wrong with the settings; the only errors the exporter returns.

use std::fmt;

/// Why an exporter could not start. Without secrets: headers, passwords and key paths never occur in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    /// What was expected and what was found.
    pub message: String,
    /// The way out.
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
