//! The library serves one life of the interpreter. A program that embeds Python may finalize it and initialize it again; the library
//! stays loaded with objects of the first life (types, the context variable), whose memory is reused.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Called when the module is initialized: an error in a later life.
pub fn begin() -> PyResult<()> {
    if HAS_ENDED.load(Ordering::Acquire) {
        return Err(PyImportError::new_err("the interpreter was initialized again, after Py_Finalize"));
    }
    if !HAS_BEGUN.swap(true, Ordering::AcqRel) {
        // SAFETY: the GIL is held; the function is of this library, which stays loaded.
        unsafe { ffi::Py_AtExit(Some(end)) };
    }
    Ok(())
}

/// Called at the end of finalization.
extern "C" fn end() {
    HAS_ENDED.store(true, Ordering::Release);
}
