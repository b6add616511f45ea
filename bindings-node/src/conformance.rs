//! Entry point of the Node.js runner of the conformance suite. Configuration and scopes go through the package's own API, the
//! rest of a case through the core. Compiled with the feature `testing` only; called by `tests/conformance.test.js`.

use napi::bindgen_prelude::Function;
use napi::{Error, Result};
use napi_derive::napi;
use serde_json::json;
use spanprof::config::from_json;
use spanprof::conformance::{run_in, Case, Language, SampleStep};
use spanprof::ConfigValue;

struct JavaScript<'a> {
    config: Vec<(String, ConfigValue)>,
    context: Function<'a, String, f64>,
}

impl Language for JavaScript<'_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        std::mem::take(&mut self.config)
    }

    fn context(&mut self, sample: &SampleStep) -> u64 {
        let SampleStep { scopes, prepared, bound_in, returned, .. } = sample;
        let step = json!({"scopes": scopes, "prepared": prepared, "boundIn": bound_in, "returned": returned});
        let id = self.context.call(step.to_string()).ok();
        // No case has this id, so that a failing callback fails the case.
        id.map_or(u64::MAX, |id| id as u64)
    }
}

/// Runs one case. `config_json`: its `config` as the package's options; `context`: returns the context id of a
/// sample from its `scopes`, `prepared`, `boundIn` and `returned` (JSON). Returns the case's name, or throws with the expectation that failed.
#[napi]
pub fn run_case(text: String, config_json: String, context: Function<String, f64>) -> Result<String> {
    let config = from_json(&config_json).map_err(|error| Error::from_reason(error.to_string()))?;
    run_in(&text, &mut JavaScript { config, context }).map_err(Error::from_reason)
}
