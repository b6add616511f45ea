//! The labels of one call: a mapping, keywords or both, or prepared labels ([`LabelsObject`]). Not here: the conversion of a mapping
//! ([`crate::convert`]), the scope that sets them ([`crate::ffi::scope`]).

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyTuple};
use spanprof::binding::ffi_guard;
use spanprof::context::merge;

use crate::context::PreparedLabels;
use crate::convert;

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
        Self(ffi_guard(PreparedLabels::default(), || of_arguments(labels.py(), &given, &keywords)))
    }
}

/// The interned labels of a [`LabelsObject`] object.
pub fn prepared(value: &Bound<'_, PyAny>) -> Option<PreparedLabels> {
    value.cast_exact::<LabelsObject>().ok().map(|labels| labels.get().0)
}

/// The labels of `tag_wrapper(labels)`, `tag_wrapper(labels=…)`, `tag_wrapper(endpoint="/cart")`, or a mapping and keywords,
/// which take precedence. Other arguments set no labels and log one warning.
pub fn of_arguments<'py>(
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
            let is_labels = || prepared(value).is_some() || value.cast::<PyMapping>().is_ok();
            match mapping.is_none() && name.eq("labels")? && is_labels() {
                true => mapping = Some(value),
                false => single.push((name, value)),
            }
        }
        if let Some(mapping) = mapping {
            match prepared(mapping) {
                Some(prepared) => outer = prepared,
                None => labels.update(mapping.cast::<PyMapping>()?)?,
            }
        }
        for (name, value) in single {
            labels.set_item(name, value)?;
        }
        Ok(given.len() <= 1 && (mapping.is_some() || !keywords.is_empty()))
    })();
    if !matches!(filled, Ok(true)) {
        convert::warn_of_labels(&format!("{} arguments", given.len() + keywords.len()));
    }
    merge(outer, convert::prepared_labels(labels.as_any()))
}
