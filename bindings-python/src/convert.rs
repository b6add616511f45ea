//! The description of this binding, and the conversion of configuration, labels, statistics and errors between Python values
//! and the core's. No policy: the core defines the meaning and bounds of a value, and the replacement of a bad one. Called by
//! the module's functions and by the scope type.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use spanprof_aggregate::context as table;
use spanprof_aggregate::context::ContextRow;
use spanprof_aggregate::StatValue;
use spanprof_config::{ConfigValue, Error};
use spanprof_profiler::binding::{self, ffi_guard, ffi_guard_result, log, Binding, KeyCase};
use spanprof_profiler::{LogLevel, Stats};

use crate::ffi::interruption;
use crate::ffi::text::{self, BorrowedPairs};
use crate::ffi::variable;

pub static BINDING: Binding = Binding { name: "python", options: &[], key_case: KeyCase::Snake };

/// A value nested deeper than this is converted to text; no key needs more than a list of maps of maps.
const MAX_DEPTH: usize = 6;
/// Text is cut here before conversion; every limit of the core is far below.
const MAX_TEXT_CHARACTERS: usize = 65_536;
/// Labels beyond this many are ignored; the core's own limit is far below.
const MAX_LABELS: usize = 4_096;

static UNREADABLE_LABELS: AtomicU64 = AtomicU64::new(0);

/// Number of label maps and values that raised when they were read, for `stats()`.
pub fn unreadable_labels() -> u64 {
    UNREADABLE_LABELS.load(Ordering::Relaxed)
}

/// The code layer of the configuration, in the order given.
pub fn config_from(config: &Bound<'_, PyDict>) -> Vec<(String, ConfigValue)> {
    config.iter().map(|(key, value)| (text_of(&key), config_value(&value, 0))).collect()
}

fn config_value(value: &Bound<'_, PyAny>, depth: usize) -> ConfigValue {
    let py = value.py();
    if value.is_none() {
        return ConfigValue::Null;
    }
    if let Ok(value) = value.cast::<PyBool>() {
        return ConfigValue::Bool(value.is_true());
    }
    if value.is_instance_of::<PyInt>() {
        return match value.extract::<i64>() {
            Ok(number) => ConfigValue::Int(number),
            Err(_) => ConfigValue::Text(text_of(value)),
        };
    }
    if let Ok(number) = value.cast::<PyFloat>() {
        return ConfigValue::Float(number.value());
    }
    if value.is_instance_of::<PyString>() || depth >= MAX_DEPTH {
        return ConfigValue::Text(text_of(value));
    }
    if let Some(Some(map)) = interruption::ok(py, dict_of(value)) {
        let pair =
            |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| (text_of(&key), config_value(&value, depth + 1));
        return ConfigValue::Map(map.iter().map(pair).collect());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        if let Some(items) = interruption::ok(py, value.try_iter()) {
            return ConfigValue::List(
                items.map_while(|item| interruption::ok(py, item)).map(|item| config_value(&item, depth + 1)).collect(),
            );
        }
    }
    // A path is its text; seconds and rates may come as any number type.
    if let Some(path) = interruption::ok(py, value.call_method0("__fspath__")) {
        return ConfigValue::Text(text_of(&path));
    }
    match interruption::ok(py, value.extract::<f64>()) {
        Some(number) => ConfigValue::Float(number),
        None => ConfigValue::Text(text_of(value)),
    }
}

/// The program's name: the script without `.py`, or the package of `-m`; empty for `python -c` and the interactive prompt.
pub fn program_name(py: Python<'_>) -> String {
    let argument = || py.import("sys")?.getattr("argv")?.get_item(0)?.extract::<String>();
    let Some(argument) = interruption::ok(py, argument()) else { return String::new() };
    let path = std::path::Path::new(&argument);
    let path = if path.ends_with("__main__.py") { path.parent().unwrap_or(path) } else { path };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = name.strip_suffix(".py").unwrap_or(&name);
    if name.starts_with('-') {
        return String::new();
    }
    name.to_owned()
}

/// Interned labels, and optionally a span link, to merge into any parent context.
pub type PreparedLabels = ContextRow;

/// The labels of one `tag_wrapper` call, interned. An endpoint among them names the current request.
fn prepare(labels: &[(&str, &str)]) -> PreparedLabels {
    if labels.iter().any(|(key, _)| matches!(*key, "http.route" | "endpoint")) {
        table::name_request(&table::context_row(variable::get().id()).unwrap_or_default(), labels);
    }
    table::with_labels(ContextRow::default(), labels)
}

/// Interns the labels of one `tag_wrapper` call. Never raises: unreadable labels are counted and omitted.
pub fn prepared_labels(labels: &Bound<'_, PyAny>) -> PreparedLabels {
    if let Ok(dict) = labels.cast_exact::<PyDict>() {
        if let Some(pairs) = BorrowedPairs::of(dict, MAX_TEXT_CHARACTERS, MAX_LABELS) {
            return prepare(pairs.as_slice());
        }
    }
    if let Some(prepared) = prepared(labels) {
        return prepared;
    }
    let dict = interruption::ok(labels.py(), dict_of(labels));
    let Some(Some(dict)) = dict else {
        UNREADABLE_LABELS.fetch_add(1, Ordering::Relaxed);
        if dict.is_some() {
            warn_of_labels(&labels.get_type().name().map(|name| name.to_string()).unwrap_or_default());
        }
        return PreparedLabels::default();
    };
    let owned: Vec<_> = dict.iter().take(MAX_LABELS).map(|(key, value)| (text_of(&key), text_of(&value))).collect();
    let pairs: Vec<(&str, &str)> = owned.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    prepare(&pairs)
}

/// Prepared labels: an immutable label set, converted and interned once. `tag_wrapper` takes them in place of a mapping.
#[pyclass(frozen, name = "Labels", module = "spanprof")]
pub struct LabelsObject(PreparedLabels);

#[pymethods]
impl LabelsObject {
    #[new]
    #[pyo3(signature = (*labels, **keyword_labels))]
    fn new(labels: &Bound<'_, PyTuple>, keyword_labels: Option<&Bound<'_, PyDict>>) -> Self {
        let given: Vec<_> = labels.iter().collect();
        let keywords: Vec<_> = keyword_labels.map(|keywords| keywords.iter().collect()).unwrap_or_default();
        Self(ffi_guard(PreparedLabels::default(), || labels_of_arguments(labels.py(), &given, &keywords)))
    }
}

impl LabelsObject {
    /// Labels of a prepared context.
    pub fn of_row(row: ContextRow) -> Self {
        Self(row)
    }
}

/// The interned labels of a [`LabelsObject`] object.
pub fn prepared(value: &Bound<'_, PyAny>) -> Option<PreparedLabels> {
    value.cast_exact::<LabelsObject>().ok().map(|labels| labels.get().0)
}

/// The labels of `tag_wrapper(labels)`, `tag_wrapper(labels=…)`, `tag_wrapper(endpoint="/cart")`, or a mapping and keywords,
/// which take precedence. Other arguments set no labels and log one warning.
pub fn labels_of_arguments<'py>(
    py: Python<'py>,
    given: &[Bound<'py, PyAny>],
    keywords: &[(Bound<'py, PyAny>, Bound<'py, PyAny>)],
) -> PreparedLabels {
    let labels = PyDict::new(py);
    let mut outer = PreparedLabels::default();
    let filled = (|| -> PyResult<bool> {
        let mut mapping = given.first();
        let mut single = Vec::new();
        for (name, value) in keywords {
            let is_labels = || PyResult::Ok(prepared(value).is_some() || is_mapping(value)?);
            if mapping.is_none() && name.eq("labels")? && is_labels()? {
                mapping = Some(value)
            } else {
                single.push((name, value))
            }
        }
        if let Some(mapping) = mapping {
            match prepared(mapping) {
                Some(prepared) => outer = prepared,
                None => match dict_of(mapping)? {
                    Some(dict) => labels.update(dict.as_mapping())?,
                    None => return Ok(false),
                },
            }
        }
        for (name, value) in single {
            labels.set_item(name, value)?;
        }
        Ok(given.len() <= 1 && (mapping.is_some() || !keywords.is_empty()))
    })();
    if interruption::ok(py, filled) != Some(true) {
        warn_of_labels(&format!("{} arguments", given.len() + keywords.len()));
    }
    table::merge(outer, prepared_labels(labels.as_any()))
}

/// Warns, once in a process, that a `tag_wrapper` call sets no labels.
pub fn warn_of_labels(got: &str) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        let line = format!(
            "spanprof: tag_wrapper() expects a mapping such as {{\"endpoint\": \"/cart\"}} or keywords such as \
             endpoint=\"/cart\", got {got}; the scope sets no labels (reported once)"
        );
        log(LogLevel::Warning, &line);
    }
}

/// The attributes of an OpenTelemetry resource that have one value, as text.
pub fn resource_attributes(attributes: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let attributes = dict_of(attributes)?.unwrap_or_else(|| PyDict::new(attributes.py()));
    let is_list = |value: &Bound<'_, PyAny>| value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>();
    let text = |value: &Bound<'_, PyAny>| match value.cast::<PyBool>() {
        Ok(flag) => flag.is_true().to_string(),
        Err(_) => text_of(value),
    };
    let single = attributes.iter().filter(|(_, value)| !is_list(value));
    Ok(single.map(|(key, value)| (text_of(&key), text(&value))).collect())
}

/// A copy of any mapping; `None` for other values.
fn dict_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyDict>>> {
    let is_mapping = is_mapping(value)?;
    let copy = || {
        let dict = PyDict::new(value.py());
        dict.call_method1("update", (value,)).map(|_| dict)
    };
    is_mapping.then(copy).transpose()
}

/// As a cast to `PyMapping`, which drops the exceptions of the test: it runs Python code.
fn is_mapping(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static MAPPING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(value.is_instance_of::<PyDict>()
        || value.is_instance(MAPPING.import(value.py(), "collections.abc", "Mapping")?)?)
}

/// `str(value)`, cut far above every limit of the core; lone surrogates become U+FFFD. A value whose `str()` raises becomes
/// empty and is counted.
pub fn text_of(value: &Bound<'_, PyAny>) -> String {
    let text = match value.cast::<PyString>() {
        Ok(text) => Some(text.clone()),
        Err(_) => interruption::ok(value.py(), value.str()),
    };
    match text.and_then(|text| text::owned(&text, MAX_TEXT_CHARACTERS)) {
        Some(text) => text,
        None => {
            UNREADABLE_LABELS.fetch_add(1, Ordering::Relaxed);
            String::new()
        }
    }
}

/// `stats()` as a dictionary: dotted names, in the order of the reference page.
pub fn stats_into<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in &stats.entries {
        match value {
            StatValue::Count(count) => dict.set_item(name, count)?,
            StatValue::Text(text) => dict.set_item(name, text)?,
        }
    }
    Ok(dict)
}

/// The FFI guard of `start` and `update`: an impossible argument is raised as `SpanprofError`, another error is logged. An exception
/// of a signal handler that interrupted the call is raised instead.
pub fn ffi_guard_argument<T>(
    py: Python<'_>,
    outcome: &str,
    fallback: T,
    body: impl FnOnce() -> Result<T, Error>,
) -> PyResult<T> {
    raise(py, binding::ffi_guard_argument(outcome, fallback, body))
}

/// The FFI guard of calls that may raise: errors and panics become `SpanprofError`. An exception of a signal handler that
/// interrupted the call is raised instead.
pub fn ffi_guard_or_raise<T>(py: Python<'_>, body: impl FnOnce() -> Result<T, Error>) -> PyResult<T> {
    raise(py, ffi_guard_result(body))
}

fn raise<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    match interruption::take() {
        Some(interruption) => Err(interruption),
        None => result.map_err(|error| into_exception(py, &error)),
    }
}

fn into_exception(py: Python<'_>, error: &Error) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("spanprof.errors")?.getattr("SpanprofError")?;
        let [kind, message, hint] = BINDING.error_texts(error);
        Ok(PyErr::from_value(class.call1((message, kind, hint))?))
    };
    build().unwrap_or_else(|import_error| import_error)
}
