//! Exceptions of the program's signal handlers that interrupt the profiler's calls. They are not logged, converted or lost. A
//! call that may raise raises them. Any other call keeps them, and the main thread raises them before its next instruction,
//! as if the signal had arrived a moment later.
//!
//! Only the main thread runs signal handlers. Exceptions of other threads are never kept.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use spanprof_profiler::binding::ffi_guard;

/// The exception to raise. A later one replaces it, as in the interpreter.
static KEPT: Mutex<Option<PyErr>> = Mutex::new(None);
/// `spanprof.interruptions.is_interruption`.
static TEST: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Sets the function that recognizes exceptions of signal handlers; called once when the package is imported.
#[pyfunction]
pub fn set_interruption_test(py: Python<'_>, test: Py<PyAny>) {
    // A reload of the package passes the function again.
    let _ = TEST.set(py, test);
}

/// Calls `hook`, for callers that drop exceptions: those of the program are kept.
#[pyfunction]
pub fn call_hook(hook: &Bound<'_, PyAny>) -> PyResult<()> {
    let error = hook.call0().err().and_then(|error| keep(hook.py(), error));
    error.map_or(Ok(()), Err)
}

/// Keeps `error` if it belongs to the program; otherwise returns it.
pub fn keep(py: Python<'_>, error: PyErr) -> Option<PyErr> {
    if !is_interruption(py, &error) {
        return Some(error);
    }
    replace_kept(Some(error));
    // SAFETY: the GIL is held, so that the interpreter lives.
    if unsafe { ffi::Py_AddPendingCall(Some(raise_kept), ptr::null_mut()) } != 0 {
        // The queue is full: the next best place is `sys.unraisablehook`.
        if let Some(error) = take() {
            error.write_unraisable(py, None);
        }
    }
    None
}

/// The value of a call that only succeeds or fails; an exception of the program is kept.
pub fn ok<T>(py: Python<'_>, result: PyResult<T>) -> Option<T> {
    result.map_err(|error| keep(py, error)).ok()
}

/// Whether `error` belongs to the program.
pub fn is_interruption(py: Python<'_>, error: &PyErr) -> bool {
    if spanprof_os::thread_id() != std::process::id() {
        return false;
    }
    let Some(test) = TEST.get(py) else { return false };
    match test.call1(py, (error.clone_ref(py).into_value(py),)) {
        Ok(answer) => answer.is_truthy(py).unwrap_or(false),
        Err(interruption) => {
            keep(py, interruption);
            false
        }
    }
}

/// Takes the kept exception, for a call that can raise it.
pub fn take() -> Option<PyErr> {
    replace_kept(None)
}

/// Whether an exception is kept.
pub fn is_kept() -> bool {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

fn replace_kept(error: Option<PyErr>) -> Option<PyErr> {
    std::mem::replace(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner), error)
}

/// A pending call: runs on the main thread, with the GIL, between two instructions.
extern "C" fn raise_kept(_argument: *mut c_void) -> c_int {
    ffi_guard(0, || match take() {
        Some(error) => {
            // SAFETY: pending calls run with the GIL held.
            error.restore(unsafe { Python::assume_attached() });
            -1
        }
        None => 0,
    })
}
