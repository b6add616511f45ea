//! The engine without clock, thread or network: drain, window, resource. Time is an argument, so that tests and the
//! conformance suite drive it with scripted samples. Owned by the drain thread.

use std::sync::Arc;

use crate::counters::Counters;
use crate::drain::Drain;
use crate::heap::{encode_peak, in_use_profiles, HeapEstimator, InUseProfileInput, InUseTotals, PeakProfileInput};
use crate::resolve::locations::LocationTable;
use crate::resolve::native_symbols::NativeSymbols;
use crate::resolve::stacks::StackTable;
use crate::resource::Resource;
use crate::retention::TailPolicy;
use crate::runtime::Runtime;
use crate::window::{CloseInput, ClosedWindow, SampleCollection, SampleSelection, Window, WindowSettings};
use spanprof_profile::code_origin::OwnCode;
use spanprof_profile::redact::{ProfileRedactor, RedactionTarget};
use spanprof_profile::{transform, ProfilesData};
use spanprof_signal::heap::HeapSampling;
use spanprof_signal::{DropReason, Ring, SampleKind};

/// Distinct stacks of a window; others become `[too_many_stacks]` and are counted.
pub const MAX_STACKS: u32 = 32_768;

/// What the configuration sets.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Periods, interval and detail of windows.
    pub window: WindowSettings,
    /// Stacks of a window.
    pub max_stacks: u32,
    /// Mean bytes between two samples of the heap profile.
    pub heap_interval: u64,
    /// Whether the interval grows so that samples are limited to about 200 per second.
    pub heap_rate_limit: bool,
    /// Live objects that are stored.
    pub heap_live_samples: usize,
    /// Whether objects in use are divided by age.
    pub heap_age: bool,
    /// Tail-based retention; `None` without.
    pub retention: Option<TailPolicy>,
    /// Labels of every sample.
    pub tags: Vec<(String, String)>,
    /// Text of the duty cycle of each kind that has one.
    pub duty_cycles: Vec<(SampleKind, String)>,
    /// Own code by configuration.
    pub own_code: OwnCode,
    /// Whether samples are summed up from the start, for pulls without a duration.
    pub sums_since_start: bool,
}

/// What the engine takes from the process.
pub struct SystemAccess {
    /// Ids of profiles.
    pub profile_id: fn() -> [u8; 16],
    /// Seed of the choice among live objects.
    pub seed: u64,
    /// Hooks and live objects of the heap profile.
    pub heap: &'static HeapSampling,
    /// Names of native functions.
    pub native_symbols: Box<dyn NativeSymbols>,
}

/// Drain, window and identity of one run.
pub struct Engine {
    drain: Drain,
    window: Window,
    identity: Identity,
    profile_id: fn() -> [u8; 16],
    redactor: ProfileRedactor,
    counters: Arc<Counters>,
    /// Unattributed CPU time that windows already contain.
    unattributed_added_ns: u64,
}

/// The resource and the static labels of every profile.
struct Identity {
    resource: Arc<Resource>,
    tags: Vec<(String, String)>,
    /// The governor's comment on profiles; empty for none.
    comment: String,
    /// Text of the duty cycle of each kind that has one.
    duty_cycles: Vec<(SampleKind, String)>,
    own_code: OwnCode,
}

/// Own code whose prefixes are redacted as paths and names of functions are.
fn redacted_prefixes(own_code: OwnCode, redactor: &mut ProfileRedactor) -> OwnCode {
    own_code.shown_as(|prefix| {
        let (_, path) = redactor.pair(RedactionTarget::File, "", prefix)?;
        redactor.pair(RedactionTarget::Function, "", &path).map(|(_, name)| name)
    })
}

/// The input for closing a window; `times` are the monotonic time and the offset of Unix time.
fn close_input<'a>(
    locations: &'a LocationTable,
    stacks: &'a StackTable,
    identity: &'a Identity,
    times: (u64, i128),
    profile_id: fn() -> [u8; 16],
) -> CloseInput<'a> {
    CloseInput {
        locations,
        stacks,
        resource: &identity.resource.attributes,
        dropped_attributes: identity.resource.dropped as u32,
        tags: &identity.tags,
        service_name: &identity.resource.service_name,
        now_monotonic_ns: times.0,
        unix_offset_ns: times.1,
        comment: &identity.comment,
        duty_cycles: &identity.duty_cycles,
        own_code: &identity.own_code,
        profile_id,
    }
}

/// Time and CPU account at the end of a window.
pub struct WindowEnd<'a> {
    pub now_monotonic_ns: u64,
    /// Unix time minus monotonic time.
    pub unix_offset_ns: i128,
    /// Unattributed CPU time since the start of the clocks; `None` without CPU clocks.
    pub unattributed_ns: Option<u64>,
    /// Whether the thread of this id is alive.
    pub is_alive: &'a mut dyn FnMut(u32) -> bool,
    /// Whether to add the objects in use, once per upload interval.
    pub in_use: bool,
    /// Whether to begin to sum up samples for pulls without a duration.
    pub sums_since_start: bool,
}

/// Time and CPU account at the begin or the end of a collection.
#[derive(Clone, Copy)]
pub struct CollectionTime {
    pub now_monotonic_ns: u64,
    /// Unix time minus monotonic time.
    pub unix_offset_ns: i128,
    /// Unattributed CPU time of the process so far.
    pub unattributed_ns: u64,
}

/// The live objects, encoded.
pub struct HeapAtPeak {
    pub profile: Vec<u8>,
    pub objects: u64,
    pub omitted_stacks: u64,
}

impl Engine {
    pub fn new(
        settings: EngineSettings,
        system: SystemAccess,
        runtime: Arc<dyn Runtime>,
        resource: impl Into<Arc<Resource>>,
        mut redactor: ProfileRedactor,
        counters: Arc<Counters>,
        now_ns: u64,
    ) -> Self {
        let live = system.heap.live_set();
        let mut estimator = HeapEstimator::new(live, settings.heap_interval, settings.heap_live_samples, system.seed);
        estimator.rate.is_limited = settings.heap_rate_limit;
        let locations = LocationTable::new(system.native_symbols);
        let mut drain = Drain::new(runtime, locations, estimator, system.heap, settings.max_stacks);
        drain.set_heap_age(settings.heap_age);
        if settings.sums_since_start {
            drain.begin_since_start(settings.window, now_ns);
        }
        let mut window = Window::new(settings.window, now_ns);
        drain.set_retention(settings.retention, &mut window, &counters);
        Self {
            drain,
            window,
            identity: Identity {
                resource: resource.into(),
                tags: settings.tags,
                comment: String::new(),
                duty_cycles: settings.duty_cycles,
                own_code: redacted_prefixes(settings.own_code, &mut redactor),
            },
            profile_id: system.profile_id,
            redactor,
            counters,
            unattributed_added_ns: 0,
        }
    }

    /// Sets the resource, from the open window on.
    pub fn set_resource(&mut self, resource: Arc<Resource>) {
        self.identity.resource = resource;
    }

    /// Drains the ring below the position `up_to`. Stops early when the window is full; true when entries may be left.
    pub fn drain(&mut self, ring: &Ring, up_to: u64, now_ns: u64) -> bool {
        let is_left = self.drain.drain(ring, up_to, &mut self.window, &self.counters);
        if self.drain.collections.iter_mut().any(|collection| collection.is_full()) {
            self.close_collections(now_ns);
        }
        is_left
    }

    /// Processes one scripted sample.
    pub fn process(&mut self, position: u64, sample: &spanprof_signal::RawSample<'_>) {
        self.drain.collect_ended_code();
        self.drain.process(position, sample, &mut self.window, &self.counters);
    }

    /// Number of live objects found so far: without a new one, live bytes do not grow.
    pub fn live_samples_added(&self) -> u64 {
        self.drain.heap.added()
    }

    /// Estimated bytes of the live objects.
    pub fn live_bytes(&mut self) -> u64 {
        self.drain.live_bytes()
    }

    /// The live objects as pprof of at most `max_bytes`, without their types: the function that leaks is first. `None` if not even one
    /// stack fits.
    pub fn heap_peak(&mut self, time_unix_ns: u64, max_bytes: usize) -> Option<HeapAtPeak> {
        let totals = self.drain.heap.in_use(false, None);
        let objects = totals.iter().map(|InUseTotals { values: [_bytes, objects], .. }| objects).sum();
        let interval_bytes = self.drain.heap.interval();
        let Identity { resource, own_code, .. } = &self.identity;
        let input = PeakProfileInput { resource, time_unix_ns, interval_bytes, own_code, max_bytes };
        let (profile, omitted_stacks) = encode_peak(totals, &input, &mut self.redactor)?;
        Some(HeapAtPeak { profile, objects, omitted_stacks })
    }

    /// Monotonic time at which the window is due; `None` while it is empty.
    pub fn due_ns(&self) -> Option<u64> {
        self.window.due_ns()
    }

    /// Whether the window must close before its time.
    pub fn is_full(&self) -> bool {
        self.window.is_full()
    }

    /// Lets an empty window begin no earlier than now.
    pub fn begin_at(&mut self, now_ns: u64) {
        self.window.begin_at(now_ns);
    }

    /// Opens a window.
    pub fn open(&mut self, now_ns: u64) {
        self.window.open(now_ns);
    }

    /// Opens a window when the unattributed CPU time is at least one period.
    pub fn open_for_unattributed(&mut self, unattributed_ns: u64, now_ns: u64) {
        if self.not_yet_added(unattributed_ns) >= self.window.settings().cpu_period_ns {
            self.window.open(now_ns);
        }
    }

    /// Adds the unattributed CPU time of clocks that ended, however short it is.
    pub fn add_unattributed_at_end(&mut self, unattributed_ns: u64, now_ns: u64) {
        self.add_unattributed(unattributed_ns, 1, now_ns);
    }

    /// Adds the unattributed CPU time that no window contains, if it is at least `at_least_ns`.
    fn add_unattributed(&mut self, unattributed_ns: u64, at_least_ns: u64, now_ns: u64) {
        let unattributed_ns = self.not_yet_added(unattributed_ns);
        if unattributed_ns >= at_least_ns {
            let stack = self.drain.reason_stack(DropReason::UnseenThread);
            self.window.add_unattributed(unattributed_ns, now_ns, stack, &self.counters);
            self.unattributed_added_ns += unattributed_ns;
        }
    }

    /// The part of the unattributed CPU time that no window contains.
    fn not_yet_added(&self, unattributed_ns: u64) -> u64 {
        unattributed_ns.saturating_sub(self.unattributed_added_ns)
    }

    /// Follows a restart of the clocks, which resets their account to 0.
    pub fn reset_account(&mut self) {
        self.unattributed_added_ns = 0;
    }

    /// Ends the window; `None` when there is nothing to send.
    pub fn close(&mut self, end: WindowEnd<'_>) -> Option<ClosedWindow> {
        self.window.release_remainders_of_ended_threads(end.is_alive);
        if let Some(unattributed_ns) = end.unattributed_ns {
            self.add_unattributed(unattributed_ns, self.window.settings().cpu_period_ns, end.now_monotonic_ns);
        }
        if end.in_use {
            self.drain.add_in_use(end.now_monotonic_ns, &mut self.window, &self.counters);
        }
        self.drain.ensure_heap_sampling();
        let times = (end.now_monotonic_ns, end.unix_offset_ns);
        self.drain.release_held(Some(end.now_monotonic_ns), &mut self.window, &self.counters);
        let input = close_input(&self.drain.locations, &self.drain.stacks, &self.identity, times, self.profile_id);
        let closed = self.window.close(input);
        self.counters.samples_submitted.add(self.window.take_awaited());
        self.close_collections(end.now_monotonic_ns);
        for capture in self.drain.captures.open.values_mut() {
            let input = close_input(&self.drain.locations, &self.drain.stacks, &self.identity, times, self.profile_id);
            capture.close_part(input, &mut self.redactor);
        }
        self.drain.between_windows(&self.counters, end.is_alive);
        if end.sums_since_start && self.drain.collections.since_start.is_none() {
            self.drain.begin_since_start(self.window.settings(), end.now_monotonic_ns);
        }
        if self.drain.has_held() {
            // Held samples are released by a later window, even if no other sample opens it.
            self.window.open(end.now_monotonic_ns);
        }
        if let Some(closed) = &closed {
            self.counters.windows_closed.add(1);
            self.counters.stacks_unique.set(closed.stacks);
        }
        closed.map(|closed| closed.redacted(&mut self.redactor))
    }

    /// Begins to collect samples beside the open window. Replaces an earlier collection of the same number.
    pub fn begin_collection(&mut self, number: u32, selection: SampleSelection, at: CollectionTime) {
        let settings = self.window.settings();
        let collection = SampleCollection::of_request(settings, selection, at.now_monotonic_ns, at.unattributed_ns);
        self.drain.collections.requested.insert(number, collection);
    }

    /// Ends the collection without a result.
    pub fn cancel_collection(&mut self, number: u32) {
        self.drain.collections.requested.remove(&number);
    }

    /// Ends the collection; without one, as [`Engine::read_collection`].
    pub fn end_collection(&mut self, number: u32, kinds: &[SampleKind], at: CollectionTime) -> ProfilesData {
        let data = self.read_collection(number, kinds, at);
        self.cancel_collection(number);
        data
    }

    /// The samples of the collection so far, or those since the start, and the objects in use if `kinds` contains them.
    pub fn read_collection(&mut self, number: u32, kinds: &[SampleKind], at: CollectionTime) -> ProfilesData {
        let collected: Vec<_> = kinds.iter().copied().filter(|kind| *kind != SampleKind::InUse).collect();
        let stack = self.drain.reason_stack(DropReason::UnseenThread);
        let collections = &mut self.drain.collections;
        let mut requested = collections.requested.get_mut(&number);
        if let Some(requested) = &mut requested {
            requested.add_unattributed(at.unattributed_ns, at.now_monotonic_ns, stack);
        }
        let times = (at.now_monotonic_ns, at.unix_offset_ns);
        let input = close_input(&self.drain.locations, &self.drain.stacks, &self.identity, times, NO_PROFILE_ID);
        let mut data = match requested.or(collections.since_start.as_mut()) {
            Some(collection) => collection.profiles(&collected, input, &mut self.redactor),
            None => ProfilesData::default(),
        };
        if kinds.contains(&SampleKind::InUse) {
            let labels = self.static_labels();
            let input = InUseProfileInput {
                resource: &self.identity.resource,
                labels: &labels,
                time_unix_ns: (i128::from(at.now_monotonic_ns) + at.unix_offset_ns).max(0) as u64,
                interval_bytes: self.drain.heap.interval(),
                own_code: &self.identity.own_code,
            };
            data = transform::merge([&data, &in_use_profiles(&self.drain.in_use(), &input, &mut self.redactor)]);
        }
        data
    }

    /// Closes a part of each collection, before the tables of its stacks are cleared or its settings change. The parts have no
    /// times; the collection has.
    fn close_collections(&mut self, now_ns: u64) {
        for collection in self.drain.collections.iter_mut() {
            let times = (now_ns, 0);
            let input = close_input(&self.drain.locations, &self.drain.stacks, &self.identity, times, NO_PROFILE_ID);
            collection.close_part(input, &mut self.redactor);
        }
    }

    /// Labels of every sample.
    fn static_labels(&self) -> Vec<(String, String)> {
        let Identity { resource, tags, .. } = &self.identity;
        let has_service_name = !tags.iter().any(|(key, _)| key == "service.name");
        let service_name = has_service_name.then(|| ("service.name".to_owned(), resource.service_name.clone()));
        service_name.into_iter().chain(tags.iter().cloned()).collect()
    }

    pub fn begin_capture(&mut self, number: u32, now_ns: u64) {
        self.drain.captures.begin(number, self.window.settings(), now_ns);
    }

    /// Ends a capture; `unix_offset_ns` as in [`WindowEnd`].
    pub fn end_capture(&mut self, number: u32, now_ns: u64, unix_offset_ns: i128) -> ProfilesData {
        let times = (now_ns, unix_offset_ns);
        let input = close_input(&self.drain.locations, &self.drain.stacks, &self.identity, times, self.profile_id);
        self.drain.captures.end(number, input, &mut self.redactor)
    }

    /// Moves the samples of unfinished requests into the window, which is the last one.
    pub fn release_all_held(&mut self) {
        self.drain.release_held(None, &mut self.window, &self.counters);
    }

    /// Whether these settings require the open window to close first.
    pub fn needs_new_window(&self, settings: &EngineSettings) -> bool {
        let (old, new) = (self.window.settings(), settings.window);
        let periods =
            |settings: &WindowSettings| (settings.cpu_period_ns, settings.wall_period_ns, settings.heap_interval_bytes);
        periods(&old) != periods(&new) || settings.tags != self.identity.tags
    }

    /// Sets the comment on profiles, for the open window too.
    pub fn set_comment(&mut self, comment: String) {
        self.identity.comment = comment;
    }

    /// Applies changed settings; after `close` where [`Engine::needs_new_window`].
    pub fn apply(&mut self, settings: EngineSettings, now_ns: u64) {
        self.drain.set_heap_age(settings.heap_age);
        self.drain.heap.set_interval(settings.heap_interval);
        self.drain.heap.rate.is_limited = settings.heap_rate_limit;
        self.window.set_settings(settings.window);
        self.close_collections(now_ns);
        for collection in self.drain.collections.iter_mut() {
            collection.set_settings(settings.window);
        }
        self.identity.tags = settings.tags;
        self.drain.set_retention(settings.retention, &mut self.window, &self.counters);
        self.identity.duty_cycles = settings.duty_cycles;
        self.identity.own_code = redacted_prefixes(settings.own_code, &mut self.redactor);
    }
}

/// pprof has no id of a profile.
const NO_PROFILE_ID: fn() -> [u8; 16] = || [0; 16];
