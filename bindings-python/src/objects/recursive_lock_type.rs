//! The native replacement of `_thread.RLock`, which can be subclassed: as `lock_type`, with an owner and a count. Not here: the
//! replacement in Python's module (`locks.py`).
//!
//! Rule: as in `lock_type`.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.11 | `_recursion_count` (`Modules/_threadmodule.c`, also in 3.10.x) | `create` omits what the plain type lacks |
//! | 3.14 | `locked`; arguments of the constructor are deprecated | `create`, `new` |

use std::ffi::{c_int, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::exceptions::{PyOverflowError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use spanprof_profiler::binding::lock_waits_are_reported;

use super::acquire_arguments::{self, AcquireMode};
use super::thread_lock::{exit_raises, MeasuredLock, Patience, WaitOutcome, WEAK_REFERENCES};
use crate::ffi::heap_type::{
    boolean, class_property, fast, fast_keywords, new_type, none, object_or_raise, row, set_metaclass, slot,
    weak_references, METH_FASTCALL,
};

#[repr(C)]
struct RecursiveLockObject {
    measured: MeasuredLock,
    /// The thread that holds the lock, if `count` is not 0.
    owner: c_ulong,
    count: c_ulong,
}

static RECURSIVE_LOCK_TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
/// `_thread.RLock`; set before the first instance, never released.
static PLAIN_TYPE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

const KEYWORDS: c_int = METH_FASTCALL | ffi::METH_KEYWORDS;

const fn plain_call(function: ffi::PyCFunction) -> ffi::PyMethodDefPointer {
    ffi::PyMethodDefPointer { PyCFunction: function }
}

/// Creates the type with the metaclass `metaclass`. `plain_type` is `_thread.RLock`.
pub(super) fn create<'py>(
    metaclass: &Bound<'py, PyAny>,
    plain_type: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    const NO: c_int = ffi::METH_NOARGS;
    let rows = [
        row(
            c"acquire",
            fast_keywords(acquire),
            KEYWORDS,
            c"acquire($self, /, blocking=True, timeout=-1)\n--\n\nAcquire the lock.",
        ),
        row(c"release", plain_call(release), NO, c"release($self, /)\n--\n\nRelease the lock."),
        row(c"__enter__", plain_call(enter), NO, c"__enter__($self, /)\n--\n\nAcquire the lock."),
        row(c"__exit__", fast(exit), METH_FASTCALL, c"__exit__($self, /, *exc_info)\n--\n\nRelease the lock."),
        row(c"locked", plain_call(locked), NO, c"locked($self, /)\n--\n\nReturn whether a thread holds the lock."),
        row(c"_is_owned", plain_call(is_owned), NO, c"For internal use by `threading.Condition`."),
        row(c"_recursion_count", plain_call(recursion_count), NO, c"For internal use by reentrancy checks."),
        row(c"_release_save", plain_call(release_save), NO, c"For internal use by `threading.Condition`."),
        row(
            c"_acquire_restore",
            plain_call(acquire_restore),
            ffi::METH_O,
            c"For internal use by `threading.Condition`.",
        ),
        row(c"_at_fork_reinit", plain_call(reinit_after_fork), NO, c"Replace the lock in a forked child."),
    ];
    let py = plain_type.py();
    let mut methods = Vec::new();
    for method in rows {
        // SAFETY: the names are static C strings.
        let name = unsafe { std::ffi::CStr::from_ptr(method.ml_name) };
        if plain_type.hasattr(name.to_string_lossy().as_ref())? {
            methods.push(method);
        }
    }
    methods.push(ffi::PyMethodDef::zeroed());
    let mut members = weak_references(WEAK_REFERENCES);
    let mut slots = [
        slot(ffi::Py_tp_methods, methods.leak().as_mut_ptr().cast()),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, class_property(class).as_mut_ptr().cast()),
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    PLAIN_TYPE.store(plain_type.clone().into_ptr(), Ordering::Release);
    let size = size_of::<RecursiveLockObject>();
    let lock_type = new_type(py, c"_thread.RLock", size, ffi::Py_TPFLAGS_BASETYPE, &mut slots)?;
    set_metaclass(&lock_type, metaclass);
    RECURSIVE_LOCK_TYPE.store(lock_type.clone().into_ptr().cast(), Ordering::Release);
    Ok(lock_type)
}

/// A plain lock while waits are not reported: the program kept the type.
unsafe extern "C" fn new(
    object_type: *mut ffi::PyTypeObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the arguments are those that the interpreter passed; the plain type is set and immortal.
    unsafe {
        if object_type == RECURSIVE_LOCK_TYPE.load(Ordering::Acquire) {
            let has_arguments = ffi::PyTuple_Size(arguments) != 0 || !keywords.is_null();
            if has_arguments || !lock_waits_are_reported() {
                let plain = ffi::PyObject_Call(PLAIN_TYPE.load(Ordering::Acquire), arguments, keywords);
                if plain.is_null() || !lock_waits_are_reported() {
                    return plain;
                }
                ffi::Py_DECREF(plain);
            }
        }
        MeasuredLock::new_instance(object_type)
    }
}

/// `__class__`: that of the plain lock, for `isinstance` with the plain type; a subclass keeps its own.
unsafe extern "C" fn class(object: *mut ffi::PyObject, _unused: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the plain type was set before the first instance, and is immortal; an object's type is alive.
    unsafe {
        let mut class = ffi::Py_TYPE(object).cast::<ffi::PyObject>();
        if class == RECURSIVE_LOCK_TYPE.load(Ordering::Acquire).cast() {
            class = PLAIN_TYPE.load(Ordering::Acquire);
        }
        ffi::Py_INCREF(class);
        class
    }
}

fn current_thread() -> c_ulong {
    // SAFETY: the function has no requirement.
    unsafe { ffi::PyThread_get_thread_ident() }
}

/// Whether the calling thread holds the lock.
///
/// # Safety
/// `object` is an instance of the type; the GIL is held.
#[inline(always)]
unsafe fn is_own(object: *mut ffi::PyObject) -> bool {
    // SAFETY: caller's contract.
    unsafe {
        let this = object.cast::<RecursiveLockObject>();
        (*this).count != 0 && (*this).owner == current_thread()
    }
}

/// Acquires the lock if that needs no wait.
///
/// # Safety
/// As for [`is_own`].
#[inline(always)]
unsafe fn try_acquire(object: *mut ffi::PyObject) -> bool {
    // SAFETY: caller's contract; an instance has a lock.
    unsafe {
        let this = object.cast::<RecursiveLockObject>();
        let is_acquired = (*this).measured.lock.try_acquire();
        if is_acquired {
            (*this).owner = current_thread();
            (*this).count = 1;
        }
        is_acquired
    }
}

/// # Safety
/// As for [`is_own`], and the calling thread holds the lock.
unsafe fn acquire_again(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: caller's contract.
    unsafe {
        let this = object.cast::<RecursiveLockObject>();
        match (*this).count.checked_add(1) {
            Some(count) => (*this).count = count,
            None => return object_or_raise(|_| Err(PyOverflowError::new_err("Internal lock count overflowed"))),
        }
        boolean(true)
    }
}

unsafe extern "C" fn enter(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        if is_own(object) {
            return acquire_again(object);
        }
        if try_acquire(object) {
            return boolean(true);
        }
        acquire_contended(object, Patience::Forever, [1, current_thread()])
    }
}

unsafe extern "C" fn acquire(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it; arguments as the interpreter passes them.
    unsafe {
        let new_plain = PLAIN_TYPE.load(Ordering::Acquire);
        let Ok(mode) = acquire_arguments::mode(new_plain, arguments, positional, keyword_names) else {
            return ptr::null_mut();
        };
        match mode {
            _ if is_own(object) => acquire_again(object),
            _ if try_acquire(object) => boolean(true),
            AcquireMode::Try => boolean(false),
            AcquireMode::Wait(patience) => acquire_contended(object, patience, [1, current_thread()]),
        }
    }
}

/// Waits for the lock and sets count and owner.
///
/// # Safety
/// As for [`is_own`].
#[cold]
unsafe fn acquire_contended(object: *mut ffi::PyObject, patience: Patience, state: [c_ulong; 2]) -> *mut ffi::PyObject {
    // SAFETY: caller's contract; the caller of the method holds a reference to the object while it waits.
    unsafe {
        let this = object.cast::<RecursiveLockObject>();
        let outcome = MeasuredLock::wait(object.cast(), patience);
        if outcome == WaitOutcome::Acquired {
            [(*this).count, (*this).owner] = state;
        }
        outcome.result()
    }
}

/// Releases the lock entirely, then submits the waits it kept.
///
/// # Safety
/// As for [`is_own`], and the lock is acquired.
#[inline(always)]
unsafe fn release_entirely(object: *mut ffi::PyObject) {
    // SAFETY: caller's contract.
    unsafe {
        let this = object.cast::<RecursiveLockObject>();
        (*this).count = 0;
        (*this).owner = 0;
        MeasuredLock::release(object.cast());
    }
}

#[cold]
fn not_acquired() -> *mut ffi::PyObject {
    object_or_raise(|_| Err(PyRuntimeError::new_err("cannot release un-acquired lock")))
}

unsafe extern "C" fn release(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        if !is_own(object) {
            return not_acquired();
        }
        let this = object.cast::<RecursiveLockObject>();
        match (*this).count {
            1 => release_entirely(object),
            count => (*this).count = count - 1,
        }
        none()
    }
}

unsafe extern "C" fn exit(
    object: *mut ffi::PyObject,
    _arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if exit_raises(count) {
        return ptr::null_mut();
    }
    // SAFETY: a method of the type receives an instance of it.
    unsafe { release(object, ptr::null_mut()) }
}

unsafe extern "C" fn locked(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    boolean(unsafe { (*object.cast::<RecursiveLockObject>()).count != 0 })
}

unsafe extern "C" fn is_owned(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    boolean(unsafe { is_own(object) })
}

unsafe extern "C" fn recursion_count(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        let count = if is_own(object) { (*object.cast::<RecursiveLockObject>()).count } else { 0 };
        ffi::PyLong_FromUnsignedLong(count)
    }
}

/// Returns (count, owner).
unsafe extern "C" fn release_save(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    let (count, owner) = unsafe {
        let this = object.cast::<RecursiveLockObject>();
        ((*this).count, (*this).owner)
    };
    if count == 0 {
        return not_acquired();
    }
    let state = object_or_raise(|py| Ok((count, owner).into_pyobject(py)?.into_any().into_ptr()));
    if !state.is_null() {
        // SAFETY: a method of the type receives an instance of it; the count shows that the lock is acquired.
        unsafe { release_entirely(object) };
    }
    state
}

unsafe extern "C" fn acquire_restore(object: *mut ffi::PyObject, argument: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut state = [0; 2];
    let parsed = object_or_raise(|py| {
        // SAFETY: the argument is borrowed for the call; the plain type is set and immortal.
        let (argument, plain_type) = unsafe {
            let plain_type = PLAIN_TYPE.load(Ordering::Acquire);
            (Bound::from_borrowed_ptr(py, argument), Bound::from_borrowed_ptr(py, plain_type))
        };
        if let Ok((count, owner)) = argument.extract::<(c_ulong, c_ulong)>() {
            state = [count, owner];
        } else {
            // Raises what the plain lock raises.
            plain_type.call0()?.getattr("_acquire_restore")?.call1(PyTuple::new(py, [argument])?)?;
        }
        Ok(object)
    });
    if parsed.is_null() {
        return parsed;
    }
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        let this = object.cast::<RecursiveLockObject>();
        let result = if (*this).measured.lock.try_acquire() {
            [(*this).count, (*this).owner] = state;
            boolean(true)
        } else {
            acquire_contended(object, Patience::Uninterruptible, state)
        };
        ffi::Py_DECREF(result);
    }
    none()
}

unsafe extern "C" fn reinit_after_fork(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        let result = MeasuredLock::replace_after_fork(object.cast());
        if !result.is_null() {
            let this = object.cast::<RecursiveLockObject>();
            [(*this).count, (*this).owner] = [0, 0];
        }
        result
    }
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    object_or_raise(|py| {
        // SAFETY: called with an instance of the type.
        let (count, owner, instance) = unsafe {
            let this = object.cast::<RecursiveLockObject>();
            ((*this).count, (*this).owner, Bound::from_borrowed_ptr(py, object))
        };
        let state = if count == 0 { "unlocked" } else { "locked" };
        let name = if instance.get_type_ptr() == RECURSIVE_LOCK_TYPE.load(Ordering::Acquire) {
            "_thread.RLock".to_owned()
        } else {
            instance.get_type().name()?.to_string()
        };
        let text = format!("<{state} {name} object owner={owner} count={count} at {object:p}>");
        Ok(PyString::new(py, &text).into_any().into_ptr())
    })
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone. `tp_free` of the object's own type frees it, since a subclass may add the GC flag.
    unsafe {
        let is_acquired = (*object.cast::<RecursiveLockObject>()).count != 0;
        MeasuredLock::dealloc(object, is_acquired, |object_type| {
            let free = ffi::PyType_GetSlot(object_type, ffi::Py_tp_free);
            std::mem::transmute::<*mut c_void, ffi::freefunc>(free)(object.cast());
        });
    }
}
