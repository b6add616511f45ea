//! Sums of one side of a comparison over its windows: the windows are the replicates from which [`super::growth`] estimates how
//! much a value varies by chance. Windows are added one at a time; memory depends on the number of rows only.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use spanprof_profile::{Profile, ProfilesData};

use super::generated_names;
use super::weights::{weights_of, FunctionLine, Granularity, Weight};

/// Which weight of a row is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compared {
    /// The function itself.
    #[default]
    Flat,
    /// The function with its callees.
    Cum,
}

impl Compared {
    pub(super) fn of(self, weight: Weight) -> i64 {
        match self {
            Compared::Flat => weight.flat,
            Compared::Cum => weight.cum,
        }
    }
}

/// Sums over the windows of one side.
#[derive(Clone, Debug, Default)]
pub struct WindowSums {
    by: Granularity,
    compared: Compared,
    by_type: BTreeMap<String, TypeSums>,
}

/// Sums of one profile type. Each window has the total weight y and the duration d.
#[derive(Clone, Debug, Default)]
pub(super) struct TypeSums {
    pub windows: usize,
    /// Number of samples; `None` if a window does not state its sampling interval.
    pub samples: Option<f64>,
    pub total: Exposure,
    pub duration: Exposure,
    pub rows: HashMap<FunctionLine, RowSums>,
}

/// Sum and sum of squares of y or of d.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exposure {
    pub sum: f64,
    pub squares: f64,
}

/// Sums of a row with the weight x in a window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowSums {
    pub weight: f64,
    pub squares: f64,
    pub by_total: f64,
    pub by_duration: f64,
    pub samples: f64,
}

impl Exposure {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }
}

impl WindowSums {
    /// No windows yet.
    pub fn new(by: Granularity, compared: Compared) -> Self {
        Self { by, compared, by_type: BTreeMap::new() }
    }

    /// Adds windows: each profile is one. Profiles of a state ([`Profile::is_gauge`]) are no replicates, since most of the state
    /// is that of the window before: see [`Self::add_state`].
    pub fn add(&mut self, data: &ProfilesData) {
        self.add_if(data, |profile| !profile.is_gauge());
    }

    /// Adds profiles of a state, of which `data` has the newest of each process.
    pub fn add_state(&mut self, data: &ProfilesData) {
        self.add_if(data, Profile::is_gauge);
    }

    fn add_if(&mut self, data: &ProfilesData, is_added: impl Fn(&Profile) -> bool) {
        for (_, profile) in data.profiles().filter(|(_, profile)| is_added(profile)) {
            let sums = self
                .by_type
                .entry(profile.type_name().to_owned())
                .or_insert_with(|| TypeSums { samples: Some(0.0), ..TypeSums::default() });
            sums.add(profile, data, self.by, self.compared);
        }
    }

    pub(super) fn of_type(&self, type_name: &str) -> Option<&TypeSums> {
        self.by_type.get(type_name)
    }
}

impl TypeSums {
    fn add(&mut self, profile: &Profile, data: &ProfilesData, by: Granularity, compared: Compared) {
        let weights = weights_of(&data.dictionary, std::iter::once(profile), by, generated_names::fold);
        let (total, duration) = (weights.total as f64, profile.duration_nano as f64);
        let interval = sampling_interval(profile);
        self.windows += 1;
        self.total.add(total);
        self.duration.add(duration);
        self.samples = self.samples.zip(interval).map(|(samples, interval)| samples + total / interval);
        for (at, weight) in weights.rows {
            let weight = compared.of(weight) as f64;
            let row = self.rows.entry(at).or_default();
            row.weight += weight;
            row.squares += weight * weight;
            row.by_total += weight * total;
            row.by_duration += weight * duration;
            row.samples += interval.map_or(0.0, |interval| weight / interval);
        }
    }
}

/// The weight of one sample. Of allocations it is the mean interval: samples of larger objects weigh more, so the number of
/// samples is estimated too high only where the weight is nearly exact.
fn sampling_interval(profile: &Profile) -> Option<f64> {
    let counts_samples = profile.sample_type.kind == "samples" && profile.unit() == "count";
    match profile.period_type.unit == profile.unit() && profile.period > 0 {
        true => Some(profile.period as f64),
        false => counts_samples.then_some(1.0),
    }
}
