//! Ends of requests, and what they awaited. Not here: which of them keep their span (`window::ended`).

use super::Drain;
use crate::context::row_of_sample;
use crate::counters::Counters;
use crate::retention::{EndOfRequest, RequestKey};
use crate::window::{Division, ResolvedSample, Window};
use spanprof_profile::{RequestDuration, TreeSpan};
use spanprof_signal::RawSample;

/// Names of calls that requests awaited, of the requests that end at the same time.
const MAX_AWAITED: usize = 4096;
impl Drain {
    /// Keeps what a request awaited until its end, which follows.
    pub(super) fn awaited(&mut self, position: u64, sample: &RawSample<'_>, window: &mut Window, counters: &Counters) {
        if self.awaited.len() >= MAX_AWAITED {
            self.awaited.clear();
        }
        let stack = self.stack_of(position, sample, counters);
        let row = row_of_sample(&sample.context).unwrap_or_default();
        let (label_set, link) = (row.label_set, TreeSpan::below(row.link, row.local_root_span_id));
        let resolved = ResolvedSample { sample, stack, label_set, link, division: None, thread_name: None };
        self.awaited.push(window.weigh(resolved, counters));
    }

    /// Counts an ended request, and decides on its held samples.
    pub(super) fn request_ended(
        &mut self,
        position: u64,
        sample: &RawSample<'_>,
        window: &mut Window,
        counters: &Counters,
    ) {
        let ended = row_of_sample(&sample.context).unwrap_or_default();
        let [duration_ns, error] = sample.values;
        if let Some(tail) = self.tail.as_mut().filter(|_| RequestKey::of(&ended).is_some()) {
            let end = EndOfRequest { time_ns: sample.time_ns, duration_ns, endpoint: sample.key, is_error: error != 0 };
            tail.end(RequestKey::all_of(&ended), &end, counters);
            self.add_released(window);
        }
        let counted = RawSample { values: [1, error], ..*sample };
        let stack = self.stack_of(position, &counted, counters);
        let has_span = ended.link.span_id != [0; 8];
        let own = if has_span { TreeSpan::below(ended.link, ended.local_root_span_id) } else { TreeSpan::default() };
        // A collection has the spans of failed requests only: each span is a sample of its own.
        let link = if error != 0 { own } else { TreeSpan::default() };
        let division = Some(Division::Duration(RequestDuration::coarse(duration_ns)));
        let resolved =
            ResolvedSample { sample: &counted, stack, label_set: ended.label_set, link, division, thread_name: None };
        self.collections.add(&resolved);
        let awaited = self.awaited.extract_if(.., |awaited| awaited.link == own).collect();
        window.add_request(ResolvedSample { link: own, ..resolved }, duration_ns, awaited, counters);
    }
}
