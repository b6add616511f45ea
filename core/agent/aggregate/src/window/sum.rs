//! Windows merged as they close, in bounded memory: the heaviest samples are kept, the others become `[too_many_stacks]`, so
//! that totals are exact. Used by the file of the whole run and by pulls.

use spanprof_profile::{transform, AttributeSetId, Function, Line, Location, ProfilesData, Sample};

/// Pending windows are merged at this number, or earlier when they have half as many samples as the merged ones.
const MAX_PENDING_WINDOWS: usize = 32;
pub const MIN_PENDING_SAMPLES: usize = 512;

/// What becomes of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SumLabels {
    /// They stay; beyond the limit, samples are dropped.
    Kept,
    /// They stay until the samples exceed the limit: then those of all windows are dropped, before any stack.
    KeptIfTheyFit,
    /// They are dropped.
    Dropped,
}

/// The sum of closed windows, with at most `max_samples` distinct samples.
pub struct WindowSum {
    max_samples: usize,
    labels: SumLabels,
    lacks_labels: bool,
    merged: ProfilesData,
    pending: Vec<ProfilesData>,
    pending_samples: usize,
}

impl WindowSum {
    pub fn new(max_samples: usize, labels: SumLabels) -> Self {
        Self {
            max_samples,
            labels,
            lacks_labels: false,
            merged: ProfilesData::default(),
            pending: Vec::new(),
            pending_samples: 0,
        }
    }

    /// Adds a window. Of a gauge, such as the objects in use, the last window counts.
    pub fn add(&mut self, mut window: ProfilesData) {
        if self.labels == SumLabels::Dropped {
            drop_labels(&mut window);
        }
        if window.profiles().any(|(_, profile)| profile.is_gauge()) {
            self.forget_gauges();
        }
        self.pending_samples += window.sample_count();
        self.pending.push(window);
        let batch = (self.merged.sample_count() / 2).max(MIN_PENDING_SAMPLES);
        if self.pending.len() >= MAX_PENDING_WINDOWS || self.pending_samples >= batch {
            self.merge_pending();
        }
    }

    /// Whether labels were dropped because the samples exceeded the limit with them.
    pub fn lacks_labels(&self) -> bool {
        self.lacks_labels
    }

    /// The sum of all windows.
    pub fn merged(&mut self) -> &ProfilesData {
        self.merge_pending();
        &self.merged
    }

    fn forget_gauges(&mut self) {
        let windows = std::iter::once(&mut self.merged).chain(&mut self.pending);
        for resource in windows.flat_map(|window| &mut window.resources) {
            resource.profiles.retain(|profile| !profile.is_gauge());
        }
    }

    fn merge_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        self.pending_samples = 0;
        let mut merged = transform::merge(std::iter::once(&self.merged).chain(&pending));
        if self.labels == SumLabels::KeptIfTheyFit && merged.sample_count() > self.max_samples {
            (self.labels, self.lacks_labels) = (SumLabels::Dropped, true);
            drop_labels(&mut merged);
            merged = transform::merge([&merged]);
        }
        self.merged = bounded(merged, self.max_samples);
    }

    /// Samples in memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn stored_samples(&self) -> usize {
        self.merged.sample_count() + self.pending_samples
    }
}

fn drop_labels(window: &mut ProfilesData) {
    for profile in window.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        profile.samples.iter_mut().for_each(|sample| sample.attributes = AttributeSetId::EMPTY);
    }
}

/// Keeps the heaviest samples. The others become one sample with the stack `[too_many_stacks]`, so that totals are exact.
fn bounded(mut data: ProfilesData, max_samples: usize) -> ProfilesData {
    let profiles = data.profiles().count().max(1);
    if data.sample_count() <= max_samples {
        return data;
    }
    let name = data.dictionary.string("[too_many_stacks]");
    let function = data.dictionary.function(Function { name, ..Function::default() });
    let lines = [Line { function, ..Line::default() }];
    let location = data.dictionary.location(Location { lines: &lines, ..Location::default() });
    let stack = data.dictionary.stack(&[location]);
    for profile in data.resources.iter_mut().flat_map(|resource| &mut resource.profiles) {
        let keep = (max_samples / profiles).max(1);
        if profile.samples.len() <= keep {
            continue;
        }
        let mut samples = std::mem::take(&mut profile.samples);
        samples.sort_by_key(|sample| std::cmp::Reverse(profile.weight(sample)));
        let mut rest = Sample { stack, values: vec![0], ..Sample::default() };
        for sample in samples.split_off(keep) {
            rest.values[0] += sample.total();
            rest.exact_value += sample.exact_value;
        }
        samples.push(rest);
        profile.samples = samples;
    }
    // Removes dictionary entries without references.
    transform::merge([&data])
}
