//! Entry point of the conformance suite for Python: configuration and scopes go through the package's own API, the rest of a
//! case through the core. Compiled with the feature `testing` only; called by `tests/test_conformance.py`.

use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use spanprof_config::ConfigValue;
use spanprof_profiler::conformance::{run_in, Case, EndRequest, Language, SampleStep};

use crate::convert;

struct PythonLanguage<'py> {
    config: Bound<'py, PyDict>,
    context: Bound<'py, PyAny>,
    end_request: Bound<'py, PyAny>,
}

impl Language for PythonLanguage<'_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        convert::config_from(&self.config)
    }

    fn context(&mut self, sample: &SampleStep) -> u64 {
        let SampleStep { scopes, ended, bound_in, request, .. } = sample.clone();
        let id = self.context.call1((scopes, ended, sample.prepared, bound_in, sample.returned, request));
        let id = id.and_then(|id| id.extract::<u64>());
        // No case uses this id, so a failing callback fails the case.
        id.unwrap_or(u64::MAX)
    }

    fn end_request(&mut self, end: &EndRequest) {
        // An end that was not reported fails the case.
        let _ = self.end_request.call1((end.request.clone(), end.duration_ms, end.endpoint.clone(), end.is_error));
    }
}

/// Runs one case: its text, its `config` as Python parsed it, and a callback that returns the context id of a sample from its
/// `scopes`, `ended`, `prepared`, `bound_in`, `returned` and `request`. `end_request` gets the name, the milliseconds, the endpoint and whether
/// the request failed.
#[pyfunction]
fn run_case(
    text: &str,
    config: Bound<'_, PyDict>,
    context: Bound<'_, PyAny>,
    end_request: Bound<'_, PyAny>,
) -> PyResult<String> {
    run_in(text, &mut PythonLanguage { config, context, end_request }).map_err(PyAssertionError::new_err)
}

/// Adds `run_case` to `_spanprof._testing`.
pub fn register(testing: &Bound<'_, PyModule>) -> PyResult<()> {
    testing.add_function(wrap_pyfunction!(run_case, testing)?)
}
