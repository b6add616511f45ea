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
    set(&FUNCTION, function);
}

/// Sets the function that the main thread calls after the configuration changed without a call of the program.
pub fn set_settings_function(function: Bound<'_, PyAny>) {
    set(&SETTINGS_FUNCTION, function);
}

/// Keeps a function of the main interpreter.
fn set(place: &AtomicPtr<ffi::PyObject>, function: Bound<'_, PyAny>) {
    if is_main_interpreter(function.py()) {
        // SAFETY: the argument proves that the GIL is held; null or the reference leaked by the previous call is released.
        unsafe { ffi::Py_XDECREF(place.swap(function.into_ptr(), Ordering::AcqRel)) };
    }
}

/// A subinterpreter cannot end while it has a thread, which the functions start.
fn is_main_interpreter(_py: Python<'_>) -> bool {
    // SAFETY: `Python` proves that the GIL is held; both only read the current interpreter.
    unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) == 0 }
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
        // SAFETY: pending calls run with the GIL held.
        let py = unsafe { Python::assume_attached() };
        // A call scheduled with the GIL of a subinterpreter runs there (up to CPython 3.11).
        if !is_main_interpreter(py) {
            return 0;
        }
        let have_settings_changed = HAVE_SETTINGS_CHANGED.swap(false, Ordering::AcqRel);
        let function = if have_settings_changed { &SETTINGS_FUNCTION } else { &FUNCTION }.load(Ordering::Acquire);
        if function.is_null() {
            return 0;
        }
        // SAFETY: the static holds a reference of its own.
        let function = unsafe { Bound::from_borrowed_ptr(py, function) };
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
