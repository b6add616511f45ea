//! The open window: aggregates samples of each kind by (stack, label set, link, thread, division). Owned by the drain thread. Not
//! here: draining and resolving (`drain`), profiles of a closed window (`window::close`).

pub(crate) mod captured;
mod close;
mod collection;
#[cfg(test)]
mod collection_tests;
mod ended;
#[cfg(test)]
mod native_code_tests;
#[cfg(test)]
mod own_code_tests;
mod periods;
pub mod sum;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::context::LabelSetId;
use crate::counters::Counters;
use crate::hash::WordMap;
use crate::resolve::stacks::StackIndex;
use spanprof_profile::{HeapAge, RequestDuration, TreeSpan};
use spanprof_signal::{RawSample, SampleFlags, SampleKind};

pub use close::ClosedWindow;
pub(crate) use close::{frames_location, own_code_comment, CloseInput};
pub use collection::SampleSelection;
pub(crate) use collection::{SampleCollection, SampleCollections};
use ended::{EndedSpans, SampledRequests};
use periods::Periods;

/// Entries at which a window closes early: bounds memory at any rate and number of spans.
pub(crate) const MAX_ENTRIES: usize = 65_536;
/// Kept timestamps at which a window closes early.
pub(crate) const MAX_TIMESTAMPS: usize = 131_072;

/// Configuration of the window. A change of a period closes the window first.
/// Finds the name of a thread by its kernel id.
pub type ThreadName = fn(u32) -> Option<String>;

#[derive(Clone, Copy, Debug)]
pub struct WindowSettings {
    pub cpu_period_ns: u64,
    pub wall_period_ns: u64,
    pub heap_interval_bytes: u64,
    pub interval_ns: u64,
    pub keep_timestamps: bool,
    pub thread_labels: bool,
    /// Finds the name of a thread by its kernel id; `None` when it ended.
    pub thread_name: ThreadName,
    /// Whether samples of the wall sampler are in the wall profile. They may be taken for the off-CPU profile only.
    pub wall: bool,
    /// Whether samples without full detail lose their link.
    pub strips_links: bool,
}

impl WindowSettings {
    /// The period of the profiles of a kind.
    fn period(&self, kind: SampleKind) -> u64 {
        match kind {
            SampleKind::Cpu => self.cpu_period_ns,
            SampleKind::Wall => self.wall_period_ns,
            SampleKind::Alloc | SampleKind::InUse => self.heap_interval_bytes,
            _ => 1,
        }
    }
}

/// A resolved sample for the window.
#[derive(Clone, Copy)]
pub(crate) struct ResolvedSample<'a> {
    pub sample: &'a RawSample<'a>,
    pub stack: StackIndex,
    pub label_set: LabelSetId,
    pub link: TreeSpan,
    pub division: Option<Division>,
    /// The name that the language gave the thread; `None`: the kernel's.
    pub thread_name: Option<&'a Arc<str>>,
}

/// What divides the samples of one stack, label set, link and thread further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Division {
    /// Of objects in use.
    Age(HeapAge),
    /// Of ended requests.
    Duration(RequestDuration),
}

/// A thread as samples carry it: kernel id and name.
pub(crate) type SampledThread = (u32, Arc<str>);

/// A sample with its weight, before it is aggregated.
#[derive(Clone, Debug)]
pub(crate) struct WeighedSample {
    pub kind: SampleKind,
    pub values: [u64; 2],
    pub time_ns: u64,
    pub stack: StackIndex,
    pub label_set: LabelSetId,
    pub link: TreeSpan,
    /// When samples carry it.
    pub thread: Option<SampledThread>,
    pub division: Option<Division>,
}

/// A sample that is not aggregated: its time and its two values.
#[derive(Debug)]
pub(crate) struct DetailedSample {
    pub key: SampleKey,
    pub time_ns: u64,
    pub values: [u64; 2],
}

/// Identity of an aggregated sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SampleKey {
    pub stack: StackIndex,
    pub label_set: LabelSetId,
    /// Index into the window's links.
    pub link: u32,
    /// Index into the window's threads, plus one; 0 when samples do not carry it.
    pub thread: u32,
    pub division: Option<Division>,
}

/// Totals of one aggregated sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleTotals {
    /// CPU: periods and nanoseconds. Other kinds: the two values of the raw samples.
    pub values: [u64; 2],
    /// Monotonic time and the two values of each raw sample, with `keep_timestamps`.
    pub observations: Vec<(u64, [u64; 2])>,
}

/// Samples of one kind.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub entries: WordMap<SampleKey, SampleTotals>,
    /// Samples of requests that are kept in full detail.
    pub detailed: Vec<DetailedSample>,
    /// Of blocks of an event loop: the longest one, whose parts are several samples.
    pub longest_block_ns: u64,
}

impl Series {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.detailed.is_empty()
    }

    fn add(&mut self, key: SampleKey, values: [u64; 2], time_ns: Option<u64>) {
        let entry = self.entries.entry(key).or_default();
        entry.values[0] = entry.values[0].saturating_add(values[0]);
        entry.values[1] = entry.values[1].saturating_add(values[1]);
        if let Some(time_ns) = time_ns {
            entry.observations.push((time_ns, values));
        }
    }

    fn add_block(&mut self, kind: SampleKind, values: [u64; 2]) {
        if kind == SampleKind::EventLoop {
            let [_part_ns, block_ns] = values;
            self.longest_block_ns = self.longest_block_ns.max(block_ns);
        }
    }
}

/// The aggregated samples since the last close.
pub(crate) struct Window {
    settings: WindowSettings,
    /// Monotonic time of the start; `None` while the window is empty.
    opened_ns: Option<u64>,
    /// End of the previous window.
    previous_end_ns: u64,
    /// By [`SampleKind`] code.
    series: [Series; KINDS],
    links: Vec<TreeSpan>,
    link_ids: WordMap<TreeSpan, u32>,
    /// Keys of first samples of threads; they get a share of the unattributed CPU time.
    first_of_thread: Vec<SampleKey>,
    threads: Vec<SampledThread>,
    thread_indices: WordMap<SampledThread, u32>,
    /// The kernel's names of threads that the language has not named.
    kernel_names: WordMap<u32, Arc<str>>,
    ended: EndedSpans,
    sampled: SampledRequests,
    /// Samples of what requests awaited, since [`Self::take_awaited`].
    awaited: u64,
    periods: Periods,
    /// Number of kept timestamps.
    timestamps: usize,
    /// Number of raw samples.
    samples: u64,
}

/// Codes of sample kinds begin at 1.
const KINDS: usize = SampleKind::ALL.len() + 1;

impl Window {
    pub fn new(settings: WindowSettings, now_ns: u64) -> Self {
        Self {
            settings,
            opened_ns: None,
            previous_end_ns: now_ns,
            series: Default::default(),
            links: vec![TreeSpan::default()],
            link_ids: [(TreeSpan::default(), 0)].into_iter().collect(),
            first_of_thread: Vec::new(),
            threads: Vec::new(),
            thread_indices: WordMap::default(),
            kernel_names: WordMap::default(),
            ended: EndedSpans::default(),
            sampled: SampledRequests::default(),
            awaited: 0,
            periods: Periods::default(),
            timestamps: 0,
            samples: 0,
        }
    }

    pub fn settings(&self) -> WindowSettings {
        self.settings
    }

    /// Sets the configuration of an empty window.
    pub fn set_settings(&mut self, settings: WindowSettings) {
        self.settings = settings;
    }

    /// Number of samples of what requests awaited, since the last call.
    pub fn take_awaited(&mut self) -> u64 {
        std::mem::take(&mut self.awaited)
    }

    /// Monotonic time at which the window is due; `None` while it is empty.
    pub fn due_ns(&self) -> Option<u64> {
        self.opened_ns.map(|opened| opened + self.settings.interval_ns)
    }

    /// Whether the window must close early.
    pub fn is_full(&self) -> bool {
        self.timestamps >= MAX_TIMESTAMPS
            || self.first_of_thread.len() >= MAX_ENTRIES
            || self.periods.threads() >= MAX_ENTRIES
            || self.series.iter().any(|series| series.entries.len() >= MAX_ENTRIES)
    }

    /// Adds one sample.
    pub fn add(&mut self, resolved: ResolvedSample<'_>, counters: &Counters) {
        let weighed = self.weigh(resolved, counters);
        self.insert(&weighed);
    }

    /// Computes the weight of a sample and counts it. It is not in the window yet.
    pub fn weigh(&mut self, resolved: ResolvedSample<'_>, counters: &Counters) -> WeighedSample {
        let ResolvedSample { sample, stack, label_set, link, division, thread_name } = resolved;
        let values = match sample.kind {
            SampleKind::Cpu => {
                counters.samples_cpu.add(1);
                let [cpu_ns, _] = sample.values;
                counters.samples_cpu_ns.add(cpu_ns);
                [self.periods.of_thread(sample.thread_id, cpu_ns, self.settings.cpu_period_ns), cpu_ns]
            }
            SampleKind::Wall => {
                counters.samples_wall.add(1);
                let [observed_ns, _off_cpu_ns] = sample.values;
                [observed_ns, 0]
            }
            SampleKind::OffCpu => {
                counters.samples_off_cpu.add(1);
                sample.values
            }
            SampleKind::Alloc
            | SampleKind::InUse
            | SampleKind::Lock
            | SampleKind::EventLoop
            | SampleKind::Gc
            | SampleKind::Threads
            | SampleKind::RequestEnd => {
                counters.samples_submitted.add(1);
                sample.values
            }
            // Counted in the window, if the request keeps its span.
            SampleKind::Awaited => sample.values,
        };
        // An object outlives the span that allocated it.
        let link = if sample.kind == SampleKind::InUse { TreeSpan::default() } else { link };
        if matches!(sample.kind, SampleKind::Cpu | SampleKind::Wall) {
            counters.samples_labelled.add(u64::from(label_set != LabelSetId::EMPTY || link != TreeSpan::default()));
            counters.samples_linked.add(u64::from(link != TreeSpan::default()));
        }
        // A sample without full detail has no span that its request could name.
        let is_of_end = matches!(sample.kind, SampleKind::RequestEnd | SampleKind::Awaited);
        if link != TreeSpan::default() && !is_of_end && !self.settings.strips_links {
            self.sampled.insert(link.root());
        }
        self.open_at(sample.time_ns, self.reach_back_ns(sample));
        let has_thread = self.settings.thread_labels && sample.thread_id != 0;
        let thread = has_thread.then(|| (sample.thread_id, self.thread_name(sample.thread_id, thread_name)));
        let (kind, time_ns) = (sample.kind, sample.time_ns);
        let weighed = WeighedSample { kind, values, time_ns, stack, label_set, link, thread, division };
        if kind == SampleKind::Cpu && sample.flags.has(SampleFlags::FIRST_OF_THREAD) {
            let key = self.key(&weighed, !self.settings.strips_links);
            self.first_of_thread.push(key);
        }
        weighed
    }

    /// Aggregates a sample.
    pub fn insert(&mut self, sample: &WeighedSample) {
        let key = self.key(sample, !self.settings.strips_links);
        self.open_at(sample.time_ns, 0);
        self.add_to(sample.kind, key, sample.values, sample.time_ns);
    }

    /// Adds a sample with its timestamp and its link.
    pub fn insert_detailed(&mut self, sample: &WeighedSample) {
        let (key, code) = (self.key(sample, true), sample.kind as usize);
        self.open_at(sample.time_ns, 0);
        self.timestamps += 1;
        self.samples += 1;
        self.series[code].add_block(sample.kind, sample.values);
        self.series[code].detailed.push(DetailedSample { key, time_ns: sample.time_ns, values: sample.values });
    }

    fn key(&mut self, sample: &WeighedSample, has_link: bool) -> SampleKey {
        let WeighedSample { stack, label_set, division, .. } = *sample;
        let thread = sample.thread.as_ref().map_or(0, |thread| self.thread_index(thread));
        let link = if has_link { self.link_id(sample.link) } else { 0 };
        SampleKey { stack, label_set, link, thread, division }
    }

    fn thread_name(&mut self, thread_id: u32, of_language: Option<&Arc<str>>) -> Arc<str> {
        if let Some(name) = of_language {
            return Arc::clone(name);
        }
        let find = self.settings.thread_name;
        self.kernel_names.entry(thread_id).or_insert_with(|| find(thread_id).unwrap_or_default().into()).clone()
    }

    /// Index of a thread, plus one.
    fn thread_index(&mut self, thread: &SampledThread) -> u32 {
        if let Some(index) = self.thread_indices.get(thread) {
            return *index;
        }
        self.threads.push(thread.clone());
        let index = self.threads.len() as u32;
        self.thread_indices.insert(thread.clone(), index);
        index
    }

    /// Time from the beginning of a sample's period to its timestamp.
    fn reach_back_ns(&self, sample: &RawSample<'_>) -> u64 {
        match sample.kind {
            SampleKind::Cpu => {
                let [cpu_ns, _] = sample.values;
                cpu_ns.min(2 * self.settings.cpu_period_ns)
            }
            SampleKind::Wall | SampleKind::OffCpu => self.settings.wall_period_ns,
            _ => 0,
        }
    }

    /// Lets an empty window begin no earlier than now: no samples were taken before.
    pub fn begin_at(&mut self, now_ns: u64) {
        if self.opened_ns.is_none() {
            self.previous_end_ns = now_ns;
        }
    }

    /// Opens an empty window now.
    pub fn open(&mut self, now_ns: u64) {
        self.open_at(now_ns, 0);
    }

    /// Opens the window with its first sample: at the end of the previous window while work is continuous, else at the
    /// beginning of the sample.
    fn open_at(&mut self, time_ns: u64, reach_back_ns: u64) {
        if self.opened_ns.is_none() {
            let began_ns = time_ns.saturating_sub(reach_back_ns).max(self.previous_end_ns);
            let is_continuous = began_ns.saturating_sub(self.previous_end_ns) < self.settings.interval_ns;
            self.opened_ns = Some(if is_continuous { self.previous_end_ns } else { began_ns });
        }
    }

    fn link_id(&mut self, link: TreeSpan) -> u32 {
        let links = &mut self.links;
        *self.link_ids.entry(link).or_insert_with(|| {
            links.push(link);
            links.len() as u32 - 1
        })
    }

    fn add_to(&mut self, kind: SampleKind, key: SampleKey, values: [u64; 2], time_ns: u64) {
        let code = kind as usize;
        let keep = self.settings.keep_timestamps;
        self.timestamps += usize::from(keep);
        self.samples += 1;
        self.series[code].add_block(kind, values);
        self.series[code].add(key, values, keep.then_some(time_ns));
    }

    /// Adds unattributed CPU time, so that totals are exact. The first sample of each thread gets at most a period, since it
    /// represents short-lived threads without a sample, and as much of the remainders of ended threads. The rest goes to
    /// `unattributed_stack`. Other samples get nothing: the time of their threads was measured exactly.
    pub fn add_unattributed(
        &mut self,
        unattributed_ns: u64,
        now_ns: u64,
        unattributed_stack: StackIndex,
        counters: &Counters,
    ) {
        let period_ns = self.settings.cpu_period_ns;
        let first_samples = std::mem::take(&mut self.first_of_thread);
        let threads = first_samples.len() as u64;
        let share_ns = unattributed_ns.checked_div(threads).unwrap_or(0).min(period_ns);
        let (remainder_ns, excess_ns) = self.periods.take_shares(threads, period_ns);
        for key in first_samples.into_iter().filter(|_| share_ns + remainder_ns > 0) {
            self.add_share(key, share_ns, remainder_ns, now_ns);
        }
        let left_ns = unattributed_ns - share_ns * threads;
        counters.unseen_distributed_ns.add(unattributed_ns - left_ns);
        counters.unseen_shown_ns.add(left_ns);
        if left_ns + excess_ns > 0 {
            let stack = unattributed_stack;
            let key = SampleKey { stack, label_set: LabelSetId::EMPTY, link: 0, thread: 0, division: None };
            self.add_share(key, left_ns, excess_ns, now_ns);
        }
    }

    /// Adds `ns` to a sample. Its periods contain `remainder_ns` too, which is in the times of other samples.
    fn add_share(&mut self, key: SampleKey, ns: u64, remainder_ns: u64, now_ns: u64) {
        self.open_at(now_ns, ns.min(self.settings.interval_ns));
        let periods = self.periods.of_unattributed(ns + remainder_ns, self.settings.cpu_period_ns);
        self.add_to(SampleKind::Cpu, key, [periods, ns], now_ns);
    }

    /// Moves the remainders of ended threads to the unattributed time.
    pub fn release_remainders_of_ended_threads(&mut self, is_alive: &mut dyn FnMut(u32) -> bool) {
        self.periods.release_ended(is_alive);
    }
}
