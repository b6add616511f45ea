//! Creates heap types, the types that a module creates while it is imported, and static tables of their C methods. Not here:
//! the methods (the modules of each type).
//!
//! Rule: every function runs with the GIL held.

use std::ffi::{c_int, c_uint, c_ulong, c_void, CStr, CString};
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_profiler::binding::ffi_guard;

/// A static table of C methods; the last row is zero.
pub(crate) struct MethodTable<const N: usize>(pub(crate) [ffi::PyMethodDef; N]);

// SAFETY: the rows hold pointers to static data and functions only, and are never written.
unsafe impl<const N: usize> Sync for MethodTable<N> {}

/// `METH_FASTCALL`: the same calling convention on 3.7 to 3.15, but part of the limited API only from 3.10.
pub(crate) const METH_FASTCALL: c_int = 0x0080;

pub(crate) type FastCall =
    unsafe extern "C" fn(*mut ffi::PyObject, *const *mut ffi::PyObject, ffi::Py_ssize_t) -> *mut ffi::PyObject;
pub(crate) type FastCallKeywords = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    ffi::Py_ssize_t,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

pub(crate) const fn fast(function: FastCall) -> ffi::PyMethodDefPointer {
    // SAFETY: a function pointer; METH_FASTCALL in the same row declares its true type.
    unsafe { ffi::PyMethodDefPointer { PyCFunction: std::mem::transmute::<FastCall, ffi::PyCFunction>(function) } }
}

pub(crate) const fn fast_keywords(function: FastCallKeywords) -> ffi::PyMethodDefPointer {
    // SAFETY: a function pointer; METH_FASTCALL | METH_KEYWORDS in the same row declare its true type.
    unsafe {
        ffi::PyMethodDefPointer { PyCFunction: std::mem::transmute::<FastCallKeywords, ffi::PyCFunction>(function) }
    }
}

/// One row of a method table.
pub(crate) const fn row(
    name: &'static CStr,
    meth: ffi::PyMethodDefPointer,
    flags: c_int,
    doc: &'static CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: meth, ml_flags: flags, ml_doc: doc.as_ptr() }
}

/// The row that gives a type weak references, in a field at `offset`, and the row that ends the table.
pub(crate) fn weak_references(offset: usize) -> [ffi::PyMemberDef; 2] {
    [
        ffi::PyMemberDef {
            name: c"__weaklistoffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        // SAFETY: a row of zeroes ends the table.
        unsafe { std::mem::zeroed() },
    ]
}

/// The table of a type whose only property is `__class__`. Leaked: it must outlive the type, which is immortal.
pub(crate) fn class_property(get: ffi::getter) -> &'static mut [ffi::PyGetSetDef; 2] {
    Box::leak(Box::new([
        ffi::PyGetSetDef { name: c"__class__".as_ptr(), get: Some(get), ..Default::default() },
        ffi::PyGetSetDef::default(),
    ]))
}

/// One row of a type's slots; zero and null end them.
pub(crate) fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

/// A built-in function with the name, the module, the signature and the text of `original`. The function refers to its definition, which
/// is leaked.
pub(crate) fn function_like<'py>(
    original: &Bound<'py, PyAny>,
    function: ffi::PyMethodDefPointer,
    flags: c_int,
) -> PyResult<Bound<'py, PyAny>> {
    let name = leaked(original.getattr("__name__")?.extract()?);
    let definition = Box::leak(Box::new(row(name, function, flags, text_like(original)?)));
    // A function of another library, in Python, has none.
    let [of, module] = ["__self__", "__module__"].map(|name| original.getattr(name).ok());
    let or_null = |object: &Option<Bound<'_, PyAny>>| object.as_ref().map_or(ptr::null_mut(), Bound::as_ptr);
    // SAFETY: the definition is leaked; both objects are alive, or null.
    unsafe {
        let created = ffi::PyCFunction_NewEx(definition, or_null(&of), or_null(&module));
        Bound::from_owned_ptr_or_err(original.py(), created)
    }
}

/// The text of a type or a built-in function in the form of its definition: after the signature, if it has one. Leaked.
pub(crate) fn text_like(original: &Bound<'_, PyAny>) -> PyResult<&'static CStr> {
    let text: String = original.getattr("__doc__")?.extract().unwrap_or_default();
    let signature: Option<String> = original.getattr("__text_signature__").ok().and_then(|it| it.extract().ok());
    let Some(signature) = signature else { return Ok(leaked(text)) };
    let name: String = original.getattr("__name__")?.extract()?;
    Ok(leaked(format!("{name}{signature}\n--\n\n{text}")))
}

fn leaked(text: String) -> &'static CStr {
    Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str())
}

/// A type with `Py_TPFLAGS_DEFAULT` and further flags.
pub(crate) fn new_type<'py>(
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

/// Replaces the metaclass of a new type. The limited API has no function for it before 3.12; an assignment of `__class__` is
/// refused because `type` is static.
pub(crate) fn set_metaclass(class: &Bound<'_, PyAny>, metaclass: &Bound<'_, PyAny>) {
    // SAFETY: `class` is new, so nothing has cached its metaclass. The metaclass is a subclass of `type` without fields of its
    // own (the package's metaclass), as an assignment of `__class__` requires. It becomes immortal.
    unsafe { (*class.as_ptr()).ob_type = metaclass.clone().into_ptr().cast::<ffi::PyTypeObject>() };
}

/// An owned reference to `True` or `False`.
pub(crate) fn boolean(value: bool) -> *mut ffi::PyObject {
    // SAFETY: requires the GIL.
    unsafe { ffi::PyBool_FromLong(value.into()) }
}

/// An owned reference to `None`.
pub(crate) fn none() -> *mut ffi::PyObject {
    // SAFETY: None lives as long as the interpreter.
    unsafe {
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}

/// Runs the body of a C function with the GIL; null with the exception set when it fails.
#[cold]
pub(crate) fn object_or_raise<'py>(
    body: impl FnOnce(Python<'py>) -> PyResult<*mut ffi::PyObject>,
) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        // SAFETY: called by the interpreter with the GIL held.
        let py = unsafe { Python::assume_attached() };
        body(py).unwrap_or_else(|error| {
            error.restore(py);
            ptr::null_mut()
        })
    })
}
