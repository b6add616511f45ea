//! The replacement of `os._exit`, which sends the last window before it ends the process. A built-in function as the original, with its
//! module, name and signature (`Modules/posixmodule.c`, 3.9 to 3.15). Not here: its installation and its pickling (`fork.py`).

use std::ffi::{c_int, c_long};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_profiler::binding::{self, ffi_guard};

use crate::ffi::heap_type::function_like;

/// Time limit of the delivery.
const DELIVERY: Duration = Duration::from_millis(200);

/// The original; set before the replacement exists, never released.
static ORIGINAL: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// Creates the replacement of `original`.
#[pyfunction]
pub fn exit_function<'py>(original: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    ORIGINAL.store(original.clone().into_ptr(), Ordering::Release);
    let function = ffi::PyMethodDefPointer { PyCFunctionWithKeywords: exit };
    function_like(original, function, ffi::METH_VARARGS | ffi::METH_KEYWORDS)
}

unsafe extern "C" fn exit(
    _module: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: arguments as the interpreter passes them; the original is set.
    unsafe {
        if is_status(arguments, keywords) {
            let py = Python::assume_attached();
            ffi_guard(false, || py.detach(|| binding::stop(DELIVERY)));
        }
        ffi::PyObject_Call(ORIGINAL.load(Ordering::Acquire), arguments, keywords)
    }
}

/// Whether the arguments are a status; otherwise the original raises, and the process continues.
///
/// # Safety
/// The arguments are a tuple, and a dictionary or null. The GIL is held.
unsafe fn is_status(arguments: *mut ffi::PyObject, keywords: *mut ffi::PyObject) -> bool {
    // SAFETY: caller's contract; both functions return borrowed references.
    unsafe {
        let positional = ffi::PyTuple_Size(arguments);
        let named = if keywords.is_null() { 0 } else { ffi::PyDict_Size(keywords) };
        let status = match (positional, named) {
            (1, 0) => ffi::PyTuple_GetItem(arguments, 0),
            (0, 1) => ffi::PyDict_GetItemString(keywords, c"status".as_ptr()),
            _ => ptr::null_mut(),
        };
        if status.is_null() || ffi::PyLong_Check(status) == 0 {
            return false;
        }
        let mut overflow: c_int = 0;
        let value: c_long = ffi::PyLong_AsLongAndOverflow(status, &mut overflow);
        overflow == 0 && c_int::try_from(value).is_ok()
    }
}
