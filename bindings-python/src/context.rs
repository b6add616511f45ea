//! Contexts: the ids of labels on top of a parent context, of a span link, and of the context after one of them ends; and the
//! module's functions on the current context, for the package's hooks: span links, calls bound to the context of their
//! submitter, Pyroscope's thread tags. None of them raises. The context table is the core's ([`spanprof_aggregate::context`]); the
//! context variable that holds an id is [`crate::ffi::variable`]. Not here: `tag_wrapper` (`scope_calls`).

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use spanprof_aggregate::context as table;
use spanprof_aggregate::context::{format_id, pin_context, ContextRow, LabelSetId, Link, PinnedContext};
use spanprof_profiler::binding::ffi_guard;

use crate::convert::{self, PreparedLabels};
use crate::ffi::variable::{self, ContextValue, VariableValue};

/// The context row of `id`; the empty row when it expired.
pub fn row(id: u64) -> ContextRow {
    if id == 0 {
        return ContextRow::default();
    }
    table::context_row(id).unwrap_or_default()
}

/// A context that a scope opens.
#[derive(Clone, Copy)]
pub struct Child {
    pub id: u64,
    pub may_expire: bool,
    pub labels: LabelSetId,
}

/// The context of `labels` on top of `parent`.
pub fn child(parent: u64, labels: &PreparedLabels) -> Child {
    let row = if parent == 0 { *labels } else { table::merge(row(parent), *labels) };
    let may_expire = row.link != Link::default() || row.local_root_span_id != [0; 8] || row.capture != 0;
    Child { id: table::open_context(row), may_expire, labels: row.label_set }
}

/// The value of scope number `scope` with its `own` labels, over the value `previous`.
pub fn scope_value(scope: u64, own: LabelSetId, child: Child, previous: VariableValue) -> VariableValue {
    let span_labels = previous.span_labels();
    let value = ContextValue { labels: child.labels, span_labels, ..ContextValue::default() };
    value.scope.set(scope);
    value.base.set(own);
    value.below.replace(previous);
    value.pin.set(pin_context(child.id));
    VariableValue::new(child.id, value)
}

/// A value of no scope, over `current`.
fn value_over(current: &VariableValue, row: ContextRow, span_labels: LabelSetId) -> VariableValue {
    let (below, base) = match current.parts() {
        Some(parts) if parts.scope.get() == 0 => (current.below(), parts.base.get()),
        _ => (current.clone(), current.labels()),
    };
    value_of(row, span_labels, below, base)
}

fn value_of(row: ContextRow, span_labels: LabelSetId, below: VariableValue, base: LabelSetId) -> VariableValue {
    let id = table::open_context(row);
    if id == 0 && below.parts().is_none() {
        return VariableValue::UNSET;
    }
    let value = ContextValue { labels: row.label_set, span_labels, ..ContextValue::default() };
    value.base.set(base);
    value.below.replace(below);
    VariableValue::new(id, value)
}

/// Whether the row of an id that may expire still exists.
pub fn is_live(id: u64) -> bool {
    table::context_row(id).is_some()
}

/// The value to make current when the scope of the value `ended`, which is below `current`, has ended.
pub fn without_scope(current: &VariableValue, ended: &VariableValue) -> VariableValue {
    let chain: Vec<_> = current.chain().collect();
    let (mut labels, mut labels_below) = (LabelSetId::EMPTY, LabelSetId::EMPTY);
    for value in chain.iter().rev().filter(|value| !value.is(ended)) {
        let Some(parts) = value.parts() else { continue };
        labels_below = labels;
        labels = match parts.scope.get() {
            0 => rebased(labels, parts.base.get(), parts.labels),
            _ => table::merge_label_sets(labels, parts.base.get()),
        };
    }
    let (row_ended, previous) = (row(ended.id()), row(ended.below().id()));
    let mut row = ContextRow { label_set: labels, ..row(current.id()) };
    if row.link == row_ended.link {
        (row.link, row.local_root_span_id) = (previous.link, previous.local_root_span_id);
    }
    if row.capture == row_ended.capture {
        row.capture = previous.capture;
    }
    let value = match current.is_of_open_scope() {
        true => value_of(row, current.span_labels(), current.clone(), labels),
        false => {
            let below = Some(current.below()).filter(|below| !below.is(ended)).unwrap_or_else(|| ended.below());
            value_of(row, current.span_labels(), below, labels_below)
        }
    };
    if let Some(parts) = value.parts() {
        parts.pin.set(pin_context(value.id()));
    }
    value
}

/// Removes the value of a scope that has ended from those below `current`.
pub fn unlink(current: &VariableValue, ended: &VariableValue) {
    for value in current.chain().filter(|value| value.below().is(ended)) {
        if let Some(parts) = value.parts() {
            parts.below.replace(ended.below());
        }
    }
}

/// `labels`, which were made from `old`, on top of `new`.
fn rebased(new: LabelSetId, old: LabelSetId, labels: LabelSetId) -> LabelSetId {
    if new == old {
        return labels;
    }
    let [new, old, labels] = [new, old, labels].map(table::labels_of);
    let has_key = |of: &[(String, String)], key: &str| of.iter().any(|(known, _)| known == key);
    let kept = new.iter().filter(|(key, _)| has_key(&labels, key) || !has_key(&old, key));
    let changed = labels.iter().filter(|label| !old.contains(label));
    let texts = |of: Vec<&(String, String)>| table::intern_labels(&pairs(&of));
    table::merge_label_sets(texts(kept.collect()), texts(changed.collect()))
}

fn pairs<'a>(labels: &[&'a (String, String)]) -> Vec<(&'a str, &'a str)> {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// `row` without the label `key`, if its value is `value` (`None`: any value).
fn without_label(row: ContextRow, key: &str, value: Option<&str>) -> ContextRow {
    let labels = table::labels_of(row.label_set);
    let is_removed = |(k, v): &&(String, String)| k == key && value.is_none_or(|value| value == v);
    let kept: Vec<_> = labels.iter().filter(|label| !is_removed(label)).collect();
    let label_set = if kept.len() == labels.len() { row.label_set } else { table::intern_labels(&pairs(&kept)) };
    ContextRow { label_set, ..row }
}

/// The labels of a row, sorted by key.
pub fn labels_of(label_set: LabelSetId) -> Vec<(String, String)> {
    table::labels_of(label_set)
}

/// The current value, for `set_current`, or 0; converts to its context id.
#[pyfunction]
pub fn current(py: Python<'_>) -> Bound<'_, PyAny> {
    variable::into_object(ffi_guard(VariableValue::UNSET, variable::get), py)
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

/// The span of a context, and the labels that came with it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SpanState {
    link: Link,
    local_root_span_id: [u8; 8],
    labels: LabelSetId,
}

impl SpanState {
    fn of(value: &VariableValue) -> Self {
        let ContextRow { link, local_root_span_id, .. } = row(value.id());
        Self { link, local_root_span_id, labels: value.span_labels() }
    }
}

/// The context that a span link set, and the one before it. The set context is pinned while this lives.
#[pyclass(frozen, module = "spanprof._spanprof")]
pub struct LinkToken {
    /// OpenTelemetry's own token.
    pub token: Option<Py<PyAny>>,
    written: VariableValue,
    previous: VariableValue,
    span_before: SpanState,
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

impl ActiveSpan {
    fn link(&self) -> Link {
        Link { trace_id: self.trace_id, span_id: self.span_id }
    }
}

/// Makes a span current; `None` when there is no span before and after.
pub fn attach_span(span: &ActiveSpan) -> Option<LinkToken> {
    let previous = variable::get();
    let span_before = SpanState::of(&previous);
    if span_before.link == Link::default() && span.link() == Link::default() {
        return None;
    }
    let written = value_with_span(&previous, span);
    if !written.is(&previous) {
        variable::set(&written);
    }
    Some(LinkToken { token: None, _pin: pin_context(written.id()), written, previous, span_before })
}

/// Makes a span current for which no token is known.
pub fn follow_span(span: &ActiveSpan) {
    let current = variable::get();
    let value = value_with_span(&current, span);
    if !value.is(&current) {
        variable::set(&value);
    }
}

/// `current` under a span; itself if that is current.
fn value_with_span(current: &VariableValue, span: &ActiveSpan) -> VariableValue {
    let row = row(current.id());
    if row.link == span.link() {
        return current.clone();
    }
    let linked = table::under_span(row, span.link(), Some(span.is_local_root));
    let own = span.labels.label_set;
    let span_labels = if own == LabelSetId::EMPTY { current.span_labels() } else { own };
    let label_set = table::merge_label_sets(row.label_set, own);
    value_over(current, ContextRow { label_set, ..linked }, span_labels)
}

/// Restores the span that was current before `token`, in whatever order the tokens are detached. Called in the `Context` that it was
/// attached in.
pub fn detach_span(token: &LinkToken) {
    let current = variable::get();
    if current.is(&token.written) {
        return variable::set(&token.previous);
    }
    let SpanState { link, local_root_span_id, labels } = token.span_before;
    if SpanState::of(&current) != token.span_before {
        let row = row(current.id());
        let label_set = rebased(labels, current.span_labels(), row.label_set);
        variable::set(&value_over(&current, ContextRow { label_set, link, local_root_span_id, ..row }, labels));
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
        let current = variable::get();
        let row = table::merge(row(current.id()), prepared);
        variable::set(&value_over(&current, row, current.span_labels()));
    });
}

/// Removes one label from the current context if it has this value; without a value, unconditionally.
#[pyfunction]
#[pyo3(signature = (key, value=None))]
pub fn remove_label(key: &Bound<'_, PyAny>, value: Option<&Bound<'_, PyAny>>) {
    ffi_guard((), || {
        let (key, value) = (convert::text_of(key), value.map(convert::text_of));
        let current = variable::get();
        let row = without_label(row(current.id()), &key, value.as_deref());
        variable::set(&value_over(&current, row, current.span_labels()));
    });
}

/// Restores a value that `current` returned, regardless of changes since.
#[pyfunction]
pub fn set_current(value: &Bound<'_, PyAny>) {
    ffi_guard((), || variable::set(&VariableValue::of(value)));
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

    /// The value, as [`current`] returned it.
    #[getter]
    fn context<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        variable::into_object(self.context.clone(), py)
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
