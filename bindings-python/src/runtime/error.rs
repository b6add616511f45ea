//! Why this interpreter cannot be profiled: what was expected, what was found, and the way out. Raised by `start()` of
//! the Python package; the program runs on. Not here: losses after start, which are counted, never raised.

use std::fmt;

/// The closed set of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeErrorKind {
    /// No layout is known for this version of CPython.
    UnknownVersion,
    /// A free-threaded build: its object header and frames differ.
    FreeThreaded,
    /// `start()` was called in a subinterpreter.
    Subinterpreter,
    /// A symbol that the walk cannot do without is missing.
    MissingSymbol,
    /// The interpreter's structures are not where this version's layout says.
    LayoutMismatch,
    /// The frame walk disagrees with the interpreter's own idea of the stack.
    WrongStack,
    /// The interpreter itself failed while it was asked something.
    Interpreter,
}

impl RuntimeErrorKind {
    /// The word for it in `stats()` and in exceptions.
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
    /// Which of the reasons.
    pub kind: RuntimeErrorKind,
    /// What happened, expected and got.
    pub message: String,
    /// The way out.
    pub hint: String,
}

impl RuntimeError {
    pub(crate) fn new(kind: RuntimeErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: hint.into() }
    }

    /// The interpreter raised where it should have answered.
    pub(crate) fn interpreter(what: &str, error: &pyo3::PyErr) -> Self {
        Self::new(
            RuntimeErrorKind::Interpreter,
            format!("the interpreter failed while {what}: {error}"),
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
