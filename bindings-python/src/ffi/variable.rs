//! The one context variable that carries a context id along with Python's own contexts, so that following async code
//! costs nothing per switch. Its value is a plain `int`; 0 or unset means no context. Not here: what an id means
//! ([`crate::context`]). The frame walk of the runtime reads the same variable from inside the handler.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3::ffi;
use pyo3::prelude::*;

use super::symbols::symbols;
use crate::runtime::{ContextSource, PythonRuntime};

static VARIABLE: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());
static ZERO: AtomicPtr<ffi::PyObject> = AtomicPtr::new(ptr::null_mut());

/// Set when the handler cannot read the variable: each change is then told to the runtime.
static TOLD: OnceLock<Arc<PythonRuntime>> = OnceLock::new();

/// An owned reference to the variable's value in some context; null stands for "unset".
///
/// Cloning and dropping count references: both need the GIL, which every caller in `ffi` holds.
pub struct Value(*mut ffi::PyObject);

impl Value {
    /// The unset value.
    pub const UNSET: Self = Self(ptr::null_mut());

    /// A fresh `int` object holding `id`; `UNSET` when Python has no memory left.
    pub fn new(id: u64) -> Self {
        // SAFETY: needs the GIL only; null means an exception is set, which is cleared.
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
        // SAFETY: an owned reference or the immortal zero, cloned before `self` gives its own up; zero is set at import,
        // before anything here can be called.
        unsafe { Bound::from_borrowed_ptr(py, object) }
    }

    /// The id it holds; 0 when unset or not a fitting `int`.
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

    /// Shows the object to the garbage collector.
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

// SAFETY: the pointer is only used while the GIL is held (type's law), whichever thread holds it.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Default for Value {
    fn default() -> Self {
        Self::UNSET
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        // SAFETY: owned reference or null; the GIL is held (type's law).
        unsafe { ffi::Py_XINCREF(self.0) };
        Self(self.0)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: owned reference or null; the GIL is held (type's law).
        unsafe { ffi::Py_XDECREF(self.0) };
    }
}

/// Creates the variable; called once when the module is imported.
pub fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let existing = VARIABLE.load(Ordering::Acquire);
    if !existing.is_null() {
        // SAFETY: `existing` is kept alive for ever by the reference leaked below.
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
pub fn get() -> Value {
    let variable = address();
    if variable.is_null() {
        return Value::UNSET;
    }
    if let Some(functions) = &symbols().context_var {
        let mut value = ptr::null_mut();
        // SAFETY: `variable` is a live ContextVar, the out pointer is ours; with a null default an unset variable gives
        // null without an exception, a set one a new reference.
        unsafe {
            if (functions.get)(variable, ptr::null_mut(), &mut value) < 0 {
                ffi::PyErr_Clear();
                return Value::UNSET;
            }
        }
        return Value(value);
    }
    call_method(variable, c"get", zero()).unwrap_or(Value::UNSET)
}

/// Sets the value in the current context of this thread. A context in which the variable was set keeps an entry until
/// [`reset`]: unset is written as 0.
pub fn set(value: &Value) {
    drop(set_with_token(value));
}

/// As [`set`]; gives what [`reset`] takes, or `UNSET` where that is not to be had.
///
/// A token keeps its context alive, which may hold whoever holds the token: only where the garbage collector sees it.
pub fn set_with_token(value: &Value) -> Value {
    let variable = address();
    let object = if value.0.is_null() { zero() } else { value.0 };
    if variable.is_null() || object.is_null() {
        return Value::UNSET;
    }
    if let Some(runtime) = TOLD.get() {
        tell(runtime, value.id());
    }
    if let Some(functions) = &symbols().context_var {
        // SAFETY: both are live objects; the returned token is a new reference, null comes with an exception.
        unsafe {
            let token = (functions.set)(variable, object);
            if token.is_null() {
                ffi::PyErr_Clear();
            }
            return Value(token);
        }
    }
    drop(call_method(variable, c"set", object));
    Value::UNSET
}

/// Sets `previous`, which was the value before [`set_with_token`] gave `token`: by the token if it is of this context,
/// which is cheaper and leaves no entry behind.
pub fn reset(token: &Value, previous: &Value) {
    let (variable, functions) = (address(), &symbols().context_var);
    let Some(functions) = functions.as_ref().filter(|_| !token.0.is_null() && !variable.is_null()) else {
        return set(previous);
    };
    // SAFETY: both are live objects; a token of another context, or used before, is refused with an exception.
    if unsafe { (functions.reset)(variable, token.0) } < 0 {
        // SAFETY: needs the GIL only.
        unsafe { ffi::PyErr_Clear() };
        return set(previous);
    }
    if let Some(runtime) = TOLD.get() {
        tell(runtime, previous.id());
    }
}

/// Says where the handler looks for the context id.
pub fn publish_to(source: ContextSource, runtime: Arc<PythonRuntime>) {
    if source == ContextSource::ThreadTable {
        let _ = TOLD.set(runtime);
    }
}

/// Tells the runtime's table of threads. Inside an event loop a thread's tasks would read each other's labels, so nothing
/// is told there: no label rather than a wrong one.
fn tell(runtime: &PythonRuntime, id: u64) {
    // SAFETY: every caller holds the GIL (module's law).
    let py = unsafe { Python::assume_attached() };
    let in_event_loop = py
        .import("sys")
        .and_then(|sys| sys.getattr("modules")?.call_method1("get", ("asyncio",)))
        .and_then(|asyncio| if asyncio.is_none() { Ok(asyncio) } else { asyncio.call_method0("_get_running_loop") })
        .map_or(true, |running| !running.is_none());
    runtime.set_thread_context(py, if in_event_loop { 0 } else { id });
}

fn zero() -> *mut ffi::PyObject {
    ZERO.load(Ordering::Acquire)
}

/// The slow way, for an interpreter that exports no C function for it.
fn call_method(variable: *mut ffi::PyObject, name: &std::ffi::CStr, argument: *mut ffi::PyObject) -> Option<Value> {
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
        Some(Value(result))
    }
}
