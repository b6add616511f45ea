//! Tail-based retention: holds the samples of unfinished requests, and decides at the end of each request whether they keep
//! timestamps and span link. Owned by the drain thread. Not here: the window (`window`), the report of an end (`request`).
//!
//! # Rules
//! 1. A request is identified by its local root. Samples without a known local root belong to their trace.
//! 2. A sample's weight is computed when it is drained, before it is held: holding changes no total.
//! 3. Held samples count their bytes, and so do the stacks that outlive their window. Beyond `TailPolicy::max_bytes` the oldest
//!    requests are released undecided, without detail.
//! 4. A condition that the samples already prove (duration, allocated bytes) decides before the end. A request without a
//!    sample for [`MAX_IDLE_NS`] is released undecided: its end was lost, or never reported.
//! 5. Decisions are remembered for a bounded number of requests, for samples that are drained after the end.
//! 6. Kept samples are a profile of their own with one value and one timestamp each: all samples of an OTLP profile have
//!    timestamps or none, and Pyroscope rejects samples with several values and timestamps.
//!
//! Detail cannot be added later: a closed window does not change, and sending it again would count it twice. A window
//! that stays open until its requests end would let one long request delay all profiles. Wall time without an end proves
//! no long request, since an end that is never reported would keep every request.

mod latency;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::context::ContextRow;
use crate::counters::Counters;
use crate::hash::WordMap;
use crate::heap::{LiveStack, LiveStacks};
use crate::resolve::locations::LocationTable;
use crate::resolve::stacks::StackTable;
use crate::window::WeighedSample;
use latency::EndpointLatencies;
use policy::RequestTotals;
pub(crate) use policy::{EndOfRequest, KeepReason};
pub use policy::{SlowLimit, TailPolicy};
use spanprof_signal::SampleKind;

/// Time without a sample after which a request is released undecided.
pub(crate) const MAX_IDLE_NS: u64 = 300_000_000_000;
/// Decisions per generation; at most two generations are remembered.
const DECISIONS: usize = 16_384;
/// Bytes of a request beside its samples: its entries in two maps.
const REQUEST_BYTES: usize = 192;
const SAMPLE_BYTES: usize = size_of::<HeldSample>();

/// Identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestKey {
    /// Id of the local root: of a span, or of a request that a middleware reports.
    LocalRoot([u8; 8]),
    /// A trace whose local root is unknown.
    Trace([u8; 16]),
}

impl RequestKey {
    /// The request of a context; `None` outside of requests.
    pub fn of(row: &ContextRow) -> Option<Self> {
        Self::local_root(row.local_root_span_id).or_else(|| Self::trace(row.link.trace_id))
    }

    /// The keys of an ended request's samples. The context of the end has the trace, the local root, and as span the local
    /// root span that began inside of a middleware's request.
    pub fn all_of(ended: &ContextRow) -> impl Iterator<Item = Self> + Clone {
        let roots = [ended.local_root_span_id, ended.link.span_id].map(Self::local_root);
        roots.into_iter().chain([Self::trace(ended.link.trace_id)]).flatten()
    }

    fn local_root(id: [u8; 8]) -> Option<Self> {
        (id != [0; 8]).then_some(Self::LocalRoot(id))
    }

    fn trace(id: [u8; 16]) -> Option<Self> {
        (id != [0; 16]).then_some(Self::Trace(id))
    }
}

/// A sample of an undecided request.
pub(crate) struct HeldSample {
    pub sample: WeighedSample,
    /// Its stack, once the window of `sample.stack` has closed.
    pub stack: Option<LiveStack>,
}

/// A sample that goes into the open window.
pub(crate) struct ReleasedSample {
    pub held: HeldSample,
    /// Whether it keeps its timestamp and its span link.
    pub is_detailed: bool,
}

/// The decision on an ended request.
#[derive(Clone, Copy)]
struct Decision {
    is_kept: bool,
    /// Samples after this time belong to another request: a trace may have several in one process.
    until_ns: u64,
}

struct OpenRequest {
    samples: Vec<HeldSample>,
    totals: RequestTotals,
    first_ns: u64,
    last_ns: u64,
    /// Its samples are kept already.
    is_kept: bool,
    order: u64,
}

/// The held samples of unfinished requests, and the recent decisions.
pub(crate) struct TailBuffer {
    policy: TailPolicy,
    open: WordMap<RequestKey, OpenRequest>,
    /// Open requests by age.
    by_order: BTreeMap<u64, RequestKey>,
    next_order: u64,
    bytes: usize,
    stack_bytes: usize,
    decided: [WordMap<RequestKey, Decision>; 2],
    latencies: EndpointLatencies,
    /// Stacks of held samples whose window closed.
    pub stacks: LiveStacks,
    /// Samples to add to the open window, in order.
    pub released: Vec<ReleasedSample>,
}

impl TailBuffer {
    pub fn new(policy: TailPolicy) -> Self {
        Self {
            policy,
            open: WordMap::default(),
            by_order: BTreeMap::new(),
            next_order: 0,
            bytes: 0,
            stack_bytes: 0,
            decided: Default::default(),
            latencies: EndpointLatencies::default(),
            stacks: LiveStacks::default(),
            released: Vec::new(),
        }
    }

    pub fn set_policy(&mut self, policy: TailPolicy) {
        self.policy = policy;
    }

    pub fn has_held(&self) -> bool {
        !self.by_order.is_empty() || !self.released.is_empty()
    }

    /// Adds a sample of a request: holds it, or releases it where the request is decided.
    pub fn add(&mut self, request: RequestKey, sample: WeighedSample, counters: &Counters) {
        let (kind, time_ns, values) = (sample.kind, sample.time_ns, sample.values);
        let held = HeldSample { sample, stack: None };
        if let Some(is_detailed) = self.decision(&request, time_ns) {
            self.released.push(ReleasedSample { held, is_detailed });
            return;
        }
        let (order, by_order, bytes) = (self.next_order, &mut self.by_order, &mut self.bytes);
        let open = self.open.entry(request).or_insert_with(|| {
            by_order.insert(order, request);
            *bytes += REQUEST_BYTES + SAMPLE_BYTES;
            OpenRequest {
                samples: Vec::with_capacity(1),
                totals: RequestTotals::default(),
                first_ns: time_ns,
                last_ns: time_ns,
                is_kept: false,
                order,
            }
        });
        self.next_order += u64::from(open.order == order);
        // Samples of several threads are not in the order of their times.
        (open.first_ns, open.last_ns) = (open.first_ns.min(time_ns), open.last_ns.max(time_ns));
        if open.is_kept {
            self.released.push(ReleasedSample { held, is_detailed: true });
            return;
        }
        match kind {
            SampleKind::Cpu => {
                let [_periods, cpu_ns] = values;
                open.totals.cpu_ns += cpu_ns;
            }
            SampleKind::Alloc => {
                let [bytes, _objects] = values;
                open.totals.allocated_bytes += bytes;
            }
            _ => {}
        }
        open.totals.observed_ns = open.last_ns - open.first_ns;
        let capacity = open.samples.capacity();
        open.samples.push(held);
        self.bytes += (open.samples.capacity() - capacity) * SAMPLE_BYTES;
        if let Some(reason) = self.policy.before_end(&open.totals) {
            open.is_kept = true;
            let samples = std::mem::take(&mut open.samples);
            self.bytes -= samples.capacity() * SAMPLE_BYTES;
            counters.count_kept(reason);
            self.release(samples, true);
        }
        self.keep_within_bytes(counters);
        counters.tail_held_bytes.set(self.held_bytes());
    }

    /// Decides on a request at its end. Its samples were held under `keys`.
    pub fn end(&mut self, keys: impl Iterator<Item = RequestKey> + Clone, end: &EndOfRequest, counters: &Counters) {
        counters.tail_requests.add(1);
        let requests: Vec<OpenRequest> = keys.clone().filter_map(|key| self.take(&key)).collect();
        let totals = requests.iter().fold(RequestTotals::default(), |sum, open| RequestTotals {
            cpu_ns: sum.cpu_ns + open.totals.cpu_ns,
            allocated_bytes: sum.allocated_bytes + open.totals.allocated_bytes,
            observed_ns: 0,
        });
        let reason = self.policy.at_end(end, &totals, &mut self.latencies);
        let was_kept = requests.iter().any(|open| open.is_kept);
        if let Some(reason) = reason.filter(|_| !was_kept) {
            counters.count_kept(reason);
        }
        let is_kept = was_kept || reason.is_some();
        for open in requests {
            self.release(open.samples, is_kept);
        }
        for key in keys {
            self.remember(key, is_kept, end.time_ns);
        }
        counters.tail_held_bytes.set(self.held_bytes());
    }

    /// Releases requests without a sample for [`MAX_IDLE_NS`].
    pub fn release_idle(&mut self, now_ns: u64, counters: &Counters) {
        let is_idle = |open: &OpenRequest| open.last_ns.saturating_add(MAX_IDLE_NS) <= now_ns;
        let idle: Vec<_> =
            self.by_order.values().filter(|key| self.open.get(key).is_some_and(is_idle)).copied().collect();
        for request in idle {
            self.release_undecided(&request, counters);
        }
        counters.tail_held_bytes.set(self.held_bytes());
    }

    /// Releases every request, at the end of the run.
    pub fn release_all(&mut self, counters: &Counters) {
        while let Some((_, request)) = self.by_order.first_key_value() {
            let request = *request;
            self.release_undecided(&request, counters);
        }
        counters.tail_held_bytes.set(self.held_bytes());
    }

    /// Makes the held samples independent of the window's tables, which are about to be cleared.
    pub fn outlive_window(&mut self, stacks: &StackTable, locations: &LocationTable, counters: &Counters) {
        for open in self.open.values_mut() {
            for held in open.samples.iter_mut().filter(|held| held.stack.is_none()) {
                held.stack = Some(self.stacks.intern(held.sample.stack, stacks, locations));
            }
        }
        self.stacks.forget_window();
        self.stacks.forget_unused();
        self.stack_bytes = self.stacks.bytes();
        // Stacks are shared: the bytes of those that only released requests use are known at the next call.
        self.keep_within_bytes(counters);
        counters.tail_held_bytes.set(self.held_bytes());
    }

    fn held_bytes(&self) -> u64 {
        (self.bytes + self.stack_bytes) as u64
    }

    /// Releases the oldest requests beyond the bound.
    fn keep_within_bytes(&mut self, counters: &Counters) {
        while self.bytes + self.stack_bytes > self.policy.max_bytes {
            let Some((_, request)) = self.by_order.first_key_value() else { return };
            let request = *request;
            self.release_undecided(&request, counters);
        }
    }

    fn release_undecided(&mut self, request: &RequestKey, counters: &Counters) {
        let Some(open) = self.take(request) else { return };
        counters.tail_undecided.add(u64::from(!open.is_kept));
        self.release(open.samples, false);
    }

    /// Removes an open request.
    fn take(&mut self, request: &RequestKey) -> Option<OpenRequest> {
        let open = self.open.remove(request)?;
        self.by_order.remove(&open.order);
        self.bytes -= REQUEST_BYTES + open.samples.capacity() * SAMPLE_BYTES;
        Some(open)
    }

    fn release(&mut self, samples: Vec<HeldSample>, is_detailed: bool) {
        self.released.extend(samples.into_iter().map(|held| ReleasedSample { held, is_detailed }));
    }

    fn decision(&self, request: &RequestKey, time_ns: u64) -> Option<bool> {
        let decision = self.decided.iter().find_map(|decided| decided.get(request))?;
        (time_ns <= decision.until_ns).then_some(decision.is_kept)
    }

    fn remember(&mut self, request: RequestKey, is_kept: bool, end_ns: u64) {
        let until_ns = if matches!(request, RequestKey::Trace(_)) { end_ns } else { u64::MAX };
        let [newer, older] = &mut self.decided;
        if newer.len() >= DECISIONS {
            *older = std::mem::take(newer);
        }
        newer.insert(request, Decision { is_kept, until_ns });
    }
}

impl Counters {
    fn count_kept(&self, reason: KeepReason) {
        match reason {
            KeepReason::Duration => &self.tail_kept_duration,
            KeepReason::Percentile => &self.tail_kept_p99,
            KeepReason::CpuShare => &self.tail_kept_cpu_share,
            KeepReason::AllocatedBytes => &self.tail_kept_allocated_bytes,
            KeepReason::Error => &self.tail_kept_error,
        }
        .add(1);
    }
}
