//! Starts a thread that runs Python code, also at the end of the interpreter, where `_thread` may refuse.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.12 | `_thread.start_new_thread` refuses before the functions of `atexit` run (`Modules/_threadmodule.c`) | `PyThread_start_new_thread`, which `_thread` calls |
//! | up to 3.13 | a thread that waits for the GIL during finalization ends by `pthread_exit`, which unwinds its frames | each call in `run` is `C-unwind`, and it has no destructor |
//! | all | `PyGILState_Ensure` needs the interpreter, which the end of finalization frees | `Py_IsInitialized`, 0 since its begin |
//! | 3.14 | the interpreter stops such threads (`Python/ceval_gil.c`) | |

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;

/// `PYTHREAD_INVALID_THREAD_ID`.
const NONE: c_ulong = c_ulong::MAX;

extern "C-unwind" {
    fn PyThread_start_new_thread(run: unsafe extern "C-unwind" fn(*mut c_void), argument: *mut c_void) -> c_ulong;
    fn PyGILState_Ensure() -> c_int;
    fn PyObject_CallObject(function: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn PyErr_Clear();
    fn Py_DecRef(object: *mut ffi::PyObject);
    fn PyGILState_Release(state: c_int);
}

/// Calls `function` on a new thread; its exceptions are dropped. False when the system has no further thread.
#[pyfunction]
pub fn start_thread(function: Bound<'_, PyAny>) -> bool {
    let (py, function) = (function.py(), function.into_ptr());
    // SAFETY: `run` has the C type that the function expects, and takes over the reference.
    let is_started = unsafe { PyThread_start_new_thread(run, function.cast()) } != NONE;
    if !is_started {
        // SAFETY: the reference was not taken over.
        drop(unsafe { Bound::from_owned_ptr(py, function) });
    }
    is_started
}

unsafe extern "C-unwind" fn run(function: *mut c_void) {
    let function = function.cast::<ffi::PyObject>();
    // SAFETY: `function` is an owned reference; the thread has a state with the GIL between the first and the last call.
    unsafe {
        if ffi::Py_IsInitialized() == 0 {
            return;
        }
        let state = PyGILState_Ensure();
        let result = PyObject_CallObject(function, ptr::null_mut());
        PyErr_Clear();
        Py_DecRef(result);
        Py_DecRef(function);
        PyGILState_Release(state);
    }
}
