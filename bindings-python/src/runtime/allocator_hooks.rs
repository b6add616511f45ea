//! Installs the allocator hooks of the heap profile. They stay installed until the process ends, because an allocator that was
//! installed later may have saved them; while the heap profile is stopped, they pass each call on.
//!
//! Not hooked: the RAW domain, whose callers need no GIL, and the C library's allocator, which extensions call directly.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 to 3.15 | `PyMem_GetAllocator`, `PyMem_SetAllocator` and `PyMemAllocatorEx` (`Include/cpython/pymem.h`) are equal; they are not in the limited API | looked up by name |

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_signal::heap::HEAP;

use super::allocator_hook_signal::{hooks, DomainAllocator, MEM, OBJ, SAVED};
use super::{array_handler, interpreter};

type GetAllocator = unsafe extern "C" fn(c_int, *mut DomainAllocator);
type SetAllocator = unsafe extern "C" fn(c_int, *const DomainAllocator);

/// `PYMEM_DOMAIN_MEM`.
const MEM_DOMAIN: c_int = 1;
/// `PYMEM_DOMAIN_OBJ`.
const OBJ_DOMAIN: c_int = 2;

/// Installs the hooks where they are not in use. Called while the heap profile is stopped.
///
/// # Errors
/// When the interpreter does not export the functions.
pub fn install(py: Python<'_>) -> Result<(), String> {
    let function = |name| interpreter::symbol(name).ok_or_else(|| format!("the interpreter does not export {name:?}"));
    let (get, set) = (function(c"PyMem_GetAllocator")?, function(c"PyMem_SetAllocator")?);
    // SAFETY: CPython 3.9 to 3.15 declare the functions with exactly these C types.
    let functions = unsafe {
        (std::mem::transmute::<*mut c_void, GetAllocator>(get), std::mem::transmute::<*mut c_void, SetAllocator>(set))
    };
    install_in::<MEM>(py, functions, MEM_DOMAIN);
    install_in::<OBJ>(py, functions, OBJ_DOMAIN);
    Ok(())
}

fn install_in<const DOMAIN: usize>(py: Python<'_>, (get, set): (GetAllocator, SetAllocator), domain: c_int) {
    if is_in_use::<DOMAIN>(py) {
        return;
    }
    let mut current = MaybeUninit::<DomainAllocator>::uninit();
    // SAFETY: the interpreter fills the whole struct for a valid domain.
    let current = unsafe {
        get(domain, current.as_mut_ptr());
        current.assume_init()
    };
    // Leaked: a thread may be in a hook at any time. Stored first: the hook runs as soon as it is set.
    SAVED[DOMAIN].store(Box::leak(Box::new(current)), Ordering::Release);
    let hooks = hooks::<DOMAIN>(current.functions.context);
    // SAFETY: the hooks pass each call to the allocator that they replace, with its context. The GIL is held, as for every
    // caller of this domain.
    unsafe { set(domain, &hooks) };
}

/// Whether the hook of the domain is called, also if another allocator wraps it: a second hook above it would call itself
/// forever.
fn is_in_use<const DOMAIN: usize>(_py: Python<'_>) -> bool {
    if SAVED[DOMAIN].load(Ordering::Acquire).is_null() {
        return false;
    }
    HEAP.make_due();
    // SAFETY: the GIL is held; each object is freed in the domain in which it was allocated.
    unsafe {
        if DOMAIN == MEM {
            ffi::PyMem_Free(ffi::PyMem_Malloc(1));
        } else {
            ffi::PyObject_Free(ffi::PyObject_Malloc(1));
        }
    }
    let is_called = !HEAP.is_due();
    HEAP.stop();
    is_called
}

/// Names of the hooked domains, for `stats()`.
pub fn hooked_domains() -> String {
    let mut domains = Vec::new();
    if !SAVED[OBJ].load(Ordering::Acquire).is_null() {
        domains.extend(["mem", "obj"]);
    }
    if array_handler::is_known() {
        domains.push("numpy");
    }
    domains.join(",")
}
