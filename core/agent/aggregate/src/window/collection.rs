//! Samples collected on request beside the open window: for a pull, or for the program. A collection is a second window over
//! the same resolved samples: it has its own totals, remainders and counters, so the open window and its profile do not
//! change. Stacks are indices into the drain's tables, so a collection closes a part whenever these are cleared.

use super::close::{profile_kind, value_type};
use super::{CloseInput, ResolvedSample, Window, WindowSettings, MAX_ENTRIES};
use crate::counters::Counters;
use crate::hash::WordMap;
use crate::resolve::stacks::StackIndex;
use crate::window::sum::{SumLabels, WindowSum};
use spanprof_profile::redact::ProfileRedactor;
use spanprof_profile::{LinkId, Profile, ProfilesData, ResourceProfiles};
use spanprof_signal::{RawSample, SampleFlags, SampleKind};

/// Samples of a finished collection at most; the lightest of more become `[too_many_stacks]`.
const MAX_SAMPLES: usize = 4 * MAX_ENTRIES;

/// One collection: a selection of the samples since its start.
pub(crate) struct SampleCollection {
    window: Window,
    selection: SampleSelection,
    /// Whether samples have the link of their span. Without it, memory does not grow with the number of spans.
    has_links: bool,
    begun_ns: u64,
    /// Unattributed CPU time of the process that is not of this collection, or already added.
    unattributed_before_ns: u64,
    /// Counts what the open window's counters already contain.
    counters: Counters,
    merged: WindowSum,
}

/// The samples of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleSelection {
    pub kinds: Vec<SampleKind>,
    /// Kernel thread id of the only thread; `None`: all threads.
    pub thread_id: Option<u32>,
    /// Whether samples carry their thread, also without `thread_labels`, and no link of a span.
    pub by_thread: bool,
}

impl SampleSelection {
    /// Samples of all threads.
    pub fn of_kinds(kinds: &[SampleKind]) -> Self {
        Self { kinds: kinds.to_vec(), ..Self::default() }
    }

    fn has(&self, sample: &RawSample<'_>) -> bool {
        self.kinds.contains(&sample.kind) && self.thread_id.is_none_or(|thread_id| thread_id == sample.thread_id)
    }
}

/// The collections that take samples now.
#[derive(Default)]
pub(crate) struct SampleCollections {
    /// By the number of the request.
    pub requested: WordMap<u32, SampleCollection>,
    /// Of everything since the start, for pulls without a duration.
    pub since_start: Option<SampleCollection>,
}

impl SampleCollections {
    /// Adds a sample of the open window, or one that was requested on demand.
    pub fn add(&mut self, sample: &ResolvedSample<'_>) {
        let RawSample { kind, flags, .. } = *sample.sample;
        // The live threads are a gauge: a pull has those of its own request only.
        if kind == SampleKind::Threads && !flags.has(SampleFlags::ON_DEMAND) {
            return;
        }
        for collection in self.iter_mut().filter(|collection| collection.selection.has(sample.sample)) {
            collection.window.add(*sample, &collection.counters);
        }
    }

    /// Whether any collection takes this sample.
    pub fn take(&self, sample: &RawSample<'_>) -> bool {
        self.requested.values().any(|collection| collection.selection.has(sample))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut SampleCollection> {
        self.requested.values_mut().chain(&mut self.since_start)
    }
}

impl SampleCollection {
    /// A collection for one request.
    pub fn of_request(
        settings: WindowSettings,
        selection: SampleSelection,
        begun_ns: u64,
        unattributed_ns: u64,
    ) -> Self {
        Self::new(settings, selection, begun_ns, unattributed_ns, MAX_SAMPLES)
    }

    /// A collection for as long as the profiler runs, of at most `max_stacks` samples.
    pub fn since_start(settings: WindowSettings, kinds: Vec<SampleKind>, begun_ns: u64, max_stacks: u32) -> Self {
        let selection = SampleSelection { kinds, ..SampleSelection::default() };
        Self { has_links: false, ..Self::new(settings, selection, begun_ns, 0, max_stacks as usize) }
    }

    fn new(settings: WindowSettings, selection: SampleSelection, begun_ns: u64, before_ns: u64, max: usize) -> Self {
        Self {
            window: Window::new(of_collection(settings, &selection), begun_ns),
            has_links: !selection.by_thread,
            selection,
            begun_ns,
            unattributed_before_ns: before_ns,
            counters: Counters::default(),
            merged: WindowSum::new(max, SumLabels::Kept),
        }
    }

    /// Follows a change of the configuration. Called after [`Self::close_part`].
    pub fn set_settings(&mut self, settings: WindowSettings) {
        self.window.set_settings(of_collection(settings, &self.selection));
    }

    /// Whether a part must be closed to bound the memory.
    pub fn is_full(&self) -> bool {
        self.window.is_full()
    }

    /// Adds the unattributed CPU time of the process since the last call, or since the beginning.
    pub fn add_unattributed(&mut self, unattributed_ns: u64, now_ns: u64, stack: StackIndex) {
        let ns = unattributed_ns.saturating_sub(self.unattributed_before_ns);
        self.unattributed_before_ns = unattributed_ns;
        if ns > 0 && self.selection.kinds.contains(&SampleKind::Cpu) {
            self.window.add_unattributed(ns, now_ns, stack, &self.counters);
        }
    }

    /// Closes the part so far. Called before the tables of its stacks are cleared.
    pub fn close_part(&mut self, input: CloseInput<'_>, redactor: &mut ProfileRedactor) {
        let Some(closed) = self.window.close(input) else { return };
        let mut closed = closed.redacted(redactor);
        if !self.has_links {
            for profile in closed.data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
                profile.samples.iter_mut().for_each(|sample| sample.link = LinkId::default());
            }
        }
        self.merged.add(closed.data);
    }

    /// The profiles of `kinds` from the beginning until now, also of those without samples. The input closes the last part.
    pub fn profiles(
        &mut self,
        kinds: &[SampleKind],
        input: CloseInput<'_>,
        redactor: &mut ProfileRedactor,
    ) -> ProfilesData {
        let unix_ns = |ns: u64| (i128::from(ns) + input.unix_offset_ns).clamp(0, i128::from(u64::MAX)) as u64;
        let (begun, now) = (unix_ns(self.begun_ns), unix_ns(input.now_monotonic_ns));
        let resource = input.resource.iter().map(Into::into).collect();
        self.close_part(input, redactor);
        let mut data = self.merged.merged().clone();
        if data.resources.is_empty() {
            let scope = spanprof_profile::Scope::spanprof();
            data.resources.push(ResourceProfiles {
                resource,
                scope,
                profiles: Vec::new(),
                ..ResourceProfiles::default()
            });
        }
        let settings = self.window.settings();
        for resource in &mut data.resources {
            let kinds = kinds.iter().map(|kind| (*kind, profile_kind(*kind)));
            let types = kinds.flat_map(|(kind, named)| named.shapes().map(move |shape| (kind, named, shape)));
            let mut found = std::mem::take(&mut resource.profiles);
            for (kind, named, shape) in types {
                let sample_type = value_type(shape.sample_type);
                let before = resource.profiles.len();
                resource.profiles.extend(found.extract_if(.., |profile| profile.sample_type == sample_type));
                if resource.profiles.len() == before {
                    resource.profiles.push(Profile {
                        sample_type,
                        period_type: value_type(named.period_type),
                        period: settings.period(kind) as i64,
                        exact_type: shape.exact.map(|(exact, _)| value_type(exact)),
                        ..Profile::default()
                    });
                }
            }
            for profile in &mut resource.profiles {
                (profile.time_unix_nano, profile.duration_nano) = (begun, now.saturating_sub(begun).max(1));
            }
        }
        data
    }
}

/// pprof has no timestamps of samples.
fn of_collection(settings: WindowSettings, selection: &SampleSelection) -> WindowSettings {
    let thread_labels = settings.thread_labels || selection.by_thread;
    WindowSettings { keep_timestamps: false, thread_labels, ..settings }
}
