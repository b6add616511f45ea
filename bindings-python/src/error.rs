//! Errors and panics at the FFI boundary: the core's error becomes `spanprof.SpanprofError`, a panic becomes a counted
//! fallback. Only `start` and `update` may raise into the host. Not here: error messages (the core).

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use spanprof::{take_panic, Error, ErrorKind};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Number of panics caught at the FFI boundary since the module was loaded, for `stats()`.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

fn count_panic() {
    PANICS.fetch_add(1, Ordering::Relaxed);
}

/// The FFI guard of calls that never raise: a panic is counted, becomes `fallback` and never unwinds into C.
pub fn ffi_guard<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        count_panic();
        fallback
    })
}

/// The FFI guard of calls that may raise: errors and panics become `SpanprofError`.
pub fn ffi_guard_or_raise<T>(py: Python<'_>, body: impl FnOnce() -> Result<T, Error>) -> PyResult<T> {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        count_panic();
        Err(panic_error())
    });
    outcome.map_err(|error| into_exception(py, &error))
}

fn panic_error() -> Error {
    let text = take_panic().unwrap_or_else(|| "failed inside".to_owned());
    let message = format!("the profiler {text}; the program is not affected");
    Error::new(ErrorKind::System, message, "report this message")
}

fn into_exception(py: Python<'_>, error: &Error) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("spanprof.errors")?.getattr("SpanprofError")?;
        Ok(PyErr::from_value(class.call1((error.message.as_str(), error.kind.name(), error.hint.as_str()))?))
    };
    build().unwrap_or_else(|import_error| import_error)
}
