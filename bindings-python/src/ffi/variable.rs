//! The context variable that holds the context id. Python propagates it with its own contexts, so following async code costs
//! nothing per task switch. Its value is a plain `int`; 0 or unset means no context. The runtime reads the same variable in the
//! signal handler. Not here: context rows (`context.rs`).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use super::symbols::symbols;

static VARIABLE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
static ZERO: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

type Receiver = Box<dyn Fn(Python<'_>, u64) + Send + Sync>;

/// Receives the id after each change; set when the handler cannot read the variable.
static ON_CHANGE: OnceLock<Receiver> = OnceLock::new();

/// An owned reference to a value of the variable; null means "unset".
///
/// Cloning and dropping change the reference count: both require the GIL, which every caller in `ffi` holds.
pub struct VariableValue(*mut ffi::PyObject);

impl VariableValue {
    pub const UNSET: Self = Self(ptr::null_mut());

    /// A new `int` object with the value `id`; `UNSET` when Python is out of memory.
    pub fn new(id: u64) -> Self {
        // SAFETY: requires the GIL only; null means an exception is set, which is cleared.
        unsafe {
            let object = ffi::PyLong_FromUnsignedLongLong(id);
            if object.is_null() {
                ffi::PyErr_Clear();
            }
            Self(object)
        }
    }

    /// The value of an `int` object.
    pub fn of(object: &Bound<'_, PyAny>) -> Self {
        Self(object.clone().into_ptr())
    }

    /// The `int` object; 0 when unset.
    pub fn into_object(self, py: Python<'_>) -> Bound<'_, PyAny> {
        let object = if self.0.is_null() { zero() } else { self.0 };
        // SAFETY: an owned reference or the immortal zero, cloned before `self` releases its own; zero is set at import, before
        // any other function here is called.
        unsafe { Bound::from_borrowed_ptr(py, object) }
    }

    /// The context id; 0 when unset or not an `int` below 2^64.
    pub fn id(&self) -> u64 {
        if self.0.is_null() {
            return 0;
        }
        // SAFETY: `self.0` is an owned reference to a live object; a failed conversion sets an exception, cleared here.
        unsafe {
            let id = ffi::PyLong_AsUnsignedLongLong(self.0);
            if id == u64::MAX {
                ffi::PyErr_Clear();
                return 0;
            }
            id
        }
    }

    /// Visits the object for the garbage collector.
    ///
    /// # Safety
    /// `visit` and `argument` come from the interpreter's `tp_traverse`.
    pub unsafe fn traverse(&self, visit: ffi::visitproc, argument: *mut c_void) -> c_int {
        if self.0.is_null() {
            return 0;
        }
        // SAFETY: caller's contract; an owned reference.
        unsafe { visit(self.0, argument) }
    }

    /// Whether both are the same object (or both unset).
    pub fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

// SAFETY: the pointer is only used while the GIL is held (type's contract), by any thread.
unsafe impl Send for VariableValue {}
// SAFETY: the pointer is only used while the GIL is held (type's contract), which orders all accesses.
unsafe impl Sync for VariableValue {}

impl Default for VariableValue {
    fn default() -> Self {
        Self::UNSET
    }
}

impl Clone for VariableValue {
    fn clone(&self) -> Self {
        // SAFETY: owned reference or null; the GIL is held (type's contract).
        unsafe { ffi::Py_XINCREF(self.0) };
        Self(self.0)
    }
}

impl Drop for VariableValue {
    fn drop(&mut self) {
        // SAFETY: owned reference or null; the GIL is held (type's contract).
        unsafe { ffi::Py_XDECREF(self.0) };
    }
}

/// Creates the variable; called once when the module is imported.
pub fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let existing = VARIABLE.load(Ordering::Acquire);
    if !existing.is_null() {
        // SAFETY: the reference leaked below keeps `existing` alive.
        return Ok(unsafe { Bound::from_borrowed_ptr(py, existing) });
    }
    let variable = py.import("contextvars")?.getattr("ContextVar")?.call1(("spanprof.context",))?;
    let zero = 0u64.into_pyobject(py)?;
    ZERO.store(zero.into_any().into_ptr(), Ordering::Release);
    VARIABLE.store(variable.clone().into_ptr(), Ordering::Release);
    Ok(variable)
}

/// The `ContextVar` object, null before [`create`]; immortal afterwards.
pub fn address() -> *mut ffi::PyObject {
    VARIABLE.load(Ordering::Acquire)
}

/// The value in the current context of this thread.
pub fn get() -> VariableValue {
    let variable = address();
    if variable.is_null() {
        return VariableValue::UNSET;
    }
    if let Some(functions) = &symbols().context_var {
        let mut value = ptr::null_mut();
        // SAFETY: `variable` is a live ContextVar, the out pointer is a local. With a null default, an unset variable yields
        // null without an exception, a set one a new reference.
        unsafe {
            if (functions.get)(variable, ptr::null_mut(), &mut value) < 0 {
                ffi::PyErr_Clear();
                return VariableValue::UNSET;
            }
        }
        return VariableValue(value);
    }
    call_method(variable, c"get", zero()).unwrap_or(VariableValue::UNSET)
}

/// Sets the value in the current context of this thread. `UNSET` is written as 0, since only [`reset`] removes the entry from a
/// context.
pub fn set(value: &VariableValue) {
    drop(set_with_token(value));
}

/// As [`set`]; returns the token for [`reset`], or `UNSET` where none is available.
///
/// A token keeps its context alive, which may in turn reference the token's owner. Only garbage-collected owners may keep one.
pub fn set_with_token(value: &VariableValue) -> VariableValue {
    let variable = address();
    let object = if value.0.is_null() { zero() } else { value.0 };
    if variable.is_null() || object.is_null() {
        return VariableValue::UNSET;
    }
    report_change(value.id());
    if let Some(functions) = &symbols().context_var {
        // SAFETY: both are live objects; the returned token is a new reference, null comes with an exception.
        unsafe {
            let token = (functions.set)(variable, object);
            if token.is_null() {
                ffi::PyErr_Clear();
            }
            return VariableValue(token);
        }
    }
    drop(call_method(variable, c"set", object));
    VariableValue::UNSET
}

/// Restores `previous`, the value before [`set_with_token`] returned `token`. A token of this context is preferred: it is
/// cheaper and leaves no entry in the context.
pub fn reset(token: &VariableValue, previous: &VariableValue) {
    let (variable, functions) = (address(), &symbols().context_var);
    let Some(functions) = functions.as_ref().filter(|_| !token.0.is_null() && !variable.is_null()) else {
        return set(previous);
    };
    // SAFETY: both are live objects; a used token, or one of another context, is rejected with an exception.
    if unsafe { (functions.reset)(variable, token.0) } < 0 {
        // SAFETY: requires the GIL only.
        unsafe { ffi::PyErr_Clear() };
        return set(previous);
    }
    report_change(previous.id());
}

/// Passes the id after each change of the variable to `write`, the first one of this process.
pub fn on_change(write: impl Fn(Python<'_>, u64) + Send + Sync + 'static) {
    let _ = ON_CHANGE.set(Box::new(write));
}

/// Reports a change to the receiver, if any. Inside an event loop the tasks of a thread would share its entry, so 0 is written: a
/// missing label is better than a wrong one.
fn report_change(id: u64) {
    let Some(write) = ON_CHANGE.get() else { return };
    // SAFETY: every caller holds the GIL (module's rule).
    let py = unsafe { Python::assume_attached() };
    let in_event_loop = py
        .import("sys")
        .and_then(|sys| sys.getattr("modules")?.call_method1("get", ("asyncio",)))
        .and_then(|asyncio| if asyncio.is_none() { Ok(asyncio) } else { asyncio.call_method0("_get_running_loop") })
        .map_or(true, |running| !running.is_none());
    write(py, if in_event_loop { 0 } else { id });
}

fn zero() -> *mut ffi::PyObject {
    ZERO.load(Ordering::Acquire)
}

/// The slow path, for an interpreter that does not export the C function.
fn call_method(
    variable: *mut ffi::PyObject,
    name: &std::ffi::CStr,
    argument: *mut ffi::PyObject,
) -> Option<VariableValue> {
    // SAFETY: `variable` and `argument` are live objects (argument list ends with null); results are new references or
    // null with an exception set, which is cleared.
    unsafe {
        let method = ffi::PyObject_GetAttrString(variable, name.as_ptr());
        if method.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        let result = ffi::PyObject_CallFunctionObjArgs(method, argument, ptr::null_mut::<ffi::PyObject>());
        ffi::Py_DECREF(method);
        if result.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(VariableValue(result))
    }
}
