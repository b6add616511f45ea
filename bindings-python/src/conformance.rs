//! Entry point of the conformance suite for Python: configuration and scopes go through the package's own API, the rest of a
//! case through the core. Compiled with the feature `testing` only; called by `tests/test_conformance.py`.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use spanprof::conformance::{run_in, Case, Language, SampleStep};
use spanprof::ConfigValue;

use crate::convert;

struct PythonLanguage<'py> {
    config: Bound<'py, PyDict>,
    context: Bound<'py, PyAny>,
}

impl Language for PythonLanguage<'_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        convert::config_from(&self.config)
    }

    fn context(&mut self, sample: &SampleStep) -> u64 {
        let (scopes, bound_in) = (sample.scopes.clone(), sample.bound_in.clone());
        let id = self.context.call1((scopes, sample.prepared, bound_in, sample.returned));
        let id = id.and_then(|id| id.extract::<u64>());
        // No case uses this id, so a failing callback fails the case.
        id.unwrap_or(u64::MAX)
    }
}

/// Runs one case: its text, its `config` as Python parsed it, and a callback that returns the context id of a sample from its
/// `scopes`, `prepared`, `bound_in` and `returned`.
#[pyfunction]
fn run_case(text: &str, config: Bound<'_, PyDict>, context: Bound<'_, PyAny>) -> PyResult<String> {
    run_in(text, &mut PythonLanguage { config, context }).map_err(PyAssertionError::new_err)
}

/// Adds `run_case` to `_spanprof._testing`.
pub fn register(testing: &Bound<'_, PyModule>) -> PyResult<()> {
    testing.add_function(wrap_pyfunction!(run_case, testing)?)
}
