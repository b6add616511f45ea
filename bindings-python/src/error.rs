//! Errors at the FFI boundary: the core's error becomes `spanprof.SpanprofError`. Only `start` and `update` may raise into
//! the host. Not here: error messages, and the guard of other calls (the core).

use pyo3::prelude::*;
use spanprof::binding::ffi_guard_result;
use spanprof::Error;

/// The FFI guard of calls that may raise: errors and panics become `SpanprofError`.
pub fn ffi_guard_or_raise<T>(py: Python<'_>, body: impl FnOnce() -> Result<T, Error>) -> PyResult<T> {
    ffi_guard_result(body).map_err(|error| into_exception(py, &error))
}

fn into_exception(py: Python<'_>, error: &Error) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("spanprof.errors")?.getattr("SpanprofError")?;
        Ok(PyErr::from_value(class.call1((error.message.as_str(), error.kind.name(), error.hint.as_str()))?))
    };
    build().unwrap_or_else(|import_error| import_error)
}
