//! Entry point of the Node.js runner of the conformance suite. Configuration and scopes go through the package's own API, the
//! rest of a case through the core. Compiled with the feature `testing` only; called by `tests/conformance.test.js`.

use napi::bindgen_prelude::Function;
use napi::{Error, Result};
use napi_derive::napi;
use serde_json::json;
use spanprof_config::{from_json, ConfigValue};
use spanprof_profiler::conformance::{run_in, Case, EndRequest, Language, SampleStep};

struct JavaScript<'a> {
    config: Vec<(String, ConfigValue)>,
    context: Function<'a, String, f64>,
    end_request: Function<'a, String, ()>,
}

impl Language for JavaScript<'_> {
    fn code(&mut self, _case: &Case) -> Vec<(String, ConfigValue)> {
        std::mem::take(&mut self.config)
    }

    fn context(&mut self, sample: &SampleStep) -> u64 {
        let SampleStep { scopes, prepared, bound_in, returned, request, .. } = sample;
        let step = json!({
            "scopes": scopes, "prepared": prepared, "boundIn": bound_in, "returned": returned, "request": request,
        });
        let id = self.context.call(step.to_string()).ok();
        // No case has this id, so that a failing callback fails the case.
        id.map_or(u64::MAX, |id| id as u64)
    }

    fn end_request(&mut self, end: &EndRequest) {
        let EndRequest { request, duration_ms, endpoint, is_error, .. } = end;
        let end = json!({"request": request, "milliseconds": duration_ms, "endpoint": endpoint, "isError": is_error});
        // An end that was not reported fails the case.
        let _ = self.end_request.call(end.to_string());
    }
}

/// Runs one case. `config_json`: its `config` as the package's options; `context`: returns the context id of a
/// sample from its `scopes`, `prepared`, `boundIn`, `returned` and `request` (JSON); `end_request`: reports the end of a request
/// (JSON). Returns the case's name, or throws with the expectation that failed.
#[napi]
pub fn run_case(
    text: String,
    config_json: String,
    context: Function<String, f64>,
    end_request: Function<String, ()>,
) -> Result<String> {
    let config = from_json(&config_json).map_err(|error| Error::from_reason(error.to_string()))?;
    run_in(&text, &mut JavaScript { config, context, end_request }).map_err(Error::from_reason)
}
