//! Errors at the FFI boundary: the core's error becomes `spanprof.SpanprofError`. Only `start` and `update` may raise into
//! the host. Not here: error messages, and the guard of other calls (the core).

use pyo3::prelude::*;
use spanprof::binding::ffi_guard_result;
use spanprof::Error;

use crate::convert::BINDING;

/// The FFI guard of calls that may raise: errors and panics become `SpanprofError`.
pub fn ffi_guard_or_raise<T>(py: Python<'_>, body: impl FnOnce() -> Result<T, Error>) -> PyResult<T> {
    ffi_guard_result(body).map_err(|error| into_exception(py, &error))
}

fn into_exception(py: Python<'_>, error: &Error) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("spanprof.errors")?.getattr("SpanprofError")?;
        let [kind, message, hint] = BINDING.error_texts(error);
        Ok(PyErr::from_value(class.call1((message, kind, hint))?))
    };
    build().unwrap_or_else(|import_error| import_error)
}
