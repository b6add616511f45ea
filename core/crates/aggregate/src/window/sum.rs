//! Windows merged as they close, in bounded memory: the heaviest samples are kept, the others become `[too_many_stacks]`, so
//! that totals are exact. Used by the file of the whole run and by pulls.

use spanprof_profile::{transform, AttributeSetId, Function, Line, Location, ProfilesData, Sample};

/// Pending windows are merged at this number, or earlier when they have half as many samples as the merged ones.
const MAX_PENDING_WINDOWS: usize = 32;
pub const MIN_PENDING_SAMPLES: usize = 512;

/// The sum of closed windows, with at most `max_samples` distinct samples.
pub struct WindowSum {
    max_samples: usize,
    merged: ProfilesData,
    pending: Vec<ProfilesData>,
    pending_samples: usize,
}

impl WindowSum {
    pub fn new(max_samples: usize) -> Self {
        Self { max_samples, merged: ProfilesData::default(), pending: Vec::new(), pending_samples: 0 }
    }

    /// Adds a window. Of a gauge, such as the objects in use, the last window counts.
    pub fn add(&mut self, window: ProfilesData) {
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

    /// The sum of all windows.
    pub fn merged(&mut self) -> &ProfilesData {
        self.merge_pending();
        &self.merged
    }

    /// Whether another window can be added without a loss of stacks.
    pub fn has_room_for(&self, window: &ProfilesData) -> bool {
        self.merged.sample_count() + self.pending_samples + window.sample_count() <= self.max_samples
    }

    /// Drops the labels of all samples: those that differ only in them become one.
    pub fn drop_labels(&mut self) {
        let windows = std::iter::once(&mut self.merged).chain(&mut self.pending);
        for profile in windows.flat_map(|window| &mut window.resources).flat_map(|resource| &mut resource.profiles) {
            profile.samples.iter_mut().for_each(|sample| sample.attributes = AttributeSetId::EMPTY);
        }
        self.pending.push(ProfilesData::default());
        self.merge_pending();
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
        let merged = transform::merge(std::iter::once(&self.merged).chain(&pending));
        self.merged = bounded(merged, self.max_samples);
    }

    /// Samples in memory.
    #[cfg(any(test, feature = "testing"))]
    pub fn stored_samples(&self) -> usize {
        self.merged.sample_count() + self.pending_samples
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
