//! The lock of CPython's C API (`PyThread_*`, in the limited API of every version), on which the native lock types are built as
//! the interpreter's own are, and what both types share: instances, a contended wait, and the release that submits it. Not
//! here: the types (`lock_type`, `recursive_lock_type`) and the measurement (`events::lock_waits`).
//!
//! Rule: every function runs with the GIL held; the GIL is released only while a thread waits.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.13 | a daemon thread that waits for the GIL during finalization ends by `pthread_exit`, which would unwind Rust frames | PyO3's `PyEval_RestoreThread` stops the thread instead |
//! | 3.14 | the interpreter stops such threads (`Python/ceval_gil.c`) | |
//! | 3.15 | `__exit__` takes exactly three arguments (`Modules/_threadmodule.c`) | `exit_raises` |

use std::ffi::{c_int, c_longlong, c_void};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::{ffi, Python};
use spanprof_profiler::binding::PendingWaits;

use crate::ffi::heap_type::{boolean, none, object_or_raise};
use crate::runtime::events::lock_waits::begin_lock_wait;

/// `PY_LOCK_ACQUIRED` and `PY_LOCK_INTR` of `PyLockStatus` (`Include/pythread.h`, 3.9 to 3.15).
const ACQUIRED: c_int = 1;
const INTERRUPTED: c_int = 2;

extern "C" {
    fn PyThread_allocate_lock() -> *mut c_void;
    fn PyThread_free_lock(lock: *mut c_void);
    fn PyThread_acquire_lock(lock: *mut c_void, wait: c_int) -> c_int;
    fn PyThread_acquire_lock_timed(lock: *mut c_void, microseconds: c_longlong, is_interruptible: c_int) -> c_int;
    fn PyThread_release_lock(lock: *mut c_void);
}

/// Raises where `__exit__` has another number of arguments than this Python accepts; whether it raised.
pub(super) fn exit_raises(count: ffi::Py_ssize_t) -> bool {
    /// Of a `with` statement.
    const ARGUMENTS: ffi::Py_ssize_t = 3;
    if count == ARGUMENTS {
        return false;
    }
    // SAFETY: methods are called with the GIL held.
    let py = unsafe { Python::assume_attached() };
    let is_refused = py.version_info() >= (3, 15);
    if is_refused {
        PyTypeError::new_err(format!("__exit__ expected {ARGUMENTS} arguments, got {count}")).restore(py);
    }
    is_refused
}

/// How long a thread waits at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until it has the lock. Signal handlers do not run meanwhile.
    Uninterruptible,
    /// Until it has the lock or a signal handler raises.
    Forever,
    /// At most so many microseconds; not negative.
    Microseconds(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    Acquired,
    TimedOut,
    /// A signal handler raised; the exception is set.
    Raised,
}

impl WaitOutcome {
    /// The result of `acquire`.
    pub fn result(self) -> *mut ffi::PyObject {
        match self {
            Self::Acquired => boolean(true),
            Self::TimedOut => boolean(false),
            Self::Raised => std::ptr::null_mut(),
        }
    }
}

/// A lock; null in zeroed memory. Its owner frees it once.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct ThreadLock(*mut c_void);

impl ThreadLock {
    /// A new lock, not acquired; `None` when memory is exhausted.
    pub fn new() -> Option<Self> {
        // SAFETY: the function has no requirement.
        let lock = unsafe { PyThread_allocate_lock() };
        (!lock.is_null()).then_some(Self(lock))
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// # Safety
    /// The lock is not null, not freed, not acquired and not used again.
    pub unsafe fn free(self) {
        // SAFETY: caller's contract.
        unsafe { PyThread_free_lock(self.0) }
    }

    /// Acquires the lock if that needs no wait.
    ///
    /// # Safety
    /// The lock is neither null nor freed.
    #[inline(always)]
    pub unsafe fn try_acquire(self) -> bool {
        // SAFETY: caller's contract.
        unsafe { PyThread_acquire_lock(self.0, 0) == ACQUIRED }
    }

    /// Waits for the lock as `acquire_timed` of `Modules/_threadmodule.c` does. The second value is the end of the wait,
    /// monotonic nanoseconds; the wait for the GIL is not part of it.
    ///
    /// # Safety
    /// The lock is neither null nor freed, and stays so while the GIL is released. The GIL is held.
    pub unsafe fn wait(self, patience: Patience) -> (WaitOutcome, u64) {
        let limit_us = match patience {
            Patience::Microseconds(limit) => limit,
            Patience::Forever | Patience::Uninterruptible => -1,
        };
        let is_interruptible = c_int::from(patience != Patience::Uninterruptible);
        let started_ns = spanprof_os::monotonic_ns();
        let mut remaining_us = limit_us;
        loop {
            // SAFETY: caller's contract; the thread state is restored by the thread that released it.
            let (status, ended_ns) = unsafe {
                let state = ffi::PyEval_SaveThread();
                let status = PyThread_acquire_lock_timed(self.0, remaining_us, is_interruptible);
                let ended_ns = spanprof_os::monotonic_ns();
                ffi::PyEval_RestoreThread(state);
                (status, ended_ns)
            };
            match status {
                ACQUIRED => return (WaitOutcome::Acquired, ended_ns),
                INTERRUPTED => {
                    // SAFETY: the GIL is held.
                    if unsafe { ffi::Py_MakePendingCalls() } < 0 {
                        return (WaitOutcome::Raised, ended_ns);
                    }
                    if limit_us >= 0 {
                        let waited_us = spanprof_os::monotonic_ns().saturating_sub(started_ns) / 1000;
                        remaining_us = limit_us.saturating_sub(waited_us as i64);
                        if remaining_us < 0 {
                            return (WaitOutcome::TimedOut, ended_ns);
                        }
                    }
                }
                _ => return (WaitOutcome::TimedOut, ended_ns),
            }
        }
    }

    /// # Safety
    /// The lock is neither null nor freed, and is acquired.
    #[inline(always)]
    pub unsafe fn release(self) {
        // SAFETY: caller's contract.
        unsafe { PyThread_release_lock(self.0) }
    }
}

/// What the instances of both types begin with.
#[repr(C)]
pub(super) struct MeasuredLock {
    head: ffi::PyObject,
    pub lock: ThreadLock,
    /// Kept until the release.
    pub waits: PendingWaits,
    weak_references: *mut ffi::PyObject,
}

/// Place of the list of weak references, for the members of the types.
pub(super) const WEAK_REFERENCES: usize = std::mem::offset_of!(MeasuredLock, weak_references);

impl MeasuredLock {
    /// A new instance of `object_type`, whose other fields are zero; null with MemoryError set when memory is exhausted.
    ///
    /// # Safety
    /// Instances of the type begin with a lock of this type. The GIL is held.
    pub unsafe fn new_instance(object_type: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
        // SAFETY: caller's contract; zero is a valid value of the other fields.
        unsafe {
            let Some(lock) = ThreadLock::new() else { return ffi::PyErr_NoMemory() };
            let object = ffi::PyType_GenericAlloc(object_type, 0);
            if object.is_null() {
                lock.free();
            } else {
                (*object.cast::<Self>()).lock = lock;
            }
            object
        }
    }

    /// Waits for the lock; the wait is submitted after the release, or now if the lock was not acquired.
    ///
    /// # Safety
    /// `this` is the beginning of a live object, which stays alive; its lock is not null. The GIL is held. Other threads change
    /// the fields while the GIL is released, so there is no reference to them.
    #[cold]
    pub unsafe fn wait(this: *mut Self, patience: Patience) -> WaitOutcome {
        let wait = begin_lock_wait(0);
        // SAFETY: caller's contract.
        let (outcome, ended_ns) = unsafe { (*this).lock.wait(patience) };
        if let Some(wait) = wait.and_then(|wait| wait.end(ended_ns)) {
            match outcome {
                // SAFETY: caller's contract.
                WaitOutcome::Acquired => unsafe { (*this).waits.push(wait) },
                WaitOutcome::TimedOut | WaitOutcome::Raised => {
                    let mut waits = PendingWaits::default();
                    waits.push(wait);
                    waits.submit(this as u64);
                }
            }
        }
        outcome
    }

    /// Releases the lock, then submits the waits it kept.
    ///
    /// # Safety
    /// As for [`Self::wait`], and the lock is acquired. The fields of the object already show it as released.
    #[inline(always)]
    pub unsafe fn release(this: *mut Self) {
        // SAFETY: caller's contract.
        let waits = unsafe {
            let waits = std::mem::take(&mut (*this).waits);
            (*this).lock.release();
            waits
        };
        if !waits.is_empty() {
            waits.submit(this as u64);
        }
    }

    /// A new lock in a forked child, without waits; RuntimeError when memory is exhausted. As the plain lock does: the old lock may
    /// be held by a thread of the parent, so it is not freed.
    ///
    /// # Safety
    /// As for [`Self::wait`].
    pub unsafe fn replace_after_fork(this: *mut Self) -> *mut ffi::PyObject {
        let Some(lock) = ThreadLock::new() else {
            return object_or_raise(|_| Err(PyRuntimeError::new_err("failed to reinitialize lock at fork")));
        };
        // SAFETY: caller's contract.
        unsafe {
            (*this).lock = lock;
            drop(std::mem::take(&mut (*this).waits));
        }
        none()
    }

    /// Frees the lock of an object without references, then the object by `free`, and submits the waits that it kept.
    ///
    /// # Safety
    /// `object` is an instance of a heap type, without references; `free` frees its memory. The GIL is held.
    pub unsafe fn dealloc(object: *mut ffi::PyObject, is_acquired: bool, free: impl FnOnce(*mut ffi::PyTypeObject)) {
        // SAFETY: caller's contract; instances of a heap type own a reference to it.
        unsafe {
            let this = object.cast::<Self>();
            let object_type = ffi::Py_TYPE(object);
            if !(*this).weak_references.is_null() {
                ffi::PyObject_ClearWeakRefs(object);
            }
            let waits = std::mem::take(&mut (*this).waits);
            if !(*this).lock.is_null() {
                if is_acquired {
                    (*this).lock.release();
                }
                (*this).lock.free();
            }
            free(object_type);
            ffi::Py_DECREF(object_type.cast());
            if !waits.is_empty() {
                waits.submit(object as u64);
            }
        }
    }
}
