//! `__enter__` and `__exit__` of the scope type as bound methods with a free list. A `with` statement binds both; allocating
//! and freeing two method objects of the interpreter would be a fifth of its cost. Not here: the methods themselves
//! (`scope_calls`).
//!
//! Rule: everything here runs with the GIL held; the GIL also protects the free list.

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_profiler::binding::ffi_guard;

use crate::ffi::heap_type::{new_type, slot};

/// The implementation of a method; both methods ignore their arguments.
pub type Body = unsafe extern "C" fn(*mut ffi::PyObject) -> *mut ffi::PyObject;
type VectorCall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    usize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// `Py_TPFLAGS_HAVE_VECTORCALL`: the same bit since 3.8, but part of the limited API only from 3.12.
const HAVE_VECTORCALL: c_ulong = 1 << 11;

/// Descriptor in the class: `__get__` returns a bound method for an instance, and the interpreter's own method for the class.
#[repr(C)]
struct ScopeMethodDescriptor {
    head: ffi::PyObject,
    body: Body,
    class: *mut ffi::PyTypeObject,
    class_method: *mut ffi::PyObject,
}

/// A method bound to a scope. In the free list, `scope` links to the next free method.
#[repr(C)]
struct BoundScopeMethod {
    head: ffi::PyObject,
    vectorcall: VectorCall,
    body: Body,
    scope: *mut ffi::PyObject,
}

static DESCRIPTOR_TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
static BOUND_TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
static FREE: AtomicPtr<BoundScopeMethod> = AtomicPtr::new(ptr::null_mut());
static FREE_COUNT: AtomicU32 = AtomicU32::new(0);
/// Nested `with` statements bind and free two by two.
const MAX_FREE: u32 = 16;

/// Replaces the method `name` of the class by one that is cheap to bind.
pub fn install(class: &pyo3::Bound<'_, PyAny>, name: &str, body: Body) -> PyResult<()> {
    let class_method = class.getattr(name)?;
    // SAFETY: the type is created below and immortal; the new instance is fully initialized before it is published.
    let descriptor = unsafe {
        let object = ffi::PyType_GenericAlloc(descriptor_type(class.py())?, 0);
        if !object.is_null() {
            ptr::write(&mut (*object.cast::<ScopeMethodDescriptor>()).body, body);
            ptr::write(&mut (*object.cast::<ScopeMethodDescriptor>()).class, class.as_ptr().cast());
            ptr::write(&mut (*object.cast::<ScopeMethodDescriptor>()).class_method, class_method.into_ptr());
        }
        pyo3::Bound::from_owned_ptr_or_err(class.py(), object)?
    };
    class.setattr(name, descriptor)
}

fn descriptor_type(py: Python<'_>) -> PyResult<*mut ffi::PyTypeObject> {
    if BOUND_TYPE.load(Ordering::Acquire).is_null() {
        let mut members = [
            ffi::PyMemberDef {
                name: c"__vectorcalloffset__".as_ptr(),
                type_code: ffi::Py_T_PYSSIZET,
                offset: std::mem::offset_of!(BoundScopeMethod, vectorcall) as ffi::Py_ssize_t,
                flags: ffi::Py_READONLY,
                doc: ptr::null(),
            },
            // SAFETY: a row of zeroes ends the table.
            unsafe { std::mem::zeroed() },
        ];
        let mut slots = [
            slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
            slot(ffi::Py_tp_call, call as *mut c_void),
            slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
            slot(ffi::Py_tp_traverse, traverse as *mut c_void),
            slot(ffi::Py_tp_new, refuse_new as *mut c_void),
            slot(0, ptr::null_mut()),
        ];
        let name = c"spanprof._spanprof.ScopeMethod";
        let flags = HAVE_VECTORCALL | ffi::Py_TPFLAGS_HAVE_GC;
        let bound = new_type(py, name, size_of::<BoundScopeMethod>(), flags, &mut slots)?;
        BOUND_TYPE.store(bound.into_ptr().cast(), Ordering::Release);
        let mut slots = [
            slot(ffi::Py_tp_descr_get, bind as *mut c_void),
            slot(ffi::Py_tp_new, refuse_new as *mut c_void),
            slot(0, ptr::null_mut()),
        ];
        let name = c"spanprof._spanprof.ScopeMethodDescriptor";
        let descriptor = new_type(py, name, size_of::<ScopeMethodDescriptor>(), 0, &mut slots)?;
        DESCRIPTOR_TYPE.store(descriptor.into_ptr().cast(), Ordering::Release);
    }
    Ok(DESCRIPTOR_TYPE.load(Ordering::Acquire))
}

unsafe extern "C" fn refuse_new(
    _type: *mut ffi::PyTypeObject,
    _arguments: *mut ffi::PyObject,
    _keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    refused("scope methods cannot be created directly")
}

#[cold]
fn refused(message: &'static str) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        // SAFETY: the GIL is held (module's rule).
        let py = unsafe { Python::assume_attached() };
        PyTypeError::new_err(message).restore(py);
        ptr::null_mut()
    })
}

/// `descriptor.__get__(scope, class)`.
unsafe extern "C" fn bind(
    descriptor: *mut ffi::PyObject,
    scope: *mut ffi::PyObject,
    _class: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes an instance of the descriptor's type, which only `install` creates. `scope` is null or
    // alive; instances of another class are rejected. A method in the free list has no references; removal adds one.
    unsafe {
        let ScopeMethodDescriptor { body, class, class_method, .. } = *descriptor.cast::<ScopeMethodDescriptor>();
        if scope.is_null() {
            ffi::Py_INCREF(class_method);
            return class_method;
        }
        if ffi::Py_TYPE(scope) != class {
            return refused("this method belongs to another class");
        }
        let mut bound = FREE.load(Ordering::Relaxed);
        let is_new = bound.is_null();
        if is_new {
            bound = ffi::PyType_GenericAlloc(BOUND_TYPE.load(Ordering::Acquire), 0).cast();
            if bound.is_null() {
                return ptr::null_mut();
            }
            ptr::write(&mut (*bound).vectorcall, vectorcall);
        } else {
            FREE.store((*bound).scope.cast(), Ordering::Relaxed);
            FREE_COUNT.store(FREE_COUNT.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            ffi::Py_INCREF(bound.cast());
        }
        ffi::Py_INCREF(scope);
        (*bound).body = body;
        (*bound).scope = scope;
        if !is_new {
            ffi::PyObject_GC_Track(bound.cast());
        }
        bound.cast()
    }
}

unsafe extern "C" fn vectorcall(
    bound: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    _count: usize,
    _keyword_names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with an instance of the type, bound since it is referenced.
    unsafe {
        let BoundScopeMethod { body, scope, .. } = &*bound.cast::<BoundScopeMethod>();
        body(*scope)
    }
}

/// For callers that do not use the vectorcall protocol.
unsafe extern "C" fn call(
    bound: *mut ffi::PyObject,
    _arguments: *mut ffi::PyObject,
    _keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter with an instance of the type, bound since it is referenced.
    unsafe { vectorcall(bound, ptr::null(), 0, ptr::null_mut()) }
}

unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    // SAFETY: the collector visits tracked instances: those with a scope, or just allocated and still zero.
    unsafe {
        let scope = (*object.cast::<BoundScopeMethod>()).scope;
        match visit(ffi::Py_TYPE(object).cast(), argument) {
            0 if !scope.is_null() => visit(scope, argument),
            stopped => stopped,
        }
    }
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    ffi_guard((), || {
        // SAFETY: the last reference is gone; the method owned one to its scope. Instances of a heap type own a reference to
        // it, also in the free list, and were allocated by PyType_GenericAlloc with the GC flag. Free ones are untracked.
        unsafe {
            ffi::PyObject_GC_UnTrack(object.cast());
            let bound = object.cast::<BoundScopeMethod>();
            let scope = (*bound).scope;
            let count = FREE_COUNT.load(Ordering::Relaxed);
            if count < MAX_FREE {
                (*bound).scope = FREE.load(Ordering::Relaxed).cast();
                FREE.store(bound, Ordering::Relaxed);
                FREE_COUNT.store(count + 1, Ordering::Relaxed);
            } else {
                let object_type = ffi::Py_TYPE(object);
                ffi::PyObject_GC_Del(object.cast());
                ffi::Py_DECREF(object_type.cast());
            }
            ffi::Py_DECREF(scope);
        }
    });
}
