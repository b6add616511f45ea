//! Schedules a pending call on the interpreter's main thread, from any thread and without the GIL. Used by the log, and
//! for settings that changed without a call of the program.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_profiler::binding::ffi_guard;

use super::interruption;

/// `spanprof.host_log.start_log_thread`, set when the package is imported.
static FUNCTION: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// `spanprof.lifecycle.follow_settings`, set when the package is imported.
static SETTINGS_FUNCTION: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
/// Whether the next call calls it.
static HAVE_SETTINGS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Sets the function that the main thread calls when log lines are queued.
pub fn set_function(function: Bound<'_, PyAny>) {
    let old = FUNCTION.swap(function.into_ptr(), Ordering::AcqRel);
    // SAFETY: null or the reference leaked by the previous call; the argument proves that the GIL is held.
    unsafe { ffi::Py_XDECREF(old) };
}

/// Sets the function that the main thread calls after the configuration changed without a call of the program.
pub fn set_settings_function(function: Bound<'_, PyAny>) {
    let old = SETTINGS_FUNCTION.swap(function.into_ptr(), Ordering::AcqRel);
    // SAFETY: null or the reference leaked by the previous call; the argument proves that the GIL is held.
    unsafe { ffi::Py_XDECREF(old) };
}

/// Makes the next pending call follow the changed settings.
pub fn note_changed_settings() {
    HAVE_SETTINGS_CHANGED.store(true, Ordering::Release);
}

/// Schedules the call; false when the interpreter's queue of pending calls is full.
///
/// Must not be called during finalization; the log's `closed` flag prevents it.
pub fn schedule() -> bool {
    // SAFETY: callable from any thread without the GIL while the interpreter lives (function's contract).
    unsafe { ffi::Py_AddPendingCall(Some(call), ptr::null_mut()) == 0 }
}

/// Runs on the main thread, with the GIL, between two bytecodes. Exceptions of the program propagate into it.
extern "C" fn call(_argument: *mut c_void) -> c_int {
    ffi_guard(0, || {
        let have_settings_changed = HAVE_SETTINGS_CHANGED.swap(false, Ordering::AcqRel);
        let function = if have_settings_changed { &SETTINGS_FUNCTION } else { &FUNCTION }.load(Ordering::Acquire);
        if function.is_null() {
            return 0;
        }
        // SAFETY: pending calls run with the GIL held; the static holds a reference of its own.
        let (py, function) = unsafe {
            let py = Python::assume_attached();
            (py, Bound::from_borrowed_ptr(py, function))
        };
        let Err(error) = function.call0() else { return 0 };
        if !interruption::is_interruption(py, &error) {
            return 0;
        }
        // Its work is done by the next call.
        HAVE_SETTINGS_CHANGED.fetch_or(have_settings_changed, Ordering::AcqRel);
        schedule();
        error.restore(py);
        -1
    })
}
