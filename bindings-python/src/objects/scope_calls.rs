//! C entry points of `tag_wrapper` and of the scope type: construction, `with`, `async with`, decoration, deallocation. Each
//! catches panics with `ffi_guard`. Called by the interpreter only.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_profiler::binding::ffi_guard;

use super::scope::{self, ScopeState};
use super::scope_method;
use crate::convert::{self, PreparedLabels};
use crate::ffi::heap_type::{fast, fast_keywords, new_type, row, slot, MethodTable, METH_FASTCALL};
use crate::ffi::variable;
use crate::threads;

#[repr(C)]
struct ScopeObject {
    head: ffi::PyObject,
    scope: ScopeState,
}

static SCOPE_TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
/// The awaitable that `__aenter__` and `__aexit__` return; it completes immediately.
static DONE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
/// Wraps a function in a scope; `spanprof.decorate.decorate`, set when the package is imported.
static DECORATE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

static SCOPE_METHODS: MethodTable<5> = MethodTable([
    row(c"__enter__", ffi::PyMethodDefPointer { PyCFunction: enter }, ffi::METH_NOARGS, c"Attach the labels."),
    row(c"__exit__", fast(exit), METH_FASTCALL, c"Remove the labels."),
    row(c"__aenter__", ffi::PyMethodDefPointer { PyCFunction: async_enter }, ffi::METH_NOARGS, c"Attach the labels."),
    row(c"__aexit__", fast(async_exit), METH_FASTCALL, c"Remove the labels."),
    ffi::PyMethodDef::zeroed(),
]);

static TAG_WRAPPER: MethodTable<2> = MethodTable([
    row(
        c"tag_wrapper",
        fast_keywords(tag_wrapper),
        METH_FASTCALL | ffi::METH_KEYWORDS,
        c"tag_wrapper(labels=None, /, *more, **keyword_labels)\n--\n\n\
          Sets labels for a scope. Use it in `with`, in `async with`, or as a decorator of a function, a coroutine function or \
          a generator function. Labels are a mapping or prepared `Labels`, keywords, or both. \
          Scopes nest: inner labels override outer ones of the same name. \
          `trace_id` and `span_id` with hex values become the span link of the samples.",
    ),
    ffi::PyMethodDef::zeroed(),
]);

/// Creates the types and adds `tag_wrapper` to the module; called once per import.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let mut scope_slots = [
        slot(ffi::Py_tp_methods, SCOPE_METHODS.0.as_ptr() as *mut c_void),
        slot(ffi::Py_tp_call, call as *mut c_void),
        slot(ffi::Py_tp_new, refuse_new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse as *mut c_void),
        slot(ffi::Py_tp_clear, clear as *mut c_void),
        slot(ffi::Py_tp_doc, c"An open or closed scope of labels; created by tag_wrapper().".as_ptr() as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let scope_type =
        new_type(py, c"spanprof._spanprof.Scope", size_of::<ScopeObject>(), ffi::Py_TPFLAGS_HAVE_GC, &mut scope_slots)?;
    let mut done_slots = [
        slot(ffi::Py_am_await, ffi::PyObject_SelfIter as *mut c_void),
        slot(ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut c_void),
        slot(ffi::Py_tp_iternext, done_next as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let done_type = new_type(py, c"spanprof._spanprof.Done", size_of::<ffi::PyObject>(), 0, &mut done_slots)?;
    let done = done_type.call0()?;
    scope_method::install(&scope_type, "__enter__", enter_scope)?;
    scope_method::install(&scope_type, "__exit__", exit_scope)?;
    module.add("Scope", &scope_type)?;
    SCOPE_TYPE.store(scope_type.into_ptr().cast(), Ordering::Release);
    DONE.store(done.into_ptr(), Ordering::Release);
    let module_name = module.name()?;
    // SAFETY: the method table is static; the result is a new reference or null with an exception set.
    let function = unsafe {
        let definition = TAG_WRAPPER.0.as_ptr() as *mut ffi::PyMethodDef;
        Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(definition, ptr::null_mut(), module_name.as_ptr()))?
    };
    module.add("tag_wrapper", function)
}

/// Sets the function that a scope calls when used as a decorator.
pub fn set_decorate(decorate: Bound<'_, PyAny>) {
    let old = DECORATE.swap(decorate.into_ptr(), Ordering::AcqRel);
    // SAFETY: null or the reference leaked by the previous call; `decorate` proves that the GIL is held.
    unsafe { ffi::Py_XDECREF(old) };
}

/// The Rust state of a scope object.
///
/// # Safety
/// `object` is an instance of the scope type, and the borrow is exclusive: the GIL is held, and no Python code runs until the borrow
/// ends, not even a collection of garbage.
unsafe fn scope_of<'a>(object: *mut ffi::PyObject) -> &'a mut ScopeState {
    // SAFETY: caller's contract; only `tag_wrapper` creates instances, and it initializes the scope.
    unsafe { &mut (*object.cast::<ScopeObject>()).scope }
}

fn none() -> *mut ffi::PyObject {
    // SAFETY: None lives as long as the interpreter; the caller of a C function owns the result.
    unsafe { owned(ffi::Py_None()) }
}

fn done() -> *mut ffi::PyObject {
    // SAFETY: DONE was set before any scope object could exist, and is never released.
    unsafe { owned(DONE.load(Ordering::Acquire)) }
}

/// One more reference to `object`.
///
/// # Safety
/// The GIL is held and `object` is alive.
unsafe fn owned(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: caller's contract.
    unsafe { ffi::Py_INCREF(object) };
    object
}

unsafe extern "C" fn tag_wrapper(
    _module: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        let prepared = if positional == 1 && keyword_names.is_null() {
            // SAFETY: the GIL is held by the calling interpreter; there is one argument, borrowed for the call.
            let labels = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), *arguments) };
            convert::prepared_labels(&labels)
        } else {
            // SAFETY: the arguments are those of this vectorcall.
            unsafe { labels_of_call(arguments, positional, keyword_names) }
        };
        let scope_type = SCOPE_TYPE.load(Ordering::Acquire);
        // SAFETY: the type is immortal; the new instance is initialized before it is returned.
        unsafe {
            let object = ffi::PyType_GenericAlloc(scope_type, 0);
            if !object.is_null() {
                ptr::write(&mut (*object.cast::<ScopeObject>()).scope, ScopeState::new(prepared));
            }
            object
        }
    })
}

/// The labels of a call with keywords.
///
/// # Safety
/// The arguments of a vectorcall.
#[cold]
unsafe fn labels_of_call(
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> PreparedLabels {
    // SAFETY: the vectorcall convention gives `positional` values, then one per keyword name, borrowed for the call.
    let (py, values, names) = unsafe {
        let py = Python::assume_attached();
        let names = Bound::from_borrowed_ptr_or_opt(py, keyword_names);
        let names: Vec<_> = names.and_then(|names| names.try_iter().ok()).into_iter().flatten().flatten().collect();
        let count = positional as usize + names.len();
        let values = (0..count).map(|index| Bound::from_borrowed_ptr(py, *arguments.add(index))).collect::<Vec<_>>();
        (py, values, names)
    };
    let (positional_values, keyword_values) = values.split_at((positional as usize).min(values.len()));
    let keywords: Vec<_> = names.into_iter().zip(keyword_values.iter().cloned()).collect();
    convert::labels_of_arguments(py, positional_values, &keywords)
}

unsafe extern "C" fn enter_scope(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    ffi_guard((), || {
        threads::register_new_thread();
        let previous = variable::get();
        // SAFETY: a method of the scope type receives an instance of it; values are not collected, so none runs Python code.
        let written = unsafe { scope_of(object) }.value_over(previous);
        // May collect garbage, whose finalizers may end scopes of this object.
        let token = variable::set_with_token(&written);
        // SAFETY: as above.
        unsafe { scope_of(object) }.opened(written, token);
    });
    none()
}

unsafe extern "C" fn exit_scope(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    ffi_guard((), || {
        let current = variable::get();
        // SAFETY: a method of the scope type receives an instance of it; references are dropped after the borrow.
        let ended = unsafe { scope_of(object) }.take(&current);
        if let Some(ended) = ended {
            // SAFETY: called by the interpreter with the GIL held.
            scope::end(unsafe { Python::assume_attached() }, ended, &current);
        }
    });
    none()
}

unsafe extern "C" fn enter(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the scope type receives an instance of it.
    unsafe { enter_scope(object) }
}

unsafe extern "C" fn exit(
    object: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a method of the scope type receives an instance of it.
    unsafe { exit_scope(object) }
}

unsafe extern "C" fn async_enter(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the scope type receives an instance of it.
    unsafe { ffi::Py_DECREF(enter_scope(object)) };
    done()
}

unsafe extern "C" fn async_exit(
    object: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    _count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a method of the scope type receives an instance of it.
    unsafe { ffi::Py_DECREF(exit_scope(object)) };
    done()
}

/// `iternext` of the done awaitable: null without an exception means StopIteration, hence `await` gives None.
unsafe extern "C" fn done_next(_object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    ptr::null_mut()
}

/// A scope as a decorator: `decorate(scope, *args, **kwargs)`.
unsafe extern "C" fn call(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        // SAFETY: the GIL is held by the calling interpreter; all three are borrowed for the call.
        let (py, scope, arguments) = unsafe {
            let py = Python::assume_attached();
            (py, Bound::from_borrowed_ptr(py, object), Bound::from_borrowed_ptr(py, arguments))
        };
        let decorate = DECORATE.load(Ordering::Acquire);
        let result = (|| -> PyResult<Bound<'_, PyAny>> {
            if decorate.is_null() {
                return Err(PyTypeError::new_err("import spanprof before decorating with tag_wrapper"));
            }
            if !keywords.is_null() || arguments.len()? != 1 {
                return Err(PyTypeError::new_err("a tag_wrapper scope decorates exactly one function"));
            }
            // SAFETY: DECORATE holds a reference of its own.
            let decorate = unsafe { Bound::from_borrowed_ptr(py, decorate) };
            decorate.call1((scope, arguments.get_item(0)?))
        })();
        match result {
            Ok(decorated) => decorated.into_ptr(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    })
}

unsafe extern "C" fn refuse_new(
    _type: *mut ffi::PyTypeObject,
    _arguments: *mut ffi::PyObject,
    _keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        // SAFETY: the GIL is held by the calling interpreter.
        let py = unsafe { Python::assume_attached() };
        PyTypeError::new_err("scopes are created by spanprof.tag_wrapper(labels)").restore(py);
        ptr::null_mut()
    })
}

unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
    ffi_guard(0, || {
        // SAFETY: the collector visits tracked instances, whose scope was initialized before a collection could start; a visit
        // changes nothing. Instances of a heap type own a reference to it.
        unsafe {
            match visit(ffi::Py_TYPE(object).cast(), argument) {
                0 => (*object.cast::<ScopeObject>()).scope.traverse(visit, argument),
                stopped => stopped,
            }
        }
    })
}

unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: an instance of the type; dropping a token may free a `Context`, but the scope has released the token before any
    // of our methods runs.
    ffi_guard((), || drop(unsafe { scope_of(object) }.clear()));
    0
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone, so neither other code nor, once untracked, the collector reads the scope. Instances
    // of a heap type own a reference to it and were allocated by PyType_GenericAlloc with the GC flag.
    unsafe {
        let object_type = ffi::Py_TYPE(object);
        ffi::PyObject_GC_UnTrack(object.cast());
        ffi_guard((), || ptr::drop_in_place(&mut (*object.cast::<ScopeObject>()).scope));
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(object_type.cast());
    }
}
