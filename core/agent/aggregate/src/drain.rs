//! Resolves the raw samples of the ring and adds them to the open window. Runs on the drain thread, or in `stop` when
//! no drain thread is left. Not here: scheduling (`profiler`), aggregation and closing (`window`).

mod request_ends;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::context::{labels_of, row_of_sample, ContextRow, LabelSetId};
use crate::counters::Counters;
use crate::hash::WordMap;
use crate::heap::{HeapEstimator, InUseTotals};
use crate::resolve::locations::LocationTable;
use crate::resolve::stacks::{RawStackAt, StackIndex, StackLosses, StackTable};
use crate::retention::{RequestKey, TailBuffer, TailPolicy};
use crate::runtime::{EndedCode, Frame, HeapRuntime, Runtime};
use crate::thread_names::ThreadNames;
use crate::window::captured::CapturedWindows;
use crate::window::{
    Division, ResolvedSample, SampleCollection, SampleCollections, WeighedSample, Window, WindowSettings,
};
use spanprof_profile::{HeapAge, TreeSpan};
use spanprof_signal::heap::HeapSampling;
use spanprof_signal::{DropReason, RawFrame, RawSample, Ring, SampleFlags, SampleKind, SyntheticFrame};

/// Kinds of samples that pulls without a duration sum up since the start.
const SINCE_START: [SampleKind; 2] = [SampleKind::Alloc, SampleKind::Lock];
/// Words of the ring that are drained between two checks of the window's size.
const BATCH_WORDS: u64 = 32_768;

/// The tables that resolve raw samples, and the captures, collections and held requests that samples are added to.
pub(crate) struct Drain {
    runtime: Arc<dyn Runtime>,
    pub locations: LocationTable,
    pub stacks: StackTable,
    pub heap: HeapEstimator,
    heap_sampling: &'static HeapSampling,
    /// Whether objects in use are divided by age.
    heap_age: bool,
    ended_code: VecDeque<EndedCode>,
    ended_scratch: Vec<EndedCode>,
    losses: StackLosses,
    max_stacks: u32,
    /// Samples of unfinished requests, with tail-based retention.
    tail: Option<TailBuffer>,
    pub captures: CapturedWindows,
    /// Of requests whose end follows.
    awaited: Vec<WeighedSample>,
    /// Frames of a wait, with its reason as the leaf.
    wait_frames: Vec<RawFrame>,
    /// Take the same samples as the window.
    pub collections: SampleCollections,
    thread_names: ThreadNames,
}

impl Drain {
    pub fn new(
        runtime: Arc<dyn Runtime>,
        locations: LocationTable,
        heap: HeapEstimator,
        heap_sampling: &'static HeapSampling,
        max_stacks: u32,
    ) -> Self {
        Self {
            runtime,
            locations,
            stacks: StackTable::default(),
            heap,
            heap_sampling,
            heap_age: false,
            ended_code: VecDeque::new(),
            ended_scratch: Vec::new(),
            losses: StackLosses::default(),
            max_stacks,
            tail: None,
            captures: CapturedWindows::default(),
            awaited: Vec::new(),
            wait_frames: Vec::new(),
            collections: SampleCollections::default(),
            thread_names: ThreadNames::default(),
        }
    }

    /// Starts, changes or ends tail-based retention. Samples that are no longer held go into `window`.
    pub fn set_retention(&mut self, policy: Option<TailPolicy>, window: &mut Window, counters: &Counters) {
        match (policy, &mut self.tail) {
            (Some(policy), Some(tail)) => tail.set_policy(policy),
            (Some(policy), None) => self.tail = Some(TailBuffer::new(policy)),
            (None, _) => {
                self.release_held(None, window, counters);
                self.tail = None;
            }
        }
    }

    /// Whether samples of unfinished requests are held.
    pub fn has_held(&self) -> bool {
        self.tail.as_ref().is_some_and(TailBuffer::has_held)
    }

    /// Moves the held samples of idle requests into `window`; of all requests if `now_ns` is `None`.
    pub fn release_held(&mut self, now_ns: Option<u64>, window: &mut Window, counters: &Counters) {
        let Some(tail) = &mut self.tail else { return };
        match now_ns {
            Some(now_ns) => tail.release_idle(now_ns, counters),
            None => tail.release_all(counters),
        }
        self.add_released(window);
    }

    /// Adds the released samples to `window`.
    fn add_released(&mut self, window: &mut Window) {
        let Some(tail) = &mut self.tail else { return };
        for released in tail.released.drain(..) {
            let mut sample = released.held.sample;
            if let Some(stack) = &released.held.stack {
                sample.stack = tail.stacks.index(stack, &mut self.stacks, &mut self.locations, self.max_stacks);
            }
            if released.is_detailed {
                window.insert_detailed(&sample);
            } else {
                window.insert(&sample);
            }
        }
    }

    /// Whether objects in use are divided by age.
    pub fn set_heap_age(&mut self, heap_age: bool) {
        self.heap_age = heap_age;
    }

    /// Begins to sum up the samples that pulls without a duration contain.
    pub fn begin_since_start(&mut self, settings: WindowSettings, now_ns: u64) {
        let kinds = SINCE_START.to_vec();
        let collection = SampleCollection::since_start(settings, kinds, now_ns, self.max_stacks);
        self.collections.since_start = Some(collection);
    }

    /// Installs the sampling of the heap again where a thread lost it.
    pub fn ensure_heap_sampling(&self) {
        self.heap_sampling.ensure_sampling();
    }

    /// Moves the committed entries below the position `up_to` into `window`. Stops early when the window is full; true when
    /// entries may be left.
    pub fn drain(&mut self, ring: &Ring, up_to: u64, window: &mut Window, counters: &Counters) -> bool {
        // Read first: the runtime then reports all code that ended before an entry below the head was reserved.
        let head = ring.head().min(up_to);
        self.collect_ended_code();
        self.thread_names.take_changes();
        self.stacks.refresh_native(ring, &mut self.locations);
        loop {
            // In batches, so that a full ring does not overfill the window.
            let batch_end = head.min(ring.tail() + BATCH_WORDS);
            let samples = ring.drain(batch_end, &mut |position, sample| {
                self.process(position, &sample, window, counters);
                self.stacks.refresh_after_resolution(ring, &mut self.locations);
            });
            let done = samples == 0 || ring.tail() >= head;
            if done || window.is_full() {
                self.forget_ended_code(ring.tail());
                self.runtime.end_batch();
                let interval = self.heap.limit();
                self.set_heap_interval(interval);
                counters.heap_thinned.add(self.heap.take_thinned());
                return !done;
            }
        }
    }

    /// Collects from the runtime the code that ended. Called after the ring's head was read, before its samples are
    /// processed.
    pub fn collect_ended_code(&mut self) {
        self.ended_scratch.clear();
        self.runtime.ended(&mut self.ended_scratch);
        let in_order = self.ended_scratch.windows(2).all(|pair| pair[0].position <= pair[1].position);
        if !in_order {
            self.ended_scratch.sort_by_key(|ended| ended.position);
        }
        // A thread may report late: its entries are sorted before later positions that other threads already reported.
        let first = self.ended_scratch.first().map_or(u64::MAX, |ended| ended.position);
        let is_late = self.ended_code.back().is_some_and(|ended| ended.position > first);
        self.ended_code.extend(self.ended_scratch.drain(..));
        if is_late {
            self.ended_code.make_contiguous().sort_by_key(|ended| ended.position);
        }
    }

    /// Resolves one sample from ring position `position` and adds it to `window`.
    pub fn process(&mut self, position: u64, sample: &RawSample<'_>, window: &mut Window, counters: &Counters) {
        self.forget_ended_code(position);
        match sample.kind {
            SampleKind::RequestEnd => return self.request_ended(position, sample, window, counters),
            SampleKind::Awaited => return self.awaited(position, sample, window, counters),
            _ => {}
        }
        if sample.kind == SampleKind::Wall {
            let [observed_ns, off_cpu_ns] = sample.values;
            if off_cpu_ns > 0 {
                self.process_wait(position, sample, off_cpu_ns, window, counters);
            }
            // Without wall-clock samples, the wall sampler submits waits only.
            if observed_ns == 0 {
                return;
            }
            let is_of_window = window.settings().wall && !sample.flags.has(SampleFlags::ON_DEMAND);
            if !is_of_window {
                if self.collections.take(sample) {
                    let flags = SampleFlags(sample.flags.0 | SampleFlags::ON_DEMAND);
                    self.resolve_and_add(position, &RawSample { flags, ..*sample }, window, counters);
                }
                return;
            }
        }
        self.resolve_and_add(position, sample, window, counters);
    }

    /// Adds the off-CPU part of a wall sample.
    fn process_wait(
        &mut self,
        position: u64,
        sample: &RawSample<'_>,
        off_cpu_ns: u64,
        window: &mut Window,
        counters: &Counters,
    ) {
        let mut frames = std::mem::take(&mut self.wait_frames);
        frames.clear();
        frames.extend(SyntheticFrame::from_code(sample.key).map(RawFrame::synthetic));
        frames.extend_from_slice(sample.frames);
        let flags = SampleFlags(sample.flags.0 & !SampleFlags::ON_DEMAND);
        let values = [off_cpu_ns, 0];
        let wait = RawSample { kind: SampleKind::OffCpu, flags, values, key: 0, frames: &frames, ..*sample };
        self.resolve_and_add(position, &wait, window, counters);
        self.wait_frames = frames;
    }

    /// Resolves the stack of a sample and counts what it loses.
    fn stack_of(&mut self, position: u64, sample: &RawSample<'_>, counters: &Counters) -> StackIndex {
        let truncated = sample.flags.has(SampleFlags::TRUNCATED);
        let before = self.losses;
        let stack = self.stacks.stack(
            RawStackAt { frames: sample.frames, truncated, position },
            self.max_stacks,
            &mut self.locations,
            &*self.runtime,
            &mut self.losses,
        );
        counters.frames_code_ended.add(self.losses.unnamed_frames - before.unnamed_frames);
        counters.dropped_too_many_stacks.add(self.losses.too_many_stacks - before.too_many_stacks);
        counters.stacks_truncated.add(u64::from(truncated));
        stack
    }

    fn resolve_and_add(&mut self, position: u64, sample: &RawSample<'_>, window: &mut Window, counters: &Counters) {
        let mut stack = self.stack_of(position, sample, counters);
        let row = row_of_sample(&sample.context).unwrap_or_else(|| {
            counters.contexts_expired.add(1);
            ContextRow::default()
        });
        let mut sample = *sample;
        if sample.kind == SampleKind::Alloc && sample.flags.has(SampleFlags::SIZE_AND_INTERVAL) {
            let heap = self.runtime.heap();
            let is_of_allocator = |frame: &Frame| heap.is_some_and(|heap| heap.is_of_allocator(frame));
            let type_of = |functions: &[Frame]| heap?.allocated_type(functions);
            stack = self.stacks.without_leaf(stack, self.max_stacks, &mut self.locations, is_of_allocator, type_of);
            self.follow_object(&mut sample, stack, row.label_set);
        }
        if sample.kind == SampleKind::Lock {
            let is_of_lock = |frame: &Frame| self.runtime.events().is_some_and(|events| events.is_of_lock(frame));
            stack = self.stacks.without_leaf(stack, self.max_stacks, &mut self.locations, is_of_lock, |_| None);
        }
        let (label_set, link) = (row.label_set, TreeSpan::below(row.link, row.local_root_span_id));
        let thread_name = self.thread_names.name(sample.thread_id, sample.time_ns);
        let resolved = ResolvedSample { sample: &sample, stack, label_set, link, division: None, thread_name };
        self.collections.add(&resolved);
        if sample.flags.has(SampleFlags::ON_DEMAND) {
            return;
        }
        let weighed = window.weigh(resolved, counters);
        if row.capture != 0 && !self.captures.add(row.capture, &weighed) {
            counters.capture_dropped.add(1);
        }
        match (&mut self.tail, RequestKey::of(&row)) {
            // Live threads belong to the end of this window.
            (Some(tail), Some(request)) if sample.kind != SampleKind::Threads => {
                tail.add(request, weighed, counters);
                self.add_released(window);
            }
            _ => window.insert(&weighed),
        }
    }

    /// Replaces size and interval of a sampled allocation by its weights. Keeps its stack while its object is live.
    fn follow_object(&mut self, sample: &mut RawSample<'_>, stack: StackIndex, label_set: LabelSetId) {
        if !self.heap.has_live() {
            self.heap.set_live(self.heap_sampling.live_set());
        }
        let [size, interval] = sample.values;
        self.heap.rate.count(sample.time_ns);
        let live_stack = self.heap.stacks.intern(stack, &self.stacks, &self.locations);
        self.heap.add(sample.key, sample.values, label_set, live_stack);
        sample.values = self.heap.allocation_weights(size, interval);
    }

    /// Estimated bytes of the live objects.
    pub fn live_bytes(&mut self) -> u64 {
        if let Some(heap) = self.runtime.heap() {
            heap.remove_collected_objects();
        }
        self.heap.live_bytes()
    }

    /// The live objects. Does not end the window of their ages.
    pub fn in_use(&mut self) -> Vec<InUseTotals> {
        if let Some(heap) = self.runtime.heap() {
            heap.remove_collected_objects();
        }
        self.heap.in_use(self.heap_age, self.runtime.heap())
    }

    /// Adds the live objects to `window`.
    pub fn add_in_use(&mut self, now_ns: u64, window: &mut Window, counters: &Counters) {
        let has_age = |set: LabelSetId| labels_of(set).iter().any(|(name, _)| name == HeapAge::LABEL);
        let mut labeled: WordMap<LabelSetId, bool> = WordMap::default();
        for totals in self.in_use() {
            let (stacks, locations) = (&mut self.stacks, &mut self.locations);
            let stack = self.heap.stacks.index(&totals.stack, stacks, locations, self.max_stacks);
            let (label_set, values) = (totals.label_set, totals.values);
            let mut is_labeled = || *labeled.entry(label_set).or_insert_with(|| has_age(label_set));
            let division = totals.age.filter(|_| !is_labeled()).map(Division::Age);
            window.insert(&WeighedSample {
                kind: SampleKind::InUse,
                values,
                time_ns: now_ns,
                stack,
                label_set,
                // An object outlives the span that allocated it.
                link: TreeSpan::default(),
                thread: None,
                division,
            });
            counters.samples_submitted.add(1);
        }
        self.heap.end_window();
        let interval = self.heap.relax();
        self.set_heap_interval(interval);
    }

    fn set_heap_interval(&self, changed: Option<u64>) {
        let Some(interval) = changed else { return };
        self.heap_sampling.lengthen_interval(interval);
        self.runtime.heap().into_iter().for_each(HeapRuntime::interval_changed);
    }

    /// The stack whose only frame is the drop reason.
    pub fn reason_stack(&mut self, reason: DropReason) -> StackIndex {
        self.stacks.reason(reason, &mut self.locations)
    }

    /// Clears the tables. Called when no open window holds an index into them.
    pub fn between_windows(&mut self, counters: &Counters, is_alive: &mut dyn FnMut(u32) -> bool) {
        if let Some(tail) = &mut self.tail {
            tail.outlive_window(&self.stacks, &self.locations, counters);
        }
        self.thread_names.forget_ended(is_alive);
        self.stacks.clear();
        self.heap.stacks.forget_window();
        self.locations.end_window();
    }

    /// Forgets code that ended at or before `position`: frames of later samples with its id are other code.
    fn forget_ended_code(&mut self, position: u64) {
        let mut is_cached = false;
        while self.ended_code.front().is_some_and(|ended| ended.position <= position) {
            if let Some(ended) = self.ended_code.pop_front() {
                is_cached |= self.locations.code_ended(ended.code);
            }
        }
        if is_cached {
            self.stacks.forget_raw();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::tables;
    use crate::scripted_engine_testing::{redactor, ScriptedSymbols, WINDOW};
    use crate::testing::FakeRuntime;
    use crate::window::{CloseInput, ClosedWindow};
    use spanprof_os::new_live_set;
    use spanprof_profile::code_origin::OwnCode;
    use spanprof_signal::{AddressFilter, Context, InlineContext, LiveSet};

    fn drain_of(runtime: Arc<FakeRuntime>, heap: HeapEstimator) -> Drain {
        let sampling: &'static HeapSampling = Box::leak(Box::new(HeapSampling::new()));
        Drain::new(runtime, LocationTable::new(Box::new(ScriptedSymbols)), heap, sampling, 16)
    }

    /// Closes the window; labels and bytes of each sample of objects in use.
    fn in_use(drain: &Drain, window: &mut Window) -> Vec<String> {
        let ClosedWindow { data, .. } = window
            .close(CloseInput {
                locations: &drain.locations,
                stacks: &drain.stacks,
                resource: &[],
                dropped_attributes: 0,
                tags: &[],
                service_name: "",
                comment: "",
                now_monotonic_ns: 10,
                unix_offset_ns: 0,
                profile_id: || [1; 16],
                duty_cycles: &[],
                own_code: &OwnCode::default(),
            })
            .unwrap()
            .redacted(&mut redactor());
        let (_, profile) = data.profiles().find(|(_, profile)| profile.type_name() == "inuse_space").unwrap();
        let line = |sample: &spanprof_profile::Sample| {
            let labels: Vec<_> = data.dictionary.attributes_of(sample.attributes).collect();
            let labels: Vec<_> = labels.iter().map(|label| format!("{}={}", label.key, label.value)).collect();
            format!("{} {}", labels.join(","), sample.total())
        };
        let mut lines: Vec<_> = profile.samples.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn objects_in_use_carry_their_age_and_a_label_of_the_program_with_that_name_stays() {
        let filter: &'static AddressFilter = Box::leak(Box::new(AddressFilter::new()));
        let live: &'static LiveSet = Box::leak(Box::new(new_live_set(1024, filter).unwrap()));
        let runtime = FakeRuntime::new();
        let mut drain = drain_of(runtime.clone(), HeapEstimator::new(Some(live), 1, 1024, 0));
        drain.set_heap_age(true);
        let frames = [RawFrame { code: runtime.define("make", "a.fake", 1), at: 0 }];
        let own = tables().extend(LabelSetId::EMPTY, &[("age", "42")]);
        let settings = WINDOW;
        let (mut window, counters) = (Window::new(settings, 0), Counters::default());
        let mut closed = Vec::new();
        for number in 0..2 {
            for (offset, label_set) in [LabelSetId::EMPTY, own].into_iter().enumerate() {
                let address = 4096 + 16 * (2 * number + offset);
                let context = InlineContext { label_set: label_set.0, ..InlineContext::default() };
                drain.process(
                    0,
                    &RawSample {
                        kind: SampleKind::Alloc,
                        flags: SampleFlags(SampleFlags::SIZE_AND_INTERVAL),
                        thread_id: 1,
                        time_ns: 1,
                        values: [1000, 1],
                        key: live.insert(address, 1000, 1).unwrap(),
                        context: Context::Inline(context),
                        frames: &frames,
                    },
                    &mut window,
                    &counters,
                );
            }
            drain.add_in_use(5, &mut window, &counters);
            closed.push(in_use(&drain, &mut window));
            drain.between_windows(&counters, &mut |_| true);
        }
        assert_eq!(closed[0], ["age=42 1000", "age=new 1000"]);
        assert_eq!(closed[1], ["age=42 2000", "age=new 1000", "age=survived 1000"]);
    }

    #[test]
    fn ended_code_that_is_reported_late_is_forgotten_at_its_own_position() {
        let runtime = FakeRuntime::new();
        let [early, late] = ["early", "late"].map(|name| runtime.define(name, "a.fake", 1));
        let mut drain = drain_of(runtime.clone(), HeapEstimator::new(None, 1, 1, 0));
        let name_of = |drain: &mut Drain, code, position| {
            drain.forget_ended_code(position);
            let location = drain.locations.location(RawFrame { code, at: 0 }, position, &*runtime, &mut 0);
            drain.locations.frames(location.unwrap())[0].function.to_string()
        };
        assert_eq!(name_of(&mut drain, early, 10), "early");
        runtime.end(late, 900, None);
        drain.collect_ended_code();
        runtime.end(early, 20, Some("reborn"));
        drain.collect_ended_code();
        assert_eq!([19, 20].map(|position| name_of(&mut drain, early, position)), ["early", "reborn"]);
        assert_eq!([899, 900].map(|position| name_of(&mut drain, late, position)), ["late", "[code_ended]"]);
    }
}
