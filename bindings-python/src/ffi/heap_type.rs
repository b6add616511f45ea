//! Creates heap types, the types that a module creates while it is imported, and static tables of their C methods. Not here:
//! the methods (the modules of each type).

use std::ffi::{c_int, c_uint, c_ulong, c_void, CStr};

use pyo3::ffi;
use pyo3::prelude::*;

/// A static table of C methods; the last row is zero.
pub(super) struct MethodTable<const N: usize>(pub(super) [ffi::PyMethodDef; N]);

// SAFETY: the rows hold pointers to static data and functions only, and are never written.
unsafe impl<const N: usize> Sync for MethodTable<N> {}

/// One row of a type's slots; zero and null end them.
pub(super) fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// A type with `Py_TPFLAGS_DEFAULT` and further flags.
pub(super) fn new_type<'py>(
    py: Python<'py>,
    name: &'static CStr,
    basicsize: usize,
    flags: c_ulong,
    slots: &mut [ffi::PyType_Slot],
) -> PyResult<Bound<'py, PyAny>> {
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: basicsize as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | flags) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: `slots` ends with a zero row; names, docs and method tables are static, the rest is copied.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec)) }
}
