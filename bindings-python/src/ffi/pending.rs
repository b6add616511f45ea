//! Asks the interpreter's main thread to do something soon, from any thread and without the GIL. Used by the log only.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyException;
use pyo3::ffi;
use pyo3::prelude::*;

use super::catching;

/// `spanprof.host_log.send_courier`, set when the package is imported.
static ASKED: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// Sets what the main thread calls when it is asked.
pub fn set_asked(function: Bound<'_, PyAny>) {
    let old = ASKED.swap(function.into_ptr(), Ordering::AcqRel);
    // SAFETY: null or the reference leaked by the previous call; the argument proves that the GIL is held.
    unsafe { ffi::Py_XDECREF(old) };
}

/// Asks; false when the interpreter has no room for another request.
///
/// Must not be called once the interpreter has begun to end; the log's `closed` sees to that.
pub fn ask_main_thread() -> bool {
    // SAFETY: callable from any thread without the GIL while the interpreter lives (function's contract).
    unsafe { ffi::Py_AddPendingCall(Some(call), ptr::null_mut()) == 0 }
}

/// Runs on the main thread, with the GIL, between two byte codes of whatever it executes. An exception that is not ours to
/// keep (Ctrl-C arriving meanwhile) goes on into the program.
extern "C" fn call(_argument: *mut c_void) -> c_int {
    catching(0, || {
        let function = ASKED.load(Ordering::Acquire);
        if function.is_null() {
            return 0;
        }
        // SAFETY: pending calls run with the GIL held; ASKED holds a reference of its own.
        let (py, function) = unsafe {
            let py = Python::assume_attached();
            (py, Bound::from_borrowed_ptr(py, function))
        };
        match function.call0() {
            Ok(_) => 0,
            Err(error) if error.is_instance_of::<PyException>(py) => 0,
            Err(error) => {
                error.restore(py);
                -1
            }
        }
    })
}
