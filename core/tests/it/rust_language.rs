//! The Rust API in cases of the conformance suite.

use std::collections::BTreeMap;
use std::time::Duration;

use spanprof::{bind, tag_wrapper, Labels, RequestEnd, TagScope};
use spanprof_aggregate::context::context_row;
use spanprof_os::thread_context;
use spanprof_profiler::conformance::{report_end, EndRequest, Language, SampleStep, ScopeLabels};

/// The Rust API.
#[derive(Default)]
pub struct RustLanguage {
    /// Trace ids of the requests: without a middleware, samples belong to a request by their trace.
    requests: BTreeMap<String, [u8; 16]>,
}

impl Language for RustLanguage {
    fn context(&mut self, sample: &SampleStep) -> u64 {
        let current: fn() -> u64 = thread_context::current;
        if !sample.ended.is_empty() {
            let mut scopes: Vec<_> =
                sample.scopes.iter().map(|scope| Some(TagScope::enter(pairs(scope).as_slice()))).collect();
            sample.ended.iter().for_each(|index| scopes[*index] = None);
            return current();
        }
        let call: Box<dyn FnOnce() -> u64> = match &sample.bound_in {
            None => Box::new(current),
            Some(scopes) => inside(scopes, sample.prepared, Box::new(|| Box::new(bind(current)))),
        };
        let ended = usize::from(sample.returned && sample.bound_in.is_none());
        let (open, ended) = sample.scopes.split_at(sample.scopes.len().saturating_sub(ended));
        let work = || {
            let id = inside(ended, sample.prepared, call);
            if sample.returned {
                current()
            } else {
                id
            }
        };
        let id = inside(open, sample.prepared, Box::new(work));
        if let Some(name) = &sample.request {
            self.requests.insert(name.clone(), context_row(id).unwrap_or_default().link.trace_id);
        }
        id
    }

    fn end_request(&mut self, end: &EndRequest) {
        report_end(&RequestEnd {
            trace_id: self.requests.remove(&end.request).unwrap_or_default(),
            local_root_span_id: [0; 8],
            duration: Duration::from_millis(end.duration_ms.into()),
            endpoint: &end.endpoint,
            is_error: end.is_error,
        });
    }
}

/// Calls `work` inside scopes, outermost first.
fn inside<R>(scopes: &[ScopeLabels], prepared: bool, work: Box<dyn FnOnce() -> R + '_>) -> R {
    let Some((scope, inner)) = scopes.split_first() else { return work() };
    let labels = pairs(scope);
    let work = || inside(inner, prepared, work);
    if prepared {
        tag_wrapper(Labels::new(&labels), work)
    } else {
        tag_wrapper(labels.as_slice(), work)
    }
}

fn pairs(scope: &ScopeLabels) -> Vec<(&str, &str)> {
    scope.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}
