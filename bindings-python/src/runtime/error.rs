//! Errors of an interpreter that cannot be profiled: expected and actual state, and a hint. Logged by `start()` of the Python
//! package, which returns False; the program continues. Not here: losses after start, which are counted, never raised.

use std::fmt;

use pyo3::{PyErr, Python};

use crate::ffi::interruption;

/// The closed set of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeErrorKind {
    /// No layout is known for this version of CPython.
    UnknownVersion,
    /// A free-threaded build: its object header and frames differ.
    FreeThreaded,
    /// `start()` was called in a subinterpreter.
    Subinterpreter,
    /// A symbol that the walk requires is missing.
    MissingSymbol,
    /// The interpreter's structures differ from this version's layout.
    LayoutMismatch,
    /// The frame walk disagrees with the interpreter's own stack.
    WrongStack,
    /// A call into the interpreter raised.
    Interpreter,
}

impl RuntimeErrorKind {
    /// Its name in `stats()` and in exceptions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownVersion => "unknown_version",
            Self::FreeThreaded => "free_threaded",
            Self::Subinterpreter => "subinterpreter",
            Self::MissingSymbol => "missing_symbol",
            Self::LayoutMismatch => "layout_mismatch",
            Self::WrongStack => "wrong_stack",
            Self::Interpreter => "interpreter",
        }
    }
}

/// This interpreter cannot be profiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeError {
    pub kind: RuntimeErrorKind,
    /// Expected and actual state.
    pub message: String,
    /// How to resolve it.
    pub hint: String,
}

impl RuntimeError {
    pub(crate) fn new(kind: RuntimeErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into() }
    }

    /// A call into the interpreter raised. An exception of the program is kept.
    pub(crate) fn interpreter(py: Python<'_>, action: &str, error: PyErr) -> Self {
        let message = format!("the interpreter failed while {action}: {error}");
        interruption::keep(py, error);
        Self::new(
            RuntimeErrorKind::Interpreter,
            message,
            "report this with the full version of the interpreter; profiling stays off, the program is not affected",
        )
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\nhint: {}", self.message, self.hint)
    }
}

impl std::error::Error for RuntimeError {}
