//! The native replacement of `_thread.lock`: it behaves as the plain lock and reports contended waits. An uncontended acquire
//! or release is one call of the same C functions that the plain lock uses, and reads no clock. Not here: the replacement in
//! Python's module (`locks.py`), waits (`thread_lock`), their samples (`spanprof_profiler::binding::LockWait`).
//!
//! Rule: every function runs with the GIL held, which protects the fields; only a wait releases it. Each field is read again
//! after a wait.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.12 | `threading.Lock` is a function, and its type creates no instances | `new` calls the plain type, which raises |
//! | 3.13 | `threading.Lock` is the type (`Modules/_threadmodule.c`) | `new` |
//!
//! Native, since a class in Python makes each acquire cost 4.6 to 5.3 times as much; this one takes 0.57 to 1.23 times as long as
//! the plain lock. `_thread.allocate_lock` stays, as `Condition.wait` and `Thread.join` wait in its locks: idle time. The waiter
//! walks its stack before it blocks; afterwards the lock would be held for the time of the walk. Unusual arguments go to a plain
//! lock, which raises.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use spanprof_profiler::binding::{lock_waits_are_reported, PendingWaits};

use super::acquire_arguments::{self, AcquireMode};
use super::thread_lock::{exit_raises, MeasuredLock, Patience, WaitOutcome, WEAK_REFERENCES};
use crate::ffi::heap_type::{
    boolean, class_property, fast, fast_keywords, function_like, new_type, none, object_or_raise, row, set_metaclass,
    slot, text_like, weak_references, MethodTable, METH_FASTCALL,
};

#[repr(C)]
struct LockObject {
    measured: MeasuredLock,
    is_locked: bool,
}

static LOCK_TYPE: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(ptr::null_mut());
/// `_thread.lock` and the function that creates its instances; set before the first instance, never released.
static PLAIN_TYPE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
static NEW_PLAIN: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// Whether the plain type does.
static CREATES_INSTANCES: AtomicBool = AtomicBool::new(false);

const ACQUIRE: ffi::PyMethodDefPointer = fast_keywords(acquire);
const RELEASE: ffi::PyMethodDefPointer = ffi::PyMethodDefPointer { PyCFunction: release };
const LOCKED: ffi::PyMethodDefPointer = ffi::PyMethodDefPointer { PyCFunction: locked };
const KEYWORDS: c_int = METH_FASTCALL | ffi::METH_KEYWORDS;

static METHODS: MethodTable<10> = MethodTable([
    row(c"acquire", ACQUIRE, KEYWORDS, c"acquire($self, /, blocking=True, timeout=-1)\n--\n\nAcquire the lock."),
    row(c"acquire_lock", ACQUIRE, KEYWORDS, c"acquire_lock($self, /, blocking=True, timeout=-1)\n--\n\nAs acquire."),
    row(c"release", RELEASE, ffi::METH_NOARGS, c"release($self, /)\n--\n\nRelease the lock."),
    row(c"release_lock", RELEASE, ffi::METH_NOARGS, c"release_lock($self, /)\n--\n\nAs release."),
    row(
        c"locked",
        LOCKED,
        ffi::METH_NOARGS,
        c"locked($self, /)\n--\n\nReturn whether the lock is in the locked state.",
    ),
    row(c"locked_lock", LOCKED, ffi::METH_NOARGS, c"locked_lock($self, /)\n--\n\nAs locked."),
    row(
        c"__enter__",
        ffi::PyMethodDefPointer { PyCFunction: enter },
        ffi::METH_NOARGS,
        c"__enter__($self, /)\n--\n\nAcquire the lock.",
    ),
    row(c"__exit__", fast(exit), METH_FASTCALL, c"__exit__($self, /, *exc_info)\n--\n\nRelease the lock."),
    row(
        c"_at_fork_reinit",
        ffi::PyMethodDefPointer { PyCFunction: reinit_after_fork },
        ffi::METH_NOARGS,
        c"_at_fork_reinit($self, /)\n--\n\nReplace the lock in a forked child.",
    ),
    ffi::PyMethodDef::zeroed(),
]);

/// Creates the type, with the metaclass `metaclass`, and the function that replaces `_thread.allocate_lock`. `plain_type` is
/// `_thread.lock`, `new_plain` creates its instances.
pub(super) fn create<'py>(
    metaclass: &Bound<'py, PyAny>,
    plain_type: &Bound<'py, PyAny>,
    new_plain: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = metaclass.py();
    let mut members = weak_references(WEAK_REFERENCES);
    let mut slots = [
        slot(ffi::Py_tp_methods, METHODS.0.as_ptr() as *mut c_void),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, class_property(class).as_mut_ptr().cast()),
        slot(ffi::Py_tp_new, new as *mut c_void),
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_doc, text_like(plain_type)?.as_ptr() as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    PLAIN_TYPE.store(plain_type.clone().into_ptr(), Ordering::Release);
    NEW_PLAIN.store(new_plain.clone().into_ptr(), Ordering::Release);
    CREATES_INSTANCES.store(plain_type.call0().is_ok(), Ordering::Relaxed);
    let lock_type = new_type(py, c"_thread.lock", size_of::<LockObject>(), 0, &mut slots)?;
    set_metaclass(&lock_type, metaclass);
    LOCK_TYPE.store(lock_type.clone().into_ptr().cast(), Ordering::Release);
    let function = ffi::PyMethodDefPointer { PyCFunction: allocate };
    let allocate = function_like(new_plain, function, ffi::METH_NOARGS)?;
    Ok((lock_type, allocate))
}

/// Calls `change` with the waits that `lock` keeps until its release; false if it is not a lock of this type.
pub(super) fn with_pending_waits(lock: &Bound<'_, PyAny>, change: impl FnOnce(&mut PendingWaits)) -> bool {
    let is_native = lock.get_type_ptr() == LOCK_TYPE.load(Ordering::Acquire);
    if is_native {
        // SAFETY: an instance of the type; the GIL is held, and `change` runs no Python code.
        change(unsafe { &mut (*lock.as_ptr().cast::<LockObject>()).measured.waits });
    }
    is_native
}

/// `threading.Lock()` up to 3.12. A plain lock while waits are not reported: the program kept the function.
unsafe extern "C" fn allocate(_module: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the GIL is held; the function was set before this one was created.
    unsafe {
        if lock_waits_are_reported() {
            MeasuredLock::new_instance(LOCK_TYPE.load(Ordering::Acquire))
        } else {
            ffi::PyObject_CallObject(NEW_PLAIN.load(Ordering::Acquire), ptr::null_mut())
        }
    }
}

/// `threading.Lock()` from 3.13 on. The plain type checks the arguments.
unsafe extern "C" fn new(
    _type: *mut ffi::PyTypeObject,
    arguments: *mut ffi::PyObject,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the arguments are those that the interpreter passed; the plain type is set and immortal.
    unsafe {
        // Only the plain type of 3.13 and later creates instances.
        let is_usual =
            CREATES_INSTANCES.load(Ordering::Relaxed) && keywords.is_null() && ffi::PyTuple_Size(arguments) == 0;
        if !is_usual || !lock_waits_are_reported() {
            let plain = ffi::PyObject_Call(PLAIN_TYPE.load(Ordering::Acquire), arguments, keywords);
            if plain.is_null() || !lock_waits_are_reported() {
                return plain;
            }
            ffi::Py_DECREF(plain);
        }
        MeasuredLock::new_instance(LOCK_TYPE.load(Ordering::Acquire))
    }
}

/// `__class__`: that of the plain lock, for `isinstance` with the plain type.
unsafe extern "C" fn class(_object: *mut ffi::PyObject, _unused: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: set before the first instance, and immortal.
    unsafe {
        let plain = PLAIN_TYPE.load(Ordering::Acquire);
        ffi::Py_INCREF(plain);
        plain
    }
}

unsafe extern "C" fn enter(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        if try_acquire(object) {
            return boolean(true);
        }
        acquire_contended(object, Patience::Forever)
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
        let new_plain = NEW_PLAIN.load(Ordering::Acquire);
        let Ok(mode) = acquire_arguments::mode(new_plain, arguments, positional, keyword_names) else {
            return ptr::null_mut();
        };
        match mode {
            _ if try_acquire(object) => boolean(true),
            AcquireMode::Try => boolean(false),
            AcquireMode::Wait(patience) => acquire_contended(object, patience),
        }
    }
}

/// # Safety
/// `object` is an instance of the type; the GIL is held.
#[inline(always)]
unsafe fn try_acquire(object: *mut ffi::PyObject) -> bool {
    // SAFETY: caller's contract; an instance has a lock.
    unsafe {
        let this = object.cast::<LockObject>();
        let is_acquired = (*this).measured.lock.try_acquire();
        if is_acquired {
            (*this).is_locked = true;
        }
        is_acquired
    }
}

/// # Safety
/// As for [`try_acquire`].
#[cold]
unsafe fn acquire_contended(object: *mut ffi::PyObject, patience: Patience) -> *mut ffi::PyObject {
    // SAFETY: caller's contract; the caller of the method holds a reference to the object while it waits.
    unsafe {
        let this = object.cast::<LockObject>();
        let outcome = MeasuredLock::wait(object.cast(), patience);
        if outcome == WaitOutcome::Acquired {
            (*this).is_locked = true;
        }
        outcome.result()
    }
}

unsafe extern "C" fn release(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it. The lock is acquired, since `is_locked` is set only then.
    unsafe {
        let this = object.cast::<LockObject>();
        if !(*this).is_locked {
            return object_or_raise(|_| Err(PyRuntimeError::new_err("release unlocked lock")));
        }
        (*this).is_locked = false;
        MeasuredLock::release(object.cast());
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
    boolean(unsafe { (*object.cast::<LockObject>()).is_locked })
}

unsafe extern "C" fn reinit_after_fork(object: *mut ffi::PyObject, _unused: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a method of the type receives an instance of it.
    unsafe {
        let result = MeasuredLock::replace_after_fork(object.cast());
        if !result.is_null() {
            (*object.cast::<LockObject>()).is_locked = false;
        }
        result
    }
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    object_or_raise(|py| {
        // SAFETY: called with an instance of the type.
        let state = if unsafe { (*object.cast::<LockObject>()).is_locked } { "locked" } else { "unlocked" };
        Ok(PyString::new(py, &format!("<{state} _thread.lock object at {object:p}>")).into_any().into_ptr())
    })
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone; the object was allocated by PyType_GenericAlloc without the GC flag.
    unsafe {
        let is_locked = (*object.cast::<LockObject>()).is_locked;
        MeasuredLock::dealloc(object, is_locked, |_| ffi::PyObject_Free(object.cast()));
    }
}
