//! The context variable that holds the context id. Python propagates it with its own contexts, so following async code costs
//! nothing per task switch. Its value is a `ContextValue`; unset or 0 means no context. The runtime reads the same variable in the
//! signal handler. Not here: context rows (`context.rs`).

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;

use super::context_value;
use super::symbols::symbols;

pub use super::context_value::{ContextValue, VariableValue};

static VARIABLE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
static ZERO: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

type Receiver = Box<dyn Fn(Python<'_>, u64) + Send + Sync>;

/// Receives the id after each change; set when the handler cannot read the variable.
static ON_CHANGE: OnceLock<Receiver> = OnceLock::new();

/// Creates the variable; called once when the module is imported.
pub fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let existing = VARIABLE.load(Ordering::Acquire);
    if !existing.is_null() {
        // SAFETY: the reference leaked below keeps `existing` alive.
        return Ok(unsafe { Bound::from_borrowed_ptr(py, existing) });
    }
    context_value::create_type(py)?;
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

/// The `ContextVar` object; `None` before [`create`].
pub fn object(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: null, or the object, which is immortal.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, address()) }
}

/// The value as an object; 0 when unset.
pub fn into_object(value: VariableValue, py: Python<'_>) -> Bound<'_, PyAny> {
    // SAFETY: the immortal zero, which is set at import, before any other function here is called.
    value.as_object(py).unwrap_or_else(|| unsafe { Bound::from_borrowed_ptr(py, zero()) })
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
/// cheaper and leaves no entry in the context. False if the token is of another context.
pub fn reset(token: &VariableValue, previous: &VariableValue) -> bool {
    let (variable, functions) = (address(), &symbols().context_var);
    let Some(functions) = functions.as_ref().filter(|_| !token.0.is_null() && !variable.is_null()) else {
        set(previous);
        return true;
    };
    // SAFETY: both are live objects; a used token, or one of another context, is rejected with an exception.
    if unsafe { (functions.reset)(variable, token.0) } < 0 {
        // SAFETY: requires the GIL only.
        unsafe { ffi::PyErr_Clear() };
        set(previous);
        return false;
    }
    report_change(previous.id());
    true
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
