//! C functions that replace `attach` and `detach` of OpenTelemetry's runtime context and link the active span. A service makes
//! two such calls per span; written in Python they cost 8 µs. Spans of the SDK and of the API store a `SpanContext`, a tuple,
//! in `_context` (opentelemetry-api 1.x, trace/span.py). A Python function describes other spans. Not here: the context ids
//! (`crate::context`), and the replacement itself (`otel_link.py`).

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use spanprof_profiler::binding::ffi_guard;

use crate::context::{attach_span, detach_span, follow_span, ActiveSpan, LinkToken};
use crate::convert;
use crate::ffi::heap_type::MethodTable;
use crate::ffi::interruption::ok;
use crate::ffi::symbols::symbols;
use crate::ffi::trace_id::trace_id_bytes;
use crate::threads;

/// Whether the name of a local root span becomes the label `span_name`.
static NAMES_ROOT_SPANS: AtomicBool = AtomicBool::new(false);

/// Enables the label `span_name` of local root spans, for Pyroscope's span profiles.
#[pyfunction]
pub fn name_root_spans() {
    NAMES_ROOT_SPANS.store(true, Ordering::Relaxed);
}

/// State shared by the two functions.
#[pyclass(frozen, module = "spanprof._spanprof")]
pub struct LinkState {
    /// The context variable that `attach` sets and `detach` resets; without it the original functions are called.
    variable: Option<Py<PyAny>>,
    attach: Py<PyAny>,
    detach: Py<PyAny>,
    /// The key of the active span in a context.
    key: Py<PyAny>,
    span_context: Py<PyType>,
    /// Returns `(trace id, span id, is local root, labels)` of a context, for spans that are not of the SDK's class.
    describe: Py<PyAny>,
}

const fn function(name: &'static std::ffi::CStr, meth: ffi::PyCFunction, flags: c_int) -> MethodTable<2> {
    let meth = ffi::PyMethodDefPointer { PyCFunction: meth };
    let row = ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: meth, ml_flags: flags, ml_doc: ptr::null() };
    MethodTable([row, ffi::PyMethodDef::zeroed()])
}

static ATTACH: MethodTable<2> = function(c"attach", attach, ffi::METH_O);
static DETACH: MethodTable<2> = function(c"detach", detach, ffi::METH_O);

/// Creates replacements of `attach` and `detach`. `variable` is the context variable that the originals set, given only when
/// they do nothing else.
#[pyfunction]
pub fn link_opentelemetry<'py>(
    py: Python<'py>,
    originals: (Py<PyAny>, Py<PyAny>),
    variable: Option<Py<PyAny>>,
    key: Py<PyAny>,
    span_context: Py<PyType>,
    describe: Py<PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let variable = variable.filter(|_| symbols().context_var.is_some());
    let (attach, detach) = originals;
    let state = Bound::new(py, LinkState { variable, attach, detach, key, span_context, describe })?;
    let bound = |table: &'static MethodTable<2>| {
        let definition = table.0.as_ptr().cast_mut();
        // SAFETY: the row is static; the function takes a reference to `state`; the result is new, or null with an exception.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCFunction_NewEx(definition, state.as_ptr(), ptr::null_mut())) }
    };
    Ok((bound(&ATTACH)?, bound(&DETACH)?))
}

impl LinkState {
    /// Makes `context` current; returns OpenTelemetry's token, or null with an exception.
    fn set(&self, py: Python<'_>, context: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
        match (&self.variable, &symbols().context_var) {
            // SAFETY: both are live objects; the token is a new reference, null comes with an exception.
            (Some(variable), Some(functions)) => unsafe { (functions.set)(variable.as_ptr(), context.as_ptr()) },
            _ => into_result(py, self.attach.bind(py).call1((context,))),
        }
    }

    /// Restores the context before `token`; returns None, or null with an exception.
    fn reset(&self, py: Python<'_>, token: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
        let (Some(variable), Some(functions)) = (&self.variable, &symbols().context_var) else {
            return into_result(py, self.detach.bind(py).call1((token,)));
        };
        // SAFETY: both are live objects; a token of another variable or context is rejected with an exception. The function
        // does not check the type of its argument, so `is_token` does.
        unsafe {
            if !is_token(token) {
                return into_result(py, self.detach.bind(py).call1((token,)));
            }
            match (functions.reset)(variable.as_ptr(), token.as_ptr()) {
                0 => py.None().into_ptr(),
                _ => ptr::null_mut(),
            }
        }
    }

    /// The span of OpenTelemetry's current context.
    fn current_span(&self, py: Python<'_>) -> Option<ActiveSpan> {
        let (Some(variable), Some(functions)) = (&self.variable, &symbols().context_var) else { return None };
        let mut context = ptr::null_mut();
        // SAFETY: a live ContextVar, and a local for the new reference; null without an exception when it is unset.
        let context = unsafe {
            (functions.get)(variable.as_ptr(), ptr::null_mut(), &mut context);
            Bound::from_owned_ptr_or_opt(py, context)
        };
        context.map_or_else(|| Some(ActiveSpan::default()), |context| self.span_of(&context))
    }

    fn span_of(&self, context: &Bound<'_, PyAny>) -> Option<ActiveSpan> {
        let py = context.py();
        let Some(span) = context.cast::<PyDict>().ok()?.get_item(&self.key).ok()? else {
            return Some(ActiveSpan::default());
        };
        let Some(described) =
            ok(py, span.getattr_opt(intern!(py, "_context")))?.filter(|object| self.is_span_context(object))
        else {
            return self.described(context);
        };
        let described = described.cast::<PyTuple>().ok()?;
        let is_local_root = self.is_local_root(&span)?;
        if is_local_root && NAMES_ROOT_SPANS.load(Ordering::Relaxed) {
            return self.described(context);
        }
        let (trace_id, span_id) = (described.get_item(0).ok()?, described.get_item(1).ok()?);
        let span_id: u64 = span_id.extract().ok()?;
        Some(ActiveSpan {
            trace_id: trace_id_bytes(&trace_id)?,
            span_id: span_id.to_be_bytes(),
            is_local_root,
            ..ActiveSpan::default()
        })
    }

    fn is_local_root(&self, span: &Bound<'_, PyAny>) -> Option<bool> {
        let py = span.py();
        let parent = match ok(py, span.getattr_opt(intern!(py, "_parent")))? {
            Some(parent) => parent,
            None => match ok(py, span.getattr_opt(intern!(py, "parent")))? {
                Some(parent) => parent,
                None => return Some(false),
            },
        };
        if parent.is_none() {
            return Some(true);
        }
        if !self.is_span_context(&parent) {
            return ok(py, parent.getattr(intern!(py, "is_remote")).and_then(|it| it.is_truthy()));
        }
        parent.cast::<PyTuple>().ok()?.get_item(2).ok()?.is_truthy().ok()
    }

    fn is_span_context(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type().is(&self.span_context)
    }

    fn described(&self, context: &Bound<'_, PyAny>) -> Option<ActiveSpan> {
        let described = ok(context.py(), self.describe.bind(context.py()).call1((context,)))?;
        let (trace_id, span_id, is_local_root, labels): (Bound<'_, PyAny>, u64, bool, Option<Bound<'_, PyAny>>) =
            described.extract().ok()?;
        Some(ActiveSpan {
            trace_id: trace_id_bytes(&trace_id)?,
            span_id: span_id.to_be_bytes(),
            is_local_root,
            labels: labels.as_ref().map(convert::prepared_labels).unwrap_or_default(),
        })
    }
}

/// Whether `object` is a `contextvars.Token`.
fn is_token(object: &Bound<'_, PyAny>) -> bool {
    static TOKEN: pyo3::sync::PyOnceLock<Py<PyType>> = pyo3::sync::PyOnceLock::new();
    let py = object.py();
    TOKEN.import(py, "contextvars", "Token").is_ok_and(|token| object.get_type().is(token))
}

fn into_result(py: Python<'_>, result: PyResult<Bound<'_, PyAny>>) -> *mut ffi::PyObject {
    match result {
        Ok(value) => value.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

/// The arguments of a call of the two functions.
///
/// # Safety
/// `state` and `argument` are the pointers that the interpreter passes to a function created by [`link_opentelemetry`].
unsafe fn borrowed<'a>(
    state: *mut ffi::PyObject,
    argument: *mut ffi::PyObject,
) -> (Bound<'a, LinkState>, Bound<'a, PyAny>) {
    // SAFETY: caller's contract; the GIL is held by the calling interpreter, and both are borrowed for the call.
    unsafe {
        let py = Python::assume_attached();
        (Bound::from_borrowed_ptr(py, state).cast_into_unchecked(), Bound::from_borrowed_ptr(py, argument))
    }
}

unsafe extern "C" fn attach(state: *mut ffi::PyObject, context: *mut ffi::PyObject) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        // SAFETY: called by the interpreter.
        let (state, context) = unsafe { borrowed(state, context) };
        let py = context.py();
        let state = state.get();
        let token = state.set(py, &context);
        if token.is_null() {
            return token;
        }
        threads::register_new_thread();
        let link = ffi_guard(None, || attach_span(&state.span_of(&context)?));
        let Some(link) = link else { return token };
        // SAFETY: a new reference, which the link takes over.
        let token = unsafe { Bound::from_owned_ptr(py, token) }.unbind();
        let unlinked = token.clone_ref(py);
        match Bound::new(py, link.with_token(token)) {
            Ok(token) => token.into_any().into_ptr(),
            Err(_) => unlinked.into_ptr(),
        }
    })
}

unsafe extern "C" fn detach(state: *mut ffi::PyObject, token: *mut ffi::PyObject) -> *mut ffi::PyObject {
    ffi_guard(ptr::null_mut(), || {
        // SAFETY: called by the interpreter.
        let (state, token) = unsafe { borrowed(state, token) };
        let py = token.py();
        let state = state.get();
        let Some(link) = token.cast_exact::<LinkToken>().ok() else {
            // Attached without a span, or before the link was installed.
            let reset = state.reset(py, &token);
            if !reset.is_null() {
                ffi_guard((), || state.current_span(py).iter().for_each(follow_span));
            }
            return reset;
        };
        let Some(inner) = &link.get().token else { return py.None().into_ptr() };
        let reset = state.reset(py, inner.bind(py));
        if !reset.is_null() {
            ffi_guard((), || detach_span(link.get()));
        }
        reset
    })
}
