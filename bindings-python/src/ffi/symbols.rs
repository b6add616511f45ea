//! C functions of CPython outside the limited API, looked up by name at start. One abi3 wheel runs on every version; a version
//! that lacks a function uses a slower path, which `stats()` reports, instead of failing to load. Called by the rest of `ffi`.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::sync::OnceLock;

use pyo3::ffi::{PyObject, Py_ssize_t};

type ContextVarGet = unsafe extern "C" fn(*mut PyObject, *mut PyObject, *mut *mut PyObject) -> c_int;
type ContextVarSet = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> *mut PyObject;
type ContextVarReset = unsafe extern "C" fn(*mut PyObject, *mut PyObject) -> c_int;
type AsNativeBytes = unsafe extern "C" fn(*mut PyObject, *mut c_void, Py_ssize_t, c_int) -> Py_ssize_t;
type AsByteArray = unsafe extern "C" fn(*mut PyObject, *mut u8, usize, c_int, c_int) -> c_int;
type AsUtf8AndSize = unsafe extern "C" fn(*mut PyObject, *mut Py_ssize_t) -> *const c_char;

/// `PyContextVar_Get`, `PyContextVar_Set` and `PyContextVar_Reset` (3.7.1 and later).
pub struct ContextVarFunctions {
    pub get: ContextVarGet,
    pub set: ContextVarSet,
    pub reset: ContextVarReset,
}

/// A big-endian copy of an `int`'s value.
#[derive(Clone, Copy)]
pub enum LongBytes {
    /// `PyLong_AsNativeBytes` (3.13 and later): object, buffer, its size, flags; returns the required size.
    Native(AsNativeBytes),
    /// `_PyLong_AsByteArray` without its later last parameter (up to 3.12): object, buffer, its size, is little-endian, is
    /// signed; returns 0 on success.
    Array(AsByteArray),
}

/// The functions found in this interpreter.
pub struct Symbols {
    /// The functions of context variables: all or none.
    pub context_var: Option<ContextVarFunctions>,
    /// `PyUnicode_AsUTF8AndSize`: part of the limited API only from 3.10, exported since 3.3.
    pub as_utf8_and_size: Option<AsUtf8AndSize>,
    /// For trace ids: the limited API has no conversion of 128-bit integers.
    pub long_bytes: Option<LongBytes>,
}

impl Symbols {
    /// Names of the missing functions, for `stats()`.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if self.context_var.is_none() {
            names.push("PyContextVar_Get/Set/Reset");
        }
        if self.as_utf8_and_size.is_none() {
            names.push("PyUnicode_AsUTF8AndSize");
        }
        names
    }
}

#[cfg(feature = "testing")]
static HIDDEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Simulates an interpreter that exports none of the functions; must precede the first use of [`symbols`].
#[cfg(feature = "testing")]
pub fn hide_context_functions() {
    HIDDEN.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// The symbols of this process, looked up once.
pub fn symbols() -> &'static Symbols {
    static FOUND: OnceLock<Symbols> = OnceLock::new();
    FOUND.get_or_init(|| {
        #[cfg(feature = "testing")]
        if HIDDEN.load(std::sync::atomic::Ordering::Relaxed) {
            return Symbols { context_var: None, as_utf8_and_size: None, long_bytes: None };
        }
        let context_get = look_up(c"PyContextVar_Get");
        let context_set = look_up(c"PyContextVar_Set");
        let context_reset = look_up(c"PyContextVar_Reset");
        Symbols {
            context_var: match (context_get, context_set, context_reset) {
                // SAFETY: CPython 3.7.1 to 3.15 declare the functions with exactly these C types.
                (Some(get), Some(set), Some(reset)) => Some(unsafe {
                    ContextVarFunctions {
                        get: std::mem::transmute::<*mut c_void, ContextVarGet>(get),
                        set: std::mem::transmute::<*mut c_void, ContextVarSet>(set),
                        reset: std::mem::transmute::<*mut c_void, ContextVarReset>(reset),
                    }
                }),
                _ => None,
            },
            as_utf8_and_size: look_up(c"PyUnicode_AsUTF8AndSize").map(|function| {
                // SAFETY: CPython 3.3 to 3.15 declare the function with exactly this C type.
                unsafe { std::mem::transmute::<*mut c_void, AsUtf8AndSize>(function) }
            }),
            long_bytes: long_bytes(),
        }
    })
}

fn long_bytes() -> Option<LongBytes> {
    if let Some(function) = look_up(c"PyLong_AsNativeBytes") {
        // SAFETY: CPython 3.13 to 3.15 declare the function with exactly this C type.
        return Some(LongBytes::Native(unsafe { std::mem::transmute::<*mut c_void, AsNativeBytes>(function) }));
    }
    let function = look_up(c"_PyLong_AsByteArray")?;
    // SAFETY: CPython 3.9 to 3.12, which lack the function above, declare this one with exactly this C type.
    Some(LongBytes::Array(unsafe { std::mem::transmute::<*mut c_void, AsByteArray>(function) }))
}

fn look_up(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `name` is a C string; RTLD_DEFAULT searches the loaded libraries and loads nothing.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        None
    } else {
        Some(address)
    }
}
