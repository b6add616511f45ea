//! Contexts: the ids of labels on top of a parent context, of a span link, and of the context after one of them ends; and the
//! module's functions on the current context, for the package's hooks: span links, calls bound to the context of their
//! submitter, Pyroscope's thread tags. None of them raises. The context table is the core's ([`spanprof_aggregate::context`]); the
//! context variable that holds an id is [`crate::ffi::variable`]. Not here: `tag_wrapper` (`ffi/scope.rs`).

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use spanprof_aggregate::context as table;
use spanprof_aggregate::context::{format_id, pin_context, ContextRow, LabelSetId, Link, PinnedContext};
use spanprof_profiler::binding::ffi_guard;

use crate::convert::{self, PreparedLabels};
use crate::ffi::variable::{self, VariableValue};

/// The context row of `id`; the empty row when it expired.
pub fn row(id: u64) -> ContextRow {
    if id == 0 {
        return ContextRow::default();
    }
    table::context_row(id).unwrap_or_default()
}

/// The id of `labels` on top of `parent`, and whether that id may expire.
pub fn child(parent: u64, labels: &PreparedLabels) -> (u64, bool) {
    let row = if parent == 0 { *labels } else { table::merge(row(parent), *labels) };
    let may_expire = row.link != Link::default() || row.local_root_span_id != [0; 8] || row.capture != 0;
    (table::open_context(row), may_expire)
}

/// Whether the row of an id that may expire still exists.
pub fn is_live(id: u64) -> bool {
    table::context_row(id).is_some()
}

/// The id to restore when a scope ends while a context set inside it is still current: that context without the scope's
/// labels. `None` when `current` does not derive from the scope, as in another `Context`: then nothing changes.
pub fn without_labels(current: u64, written: u64, previous: u64) -> Option<u64> {
    let (current, written, previous) = (row(current), row(written), row(previous));
    if current.label_set != written.label_set || written.label_set == previous.label_set {
        return None;
    }
    let restored =
        if current.link == written.link { previous } else { ContextRow { label_set: previous.label_set, ..current } };
    Some(table::open_context(restored))
}

/// As [`without_labels`], for a span that ends while labels set inside it are still current.
pub fn without_link(current: u64, written: u64, previous: u64) -> Option<u64> {
    let (current, written, previous) = (row(current), row(written), row(previous));
    if current.link != written.link || written.link == previous.link {
        return None;
    }
    let restored = if current.label_set == written.label_set {
        previous
    } else {
        ContextRow { label_set: current.label_set, ..previous }
    };
    Some(table::open_context(restored))
}

/// The id of `parent` without the label `key`, if its value is `value` (`None`: any value).
pub fn without_label(parent: u64, key: &str, value: Option<&str>) -> u64 {
    let row = row(parent);
    let labels = table::labels_of(row.label_set);
    let is_removed = |(k, v): &&(String, String)| k == key && value.is_none_or(|value| value == v);
    let kept: Vec<(&str, &str)> =
        labels.iter().filter(|label| !is_removed(label)).map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let label_set = if kept.len() == labels.len() { row.label_set } else { table::intern_labels(&kept) };
    table::open_context(ContextRow { label_set, ..row })
}

/// The labels of a row, sorted by key.
pub fn labels_of(label_set: LabelSetId) -> Vec<(String, String)> {
    table::labels_of(label_set)
}

/// The current context id; 0 for none. Returns the same `int` object, because scopes compare objects after `set_current`.
#[pyfunction]
pub fn current(py: Python<'_>) -> Bound<'_, PyAny> {
    ffi_guard(VariableValue::UNSET, variable::get).into_object(py)
}

/// Labels and link of a context id, or of the current one: `{"labels": {...}, "trace_id": hex, "span_id": hex,
/// "local_root_span_id": hex}`.
#[pyfunction]
#[pyo3(signature = (id=None))]
pub fn describe(py: Python<'_>, id: Option<u64>) -> PyResult<Bound<'_, PyDict>> {
    let (row, labels) = ffi_guard(Default::default(), || {
        let row = row(id.unwrap_or_else(|| variable::get().id()));
        (row, labels_of(row.label_set))
    });
    let described = PyDict::new(py);
    let by_key = PyDict::new(py);
    for (key, value) in labels {
        by_key.set_item(key, value)?;
    }
    described.set_item("labels", by_key)?;
    described.set_item("trace_id", format_id(&row.link.trace_id))?;
    described.set_item("span_id", format_id(&row.link.span_id))?;
    described.set_item("local_root_span_id", format_id(&row.local_root_span_id))?;
    Ok(described)
}

/// The context that a span link set, and the one before it. The set context is pinned while this lives.
#[pyclass(frozen, module = "spanprof._spanprof")]
pub struct LinkToken {
    /// OpenTelemetry's own token.
    pub token: Option<Py<PyAny>>,
    written: VariableValue,
    previous: VariableValue,
    _pin: PinnedContext,
}

#[pymethods]
impl LinkToken {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.token)
    }
}

impl LinkToken {
    /// Adds OpenTelemetry's token.
    pub fn with_token(self, token: Py<PyAny>) -> Self {
        Self { token: Some(token), ..self }
    }
}

/// The span of an OpenTelemetry context; all zero without one.
#[derive(Default)]
pub struct ActiveSpan {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// If false, the local root is that of the previous context, unless that has another trace.
    pub is_local_root: bool,
    pub labels: PreparedLabels,
}

/// Makes a span current; `None` when it is already current.
pub fn attach_span(span: ActiveSpan) -> Option<LinkToken> {
    let previous = variable::get();
    let row = row(previous.id());
    let link = Link { trace_id: span.trace_id, span_id: span.span_id };
    if row.link == link {
        return None;
    }
    let linked = table::under_span(row, link, Some(span.is_local_root));
    let label_set = table::merge_label_sets(row.label_set, span.labels.label_set);
    let written = VariableValue::new(table::open_context(ContextRow { label_set, ..linked }));
    variable::set(&written);
    Some(LinkToken { token: None, _pin: pin_context(written.id()), written, previous })
}

/// Removes a span's link. Has no effect in a `Context` other than the one it was attached in.
pub fn detach_span(token: &LinkToken) {
    let current = variable::get();
    if current.is(&token.written) {
        variable::set(&token.previous);
    } else if let Some(id) = without_link(current.id(), token.written.id(), token.previous.id()) {
        variable::set(&VariableValue::new(id));
    }
}

/// Whether the current context has a span link.
#[pyfunction]
pub fn is_linked() -> bool {
    ffi_guard(false, || row(variable::get().id()).link != Link::default())
}

/// Adds labels to the current context without a scope: Pyroscope's thread tags.
#[pyfunction]
pub fn add_labels(labels: &Bound<'_, PyAny>) {
    ffi_guard((), || {
        let prepared = convert::prepared_labels(labels);
        let (id, _) = child(variable::get().id(), &prepared);
        variable::set(&VariableValue::new(id));
    });
}

/// Removes one label from the current context if it has this value; without a value, unconditionally.
#[pyfunction]
#[pyo3(signature = (key, value=None))]
pub fn remove_label(key: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) {
    ffi_guard((), || {
        let (key, value) = (convert::text_of(key), value.map(convert::text_of));
        let id = without_label(variable::get().id(), &key, value.as_deref());
        variable::set(&VariableValue::new(id));
    });
}

/// Restores a context id that `current` returned, regardless of changes since.
#[pyfunction]
pub fn set_current(id: &Bound<'_, PyAny>) {
    ffi_guard((), || variable::set(&VariableValue::of(id)));
}

/// A function bound to a context id: a call runs under that context and restores the previous one.
#[pyclass(frozen, module = "spanprof._spanprof")]
pub struct BoundCall {
    function: Py<PyAny>,
    context: VariableValue,
    _pin: PinnedContext,
}

#[pymethods]
impl BoundCall {
    /// Binds `function` to the current context, which may be empty.
    #[new]
    fn new(function: Py<PyAny>) -> Self {
        let context = variable::get();
        Self { function, _pin: pin_context(context.id()), context }
    }

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

    /// The context id, as [`current`] returned it.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.context.clone().into_object(py)
    }

    /// The original function, for code that inspects a queue of calls.
    #[getter]
    fn __wrapped__(&self, py: Python<'_>) -> Py<PyAny> {
        self.function.clone_ref(py)
    }

    #[getter]
    fn __name__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.function.getattr(py, "__name__")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.function.bind(py).repr()?.to_string())
    }
}

/// Binds `function` to the current context; returns `function` itself when there is none.
#[pyfunction]
pub fn bind_context(function: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    if variable::get().id() == 0 {
        return Ok(function);
    }
    let py = function.py();
    Ok(Bound::new(py, BoundCall::new(function.unbind()))?.into_any())
}
