//! The Python runner's door to the conformance suite: configuration and scopes go through the package's own API, the rest
//! of a case through the core. Compiled with the feature `testing` only; called by `tests/test_conformance.py`.

use std::collections::BTreeMap;

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use spanprof::conformance::{run_in, Case, Language};
use spanprof::ConfigValue;

use crate::convert;

struct Python3<'py> {
    config: Bound<'py, PyDict>,
    context: Bound<'py, PyAny>,
}

impl Language for Python3<'_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        convert::config_from(&self.config)
    }

    fn context(&mut self, scopes: &[BTreeMap<String, String>]) -> u64 {
        let id = self.context.call1((scopes.to_vec(),)).and_then(|id| id.extract::<u64>());
        // No case gives this id, so a failing callback fails the case.
        id.unwrap_or(u64::MAX)
    }
}

/// Runs one case: its text, its `config` as Python read it, and the context inside scopes of `tag_wrapper`.
#[pyfunction]
fn run_case(text: &str, config: Bound<'_, PyDict>, context: Bound<'_, PyAny>) -> PyResult<String> {
    run_in(text, &mut Python3 { config, context }).map_err(PyAssertionError::new_err)
}

/// Adds the door to `_spanprof._testing`.
pub fn register(doors: &Bound<'_, PyModule>) -> PyResult<()> {
    doors.add_function(wrap_pyfunction!(run_case, doors)?)
}
