//! The heap profile's handler for the data of numpy's arrays (`PyDataMem_SetHandler`, NEP 49). numpy keeps the handler in a
//! `ContextVar` and stores it in each array, so arrays free their data by the handler that allocated it. Not here: the functions
//! of the handler (`allocator_hooks`).
//!
//! # Rules
//! 1. The handler and its capsule are leaked: arrays refer to them until the process ends.
//! 2. Only numpy's default handler is replaced, in the calling context. A program's own handler stays: it may allocate
//!    in a domain that has hooks, which would count its arrays twice.
//! 3. Newer versions of numpy allocate the data of arrays in the RAW domain. Where that has a hook, no handler is needed: the hook
//!    sees the arrays of every context, except small ones that numpy takes from its own cache.
//! 4. The handler stays set after the heap profile stops, and then passes each call on.
//!
//! # Changes in numpy
//! | version | change | handled in |
//! |---|---|---|
//! | 1.22 | `PyDataMem_SetHandler`, `PyDataMem_GetHandler`, `PyDataMem_DefaultHandler` at 304 to 306 of the C API's table (`numpy/core/code_generators/numpy_api.py`); feature version 15 | `ArrayApi::find` |
//! | 2.0 | the package `numpy.core` became `numpy._core`; the table has the same numbers | `MODULES` |

use std::ffi::{c_char, c_uint, c_void, CStr};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use spanprof_signal::heap::HEAP;

use super::allocator_hooks::{array_hooks, reached_by, ArrayAllocator, RAW, SAVED_ARRAYS};
use crate::runtime::detection;

/// The extension module that holds the table of the C API: since 2.0, and before.
const MODULES: [&str; 2] = ["numpy._core._multiarray_umath", "numpy.core._multiarray_umath"];
/// Name of a handler's capsule.
const CAPSULE: &CStr = c"mem_handler";
/// The version of the C API's features in numpy 1.22.
const FIRST_FEATURE_VERSION: c_uint = 15;

/// Indices in the table of the C API.
mod index {
    pub const FEATURE_VERSION: usize = 211;
    pub const SET_HANDLER: usize = 304;
    pub const GET_HANDLER: usize = 305;
    pub const DEFAULT_HANDLER: usize = 306;
}

/// `PyDataMem_Handler` (`numpy/ndarraytypes.h`, 1.22 to 2.5).
#[repr(C)]
struct ArrayHandler {
    name: [c_char; 127],
    /// Version of the struct.
    version: u8,
    allocator: ArrayAllocator,
}

/// The capsule of our handler, immortal. Null before the first call that finds numpy.
static CAPSULE_OF_HANDLER: AtomicPtr<PyObject> = AtomicPtr::new(std::ptr::null_mut());
/// numpy's default handler allocates in the RAW domain, whose hook sees the arrays.
static IS_SEEN_BY_RAW: AtomicBool = AtomicBool::new(false);

/// Size of the allocation that tests this, bytes; numpy caches smaller ones.
const TESTED_BYTES: usize = 100_000;

/// numpy's functions and its default handler.
struct ArrayApi {
    set: unsafe extern "C" fn(*mut PyObject) -> *mut PyObject,
    get: unsafe extern "C" fn() -> *mut PyObject,
    default_handler: *mut PyObject,
}

impl ArrayApi {
    /// `None` without numpy.
    fn find(py: Python<'_>) -> PyResult<Option<Self>> {
        let modules = py.import("sys")?.getattr("modules")?;
        let Some(module) = MODULES.iter().find_map(|name| modules.get_item(name).ok()) else { return Ok(None) };
        let table = module.getattr("_ARRAY_API")?;
        // SAFETY: the GIL is held; the function checks that the object is a capsule without a name.
        let table = unsafe { ffi::PyCapsule_GetPointer(table.as_ptr(), std::ptr::null()) }.cast::<*mut c_void>();
        if table.is_null() {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: since 1.7 this entry is a function of this type; the table lives as long as the process.
        let version = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(*table.add(index::FEATURE_VERSION))()
        };
        if version < FIRST_FEATURE_VERSION {
            return Ok(None);
        }
        // SAFETY: from this version on the entries are two functions of these types and the address of a capsule's pointer.
        Ok(Some(unsafe {
            Self {
                set: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut PyObject) -> *mut PyObject>(
                    *table.add(index::SET_HANDLER),
                ),
                get: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *mut PyObject>(
                    *table.add(index::GET_HANDLER),
                ),
                default_handler: *(*table.add(index::DEFAULT_HANDLER)).cast::<*mut PyObject>(),
            }
        }))
    }
}

/// Sets the handler in the calling context, if the heap profile runs, numpy 1.22 or later is loaded, and the context has
/// numpy's default handler.
pub fn install(py: Python<'_>) -> PyResult<()> {
    if !HEAP.is_running() || IS_SEEN_BY_RAW.load(Ordering::Relaxed) || detection::require_main(py).is_err() {
        return Ok(());
    }
    let Some(api) = ArrayApi::find(py)? else { return Ok(()) };
    // SAFETY: the GIL is held; the function returns a new reference.
    let current = unsafe { Bound::from_owned_ptr_or_err(py, (api.get)())? };
    if current.as_ptr() != api.default_handler {
        return Ok(());
    }
    let existing = CAPSULE_OF_HANDLER.load(Ordering::Acquire);
    let capsule = if existing.is_null() { new_capsule(py, &current)? } else { existing };
    if !capsule.is_null() {
        // SAFETY: the capsule is valid for ever; the function returns a new reference to the earlier one.
        drop(unsafe { Bound::from_owned_ptr_or_err(py, (api.set)(capsule))? });
    }
    Ok(())
}

/// The capsule of a new handler above the default one; null if the hook of the RAW domain sees the arrays.
fn new_capsule(py: Python<'_>, default_handler: &Bound<'_, PyAny>) -> PyResult<*mut PyObject> {
    // SAFETY: the GIL is held; the function checks the capsule's name.
    let below = unsafe { ffi::PyCapsule_GetPointer(default_handler.as_ptr(), CAPSULE.as_ptr()) }.cast::<ArrayHandler>();
    if below.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the capsule of numpy's default handler holds a static struct of this type.
    let saved: &'static ArrayAllocator = unsafe { &(*below).allocator };
    let reached = reached_by(|| {
        // SAFETY: the GIL is held; the data is freed by the functions that allocated it, with its size.
        unsafe {
            let data = (saved.functions.malloc)(saved.functions.context, TESTED_BYTES);
            (saved.free)(saved.functions.context, data, TESTED_BYTES);
        }
    });
    if reached & 1 << RAW != 0 {
        IS_SEEN_BY_RAW.store(true, Ordering::Relaxed);
        return Ok(std::ptr::null_mut());
    }
    // Stored first: the hooks run as soon as the handler is set.
    SAVED_ARRAYS.store(std::ptr::from_ref(saved).cast_mut(), Ordering::Release);
    let mut name = [0; 127];
    for (to, from) in name.iter_mut().zip(b"spanprof") {
        *to = *from as c_char;
    }
    let handler = ArrayHandler { name, version: 1, allocator: array_hooks(saved.functions.context) };
    // SAFETY: the struct is leaked and the name is static. The reference is never released.
    let capsule = unsafe { ffi::PyCapsule_New(Box::into_raw(Box::new(handler)).cast(), CAPSULE.as_ptr(), None) };
    if capsule.is_null() {
        return Err(PyErr::fetch(py));
    }
    CAPSULE_OF_HANDLER.store(capsule, Ordering::Release);
    Ok(capsule)
}

/// Whether the profile sees numpy's arrays, at least in some contexts.
pub fn is_seen() -> bool {
    IS_SEEN_BY_RAW.load(Ordering::Relaxed) || !CAPSULE_OF_HANDLER.load(Ordering::Acquire).is_null()
}
