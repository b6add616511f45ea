//! Ended requests of the open window: all are counted by endpoint and rounded duration. Those with samples, the slowest of each
//! endpoint and the first that failed keep their span, with the time of their end: the end names the endpoint of the samples. Not here: the report of an end, tail-based retention.

use super::{Division, ResolvedSample, WeighedSample, Window, MAX_ENTRIES};
use crate::context::LabelSetId;
use crate::counters::Counters;
use crate::hash::WordMap;
use spanprof_profile::{Link, RequestDuration, TreeSpan};

/// Slowest requests of an endpoint that keep their span.
const SLOWEST: usize = 10;
/// Requests of a window that keep their span for being slow, for having failed, and for having samples. Further ones are only counted.
const MAX_SPANS: usize = 1024;

/// Requests with samples in this window and in the last one.
#[derive(Debug, Default)]
pub(super) struct SampledRequests([WordMap<Link, ()>; 2]);

impl SampledRequests {
    pub fn insert(&mut self, root: Link) {
        if self.0[0].len() < MAX_ENTRIES {
            self.0[0].insert(root, ());
        }
    }

    pub fn contains(&self, root: &Link) -> bool {
        self.0.iter().any(|roots| roots.contains_key(root))
    }

    pub fn end_window(&mut self) {
        self.0.swap(0, 1);
        self.0[0].clear();
    }
}

/// The requests that keep their span, of the requests since the last close.
#[derive(Debug, Default)]
pub(super) struct EndedSpans {
    /// By endpoint.
    slowest: WordMap<LabelSetId, Vec<EndedRequest>>,
    slow: usize,
    failed: usize,
    sampled: usize,
}

/// An ended request.
#[derive(Clone, Debug)]
struct EndedRequest {
    sample: WeighedSample,
    duration_ns: u64,
    /// What it awaited, if it keeps its span.
    awaited: Vec<WeighedSample>,
}

impl EndedSpans {
    /// Keeps the request if it is one of the slowest so far. Returns the one that is not, or no longer.
    fn keep_slow(&mut self, request: EndedRequest) -> Option<EndedRequest> {
        let of_endpoint = self.slowest.entry(request.sample.label_set).or_default();
        if of_endpoint.len() < SLOWEST && self.slow < MAX_SPANS {
            of_endpoint.push(request);
            self.slow += 1;
            return None;
        }
        let fastest = of_endpoint.iter_mut().min_by_key(|kept| kept.duration_ns);
        match fastest.filter(|fastest| fastest.duration_ns < request.duration_ns) {
            Some(fastest) => Some(std::mem::replace(fastest, request)),
            None => Some(request),
        }
    }
}

impl Window {
    /// Adds an ended request. Its link is that of its span, empty without one; its division is the rounded duration.
    pub fn add_request(
        &mut self,
        ended: ResolvedSample<'_>,
        duration_ns: u64,
        awaited: Vec<WeighedSample>,
        counters: &Counters,
    ) {
        let sample = self.weigh(ended, counters);
        let [_count, errors] = sample.values;
        let has_failed = errors > 0;
        let request = EndedRequest { sample, duration_ns, awaited };
        if request.sample.link == TreeSpan::default() || has_failed && self.ended.failed >= MAX_SPANS {
            self.count_request(&request.sample);
        } else if has_failed {
            self.ended.failed += 1;
            self.insert_span(request);
        } else if self.ended.sampled < MAX_SPANS && self.sampled.contains(&request.sample.link.root()) {
            self.ended.sampled += 1;
            self.insert_span(request);
        } else if let Some(faster) = self.ended.keep_slow(request) {
            self.count_request(&faster.sample);
        }
    }

    fn count_request(&mut self, sample: &WeighedSample) {
        let key = self.key(sample, false);
        self.add_to(sample.kind, key, sample.values, sample.time_ns);
    }

    fn insert_span(&mut self, EndedRequest { sample, duration_ns, awaited }: EndedRequest) {
        awaited.iter().for_each(|sample| self.insert(sample));
        self.awaited += awaited.len() as u64;
        let division = Some(Division::Duration(RequestDuration::fine(duration_ns)));
        self.insert_detailed(&WeighedSample { division, ..sample });
    }

    /// Adds the requests that were the slowest until the end of the window.
    pub(super) fn add_slowest_requests(&mut self) {
        let EndedSpans { slowest, .. } = std::mem::take(&mut self.ended);
        let mut requests: Vec<_> = slowest.into_values().flatten().collect();
        // In one order, so that equal windows have equal bytes.
        requests.sort_by_key(|EndedRequest { sample, .. }| (sample.label_set, sample.time_ns, sample.link));
        requests.into_iter().for_each(|request| self.insert_span(request));
    }
}
