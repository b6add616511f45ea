//! What a verb reports when it cannot do what was asked: the message, the way out, the exit code. Not a wire error.

use std::fmt;

/// Exit code of a verb that ran and found or met something wrong.
pub(crate) const EXIT_FAILED: i32 = 1;
/// Exit code of a command line that could not be understood.
pub(crate) const EXIT_USAGE: i32 = 2;

/// A verb's error: what happened, what to do, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// What to do, where that is known.
    pub hint: Option<String>,
    /// Exit code of the program: 1 when something failed, 2 for a command line that was not understood.
    pub exit_code: i32,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Failure { message: message.into(), hint: None, exit_code: EXIT_FAILED }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { message: message.into(), hint: None, exit_code: EXIT_USAGE }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
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
