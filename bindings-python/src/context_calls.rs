//! The module's context functions, for the package's hooks: spans becoming current, calls carried to another thread,
//! Pyroscope's thread tags. None of them raises. Not here: `tag_wrapper` ([`crate::ffi::scope`]).

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use spanprof::context::{hold_context, HeldContext, Link};

use crate::context::{self, PreparedLabels};
use crate::convert;
use crate::error::quiet;
use crate::ffi::variable::{self, Value};

/// The context id current here; 0 for none. The very object, so that `set_current` gives back what scopes recognise.
#[pyfunction]
pub fn current(py: Python<'_>) -> Bound<'_, PyAny> {
    quiet(Value::UNSET, variable::get).into_object(py)
}

/// Labels and link of a context id, or of the current one: `{"labels": {...}, "trace_id": hex, "span_id": hex,
/// "local_root_span_id": hex}`.
#[pyfunction]
#[pyo3(signature = (id=None))]
pub fn describe(py: Python<'_>, id: Option<u64>) -> PyResult<Bound<'_, PyDict>> {
    let (row, labels) = quiet(Default::default(), || {
        let row = context::row(id.unwrap_or_else(|| variable::get().id()));
        (row, context::labels_of(row.label_set))
    });
    let described = PyDict::new(py);
    let by_key = PyDict::new(py);
    for (key, value) in labels {
        by_key.set_item(key, value)?;
    }
    described.set_item("labels", by_key)?;
    described.set_item("trace_id", hex(&row.link.trace_id))?;
    described.set_item("span_id", hex(&row.link.span_id))?;
    described.set_item("local_root_span_id", hex(&row.local_root_span_id))?;
    Ok(described)
}

fn hex(bytes: &[u8]) -> String {
    if bytes.iter().all(|byte| *byte == 0) {
        return String::new();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a span made current, and what was current before it. What it made current does not expire while this lives.
#[pyclass(frozen, module = "spanprof._spanprof")]
pub struct LinkToken {
    /// OpenTelemetry's own.
    pub token: Option<Py<PyAny>>,
    written: Value,
    previous: Value,
    _held: HeldContext,
}

#[pymethods]
impl LinkToken {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.token)
    }
}

impl LinkToken {
    /// The same beside OpenTelemetry's token.
    pub fn beside(self, token: Py<PyAny>) -> Self {
        Self { token: Some(token), ..self }
    }
}

/// The span of an OpenTelemetry context; all zero without one.
#[derive(Default)]
pub struct ActiveSpan {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// Otherwise the local root is that of the span current so far, if it is of the same trace.
    pub is_local_root: bool,
    pub labels: PreparedLabels,
}

/// Makes a span current; `None` when that changes nothing.
pub fn attach_span(span: ActiveSpan) -> Option<LinkToken> {
    let previous = variable::get();
    let row = context::row(previous.id());
    let link = Link { trace_id: span.trace_id, span_id: span.span_id };
    if row.link == link {
        return None;
    }
    let local_root = match span.is_local_root {
        true => span.span_id,
        false if row.link.trace_id == link.trace_id => row.local_root_span_id,
        false => [0; 8],
    };
    let written = Value::new(context::linked(previous.id(), link, local_root, &span.labels));
    variable::set(&written);
    Some(LinkToken { token: None, _held: hold_context(written.id()), written, previous })
}

/// Takes a span's link away again. In another context than it was attached in, nothing changes.
pub fn detach_span(token: &LinkToken) {
    let current = variable::get();
    if current.is(&token.written) {
        variable::set(&token.previous);
    } else if let Some(id) = context::without_link(current.id(), token.written.id(), token.previous.id()) {
        variable::set(&Value::new(id));
    }
}

/// Whether a span is current here.
#[pyfunction]
pub fn is_linked() -> bool {
    quiet(false, || context::row(variable::get().id()).link != Link::default())
}

/// Adds labels to what is current here, with no end: Pyroscope's thread tags.
#[pyfunction]
pub fn add_labels(labels: &Bound<'_, PyAny>) {
    quiet((), || {
        let prepared = convert::prepared_labels(labels);
        let (id, _) = context::child(variable::get().id(), &prepared);
        variable::set(&Value::new(id));
    });
}

/// Removes one label from what is current here, if it has this value; without a value, whatever it has.
#[pyfunction]
#[pyo3(signature = (key, value=None))]
pub fn remove_label(key: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) {
    quiet((), || {
        let (key, value) = (convert::text_of(key), value.map(convert::text_of));
        let id = context::without_label(variable::get().id(), &key, value.as_deref());
        variable::set(&Value::new(id));
    });
}

/// Makes an id taken by `current` current here, whatever was in between.
#[pyfunction]
pub fn set_current(id: &Bound<'_, PyAny>) {
    quiet((), || variable::set(&Value::of(id)));
}

/// A function that runs under the context it was carried from.
#[pyclass(frozen, module = "spanprof._spanprof")]
pub struct Carried {
    function: Py<PyAny>,
    context: Value,
    _held: HeldContext,
}

#[pymethods]
impl Carried {
    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let previous = variable::get();
        variable::set(&self.context);
        let result = self.function.call(py, arguments, keywords);
        variable::set(&previous);
        result
    }

    /// The function as it was given, for people who look into a queue.
    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.function.bind(py).repr()?.to_string())
    }
}

/// `function`, bound to what is current here; `function` itself when nothing is.
#[pyfunction]
pub fn carry(function: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let context = variable::get();
    if context.id() == 0 {
        return Ok(function);
    }
    let py = function.py();
    let held = hold_context(context.id());
    Ok(Bound::new(py, Carried { function: function.unbind(), context, _held: held })?.into_any())
}

/// Sets what a scope calls when it is used as a decorator; called once when the package is imported.
#[pyfunction]
pub fn set_decorate(decorate: Bound<'_, PyAny>) {
    crate::ffi::scope_calls::set_decorate(decorate);
}
