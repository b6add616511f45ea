//! Error of a verb: message, hint and exit code.

use std::fmt;

/// Exit code of a verb that failed or found an error in its input.
pub const EXIT_FAILED: i32 = 1;
/// Exit code of an invalid command line.
pub const EXIT_USAGE: i32 = 2;

/// A verb's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Cause of the failure.
    pub message: String,
    /// Remedy, where there is one.
    pub hint: Option<String>,
    /// Exit code of the program: 1 for a failure, 2 for an invalid command line.
    pub exit_code: i32,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), hint: None, exit_code: EXIT_FAILED }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Failure { message: message.into(), hint: None, exit_code: EXIT_USAGE }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(out, "\n  {hint}"),
            None => Ok(()),
        }
    }
}
