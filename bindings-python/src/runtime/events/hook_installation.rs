//! Installs the allocator hooks of the heap profile. They stay installed until the process ends, because an allocator that was
//! installed later may have saved them; while the heap profile is stopped, they pass each call on.
//!
//! Not hooked: the C library's allocator, which extensions call directly, and the RAW domain of an interpreter with debug
//! allocators (`PYTHONMALLOC=debug`, development mode, debug builds). There the hooks of MEM and OBJ count every request.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 to 3.15 | `PyMem_GetAllocator`, `PyMem_SetAllocator` and `PyMemAllocatorEx` (`Include/cpython/pymem.h`) are equal; they are not in the limited API | looked up by name |

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_profiler::{binding, LogLevel};

use super::allocator_hooks::{
    hooks, is_object_of_raw, reached_by, DomainAllocator, LARGEST_SMALL, MEM, OBJ, RAW, SAVED,
};
use super::array_handler;
use crate::runtime::interpreter;

type GetAllocator = unsafe extern "C" fn(c_int, *mut DomainAllocator);
type SetAllocator = unsafe extern "C" fn(c_int, *const DomainAllocator);
type RawMalloc = unsafe extern "C" fn(usize) -> *mut c_void;
type RawFree = unsafe extern "C" fn(*mut c_void);

/// The functions of the interpreter.
struct AllocatorApi {
    get: GetAllocator,
    set: SetAllocator,
    raw_malloc: RawMalloc,
    raw_free: RawFree,
}

impl AllocatorApi {
    fn find() -> Result<Self, String> {
        let function =
            |name| interpreter::symbol(name).ok_or_else(|| format!("the interpreter does not export {name:?}"));
        // SAFETY: CPython 3.9 to 3.15 declare the functions with exactly these C types.
        Ok(unsafe {
            Self {
                get: std::mem::transmute::<*mut c_void, GetAllocator>(function(c"PyMem_GetAllocator")?),
                set: std::mem::transmute::<*mut c_void, SetAllocator>(function(c"PyMem_SetAllocator")?),
                raw_malloc: std::mem::transmute::<*mut c_void, RawMalloc>(function(c"PyMem_RawMalloc")?),
                raw_free: std::mem::transmute::<*mut c_void, RawFree>(function(c"PyMem_RawFree")?),
            }
        })
    }

    /// Whether an allocation of `bytes` in `domain` reaches the hook of `target`, also if another allocator wraps that hook, and
    /// whether the hook of RAW returned the address of the object.
    fn reaches(&self, domain: usize, bytes: usize, target: usize) -> (bool, bool) {
        let mut is_of_raw = false;
        let reached = reached_by(|| {
            // SAFETY: the caller holds the GIL; each object is freed in the domain in which it was allocated.
            unsafe {
                let (object, free): (_, RawFree) = match domain {
                    RAW => ((self.raw_malloc)(bytes), self.raw_free),
                    MEM => (ffi::PyMem_Malloc(bytes), ffi::PyMem_Free),
                    _ => (ffi::PyObject_Malloc(bytes), ffi::PyObject_Free),
                };
                is_of_raw = is_object_of_raw(object);
                free(object);
            }
        });
        (reached & 1 << target != 0, is_of_raw)
    }
}

/// Installs the hooks where they are not in use. Called while the heap profile is stopped.
///
/// # Errors
/// When the interpreter does not export the functions.
pub fn install(py: Python<'_>) -> Result<(), String> {
    let api = AllocatorApi::find()?;
    // First: the hooks of the other domains leave large requests to it.
    if has_debug_allocators(py) {
        report_declined_raw()
    } else {
        install_in::<RAW>(py, &api)
    }
    install_in::<MEM>(py, &api);
    install_in::<OBJ>(py, &api);
    Ok(())
}

fn install_in<const DOMAIN: usize>(_py: Python<'_>, api: &AllocatorApi) {
    // A second hook above the first would call itself forever.
    if api.reaches(DOMAIN, 1, DOMAIN).0 {
        return;
    }
    let (is_passed_on, is_of_raw) = match DOMAIN {
        RAW => (false, false),
        _ => api.reaches(DOMAIN, LARGEST_SMALL + 1, RAW),
    };
    let mut current = MaybeUninit::<DomainAllocator>::uninit();
    // SAFETY: the interpreter fills the whole struct for a valid domain.
    let current = unsafe {
        (api.get)(DOMAIN as c_int, current.as_mut_ptr());
        current.assume_init()
    };
    // Leaked: a thread may be in a hook at any time. Stored first: the hook runs as soon as it is set.
    SAVED[DOMAIN].store(Box::leak(Box::new(current)), Ordering::Release);
    let hooks =
        if is_passed_on { hooks::<DOMAIN, true>(&current, is_of_raw) } else { hooks::<DOMAIN, false>(&current, false) };
    // SAFETY: the hooks pass each call to the allocator that they replace, with its context, which does not change. A thread
    // that reads the table meanwhile thus finds a valid pair of function and context.
    unsafe { (api.set)(DOMAIN as c_int, &hooks) };
}

/// Whether the interpreter runs with its debug allocators.
fn has_debug_allocators(py: Python<'_>) -> bool {
    let is_set = || {
        let sys = py.import("sys")?;
        let flags = sys.getattr("flags")?;
        let ignores_environment = flags.getattr("ignore_environment")?.is_truthy()?;
        PyResult::Ok(
            flags.getattr("dev_mode")?.is_truthy()?
                // A debug build.
                || sys.hasattr("gettotalrefcount")?
                || !ignores_environment && std::env::var("PYTHONMALLOC").is_ok_and(|name| name.contains("debug")),
        )
    };
    is_set().unwrap_or(true)
}

fn report_declined_raw() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        let message = "spanprof: the heap profile does not see the RAW domain of an interpreter with debug allocators";
        binding::log(LogLevel::Warning, message);
    }
}

/// Names of the hooked domains, for `stats()`.
pub fn hooked_domains() -> String {
    let is_hooked = |domain: usize| !SAVED[domain].load(Ordering::Acquire).is_null();
    let domains = [
        ("raw", is_hooked(RAW)),
        ("mem", is_hooked(MEM)),
        ("obj", is_hooked(OBJ)),
        ("numpy", array_handler::is_seen()),
    ];
    domains.iter().filter(|(_, is_hooked)| *is_hooked).map(|(name, _)| *name).collect::<Vec<_>>().join(",")
}

/// Memory that the heap profile does not see, for `stats()`; empty before its first start.
pub fn unseen_memory() -> &'static str {
    let is_hooked = |domain: usize| !SAVED[domain].load(Ordering::Acquire).is_null();
    match (is_hooked(OBJ), is_hooked(RAW)) {
        (false, _) => "",
        (true, true) => "malloc_of_extensions",
        (true, false) => "malloc_of_extensions,raw",
    }
}
