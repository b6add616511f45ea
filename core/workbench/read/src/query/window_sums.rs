//! Sums of one side of a comparison over its windows, and over its processes: the replicates from which [`super::growth`] estimates
//! how much a value varies by chance. Windows are added one at a time; memory depends on the number of rows only.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashMap;
use spanprof_profile::{
    Attribute, AttributeSetId, Dictionary, Profile, ProfilesData, ResourceProfiles, PROCESS_IDENTITY,
};

use super::stack_sums::{Summed, SummedStacks};
use super::summed_row::{Compared, GroupTotals, WindowExposure};
use super::weights::Granularity;

/// Groups of processes as replicates; further processes join these groups in turn, which bounds memory.
const MAX_GROUPS: usize = 32;

/// Sums over the windows of one side.
#[derive(Debug, Default)]
pub struct WindowSums {
    summed: Summed,
    /// Rows are the values of this label, not functions.
    label: Option<String>,
    by_type: BTreeMap<String, TypeSums>,
}

/// Sums of one profile type. Each window has the total weight y and the duration d.
#[derive(Debug)]
pub(super) struct TypeSums {
    /// Unit of the weights.
    pub unit: String,
    pub windows: usize,
    /// Number of samples; `None` if a window does not state its sampling interval.
    pub samples: Option<f64>,
    /// Whether there is any sample.
    pub has_samples: bool,
    /// Weight of all samples.
    pub weight: i64,
    pub total: Exposure,
    pub duration: Exposure,
    pub stacks: SummedStacks,
    /// Group of each process; profiles without a process identity are in none.
    groups: HashMap<u64, usize>,
    pub group_totals: Vec<GroupTotals>,
    has_unidentified: bool,
}

/// Sum and sum of squares of y or of d.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Exposure {
    pub sum: f64,
    pub squares: f64,
}

impl Exposure {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }
}

impl WindowSums {
    /// No windows yet.
    pub fn new(by: Granularity, compared: Compared) -> Self {
        Self { summed: Summed { by, compared, ..Summed::default() }, ..Self::default() }
    }

    /// Rows are the values of a label, or of an attribute of the resource: `endpoint=/cart`.
    pub fn of_label(key: &str) -> Self {
        Self { label: Some(key.to_owned()), ..Self::default() }
    }

    /// As [`Self::new`]; also sums call paths, for [`super::diff_tree()`].
    pub fn with_paths(by: Granularity, compared: Compared) -> Self {
        Self { summed: Summed { by, compared, has_paths: true, has_folded_paths: false }, ..Self::default() }
    }

    /// Also sums call paths with folded libraries and runtimes, for [`super::folded_diff_tree()`].
    pub fn and_folded_paths(self) -> Self {
        Self { summed: Summed { has_folded_paths: true, ..self.summed }, ..self }
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
        for (resource, profile) in data.profiles().filter(|(_, profile)| is_added(profile)) {
            self.add_profile(&data.dictionary, resource, profile);
        }
    }

    /// Adds one profile as a window.
    pub(crate) fn add_profile(&mut self, dictionary: &Dictionary, resource: &ResourceProfiles, profile: &Profile) {
        let (type_name, summed) = (profile.type_name(), self.summed);
        let sums = match self.by_type.get_mut(type_name) {
            Some(sums) => sums,
            None => self.by_type.entry(type_name.to_owned()).or_insert_with(|| TypeSums::new(summed)),
        };
        let window = sums.add_window(profile, resource);
        match &self.label {
            Some(key) => {
                sums.stacks.add_named(label_weights(dictionary, resource, profile, key).into_iter(), window);
            }
            None => sums.stacks.add(dictionary, profile, process_identity(resource), window),
        }
    }

    /// The names of the types, and whether each has samples.
    pub fn types(&self) -> impl Iterator<Item = (&str, bool)> {
        self.by_type.iter().map(|(name, sums)| (name.as_str(), sums.has_samples))
    }

    /// Total weight of a type.
    pub(crate) fn total(&self, type_name: &str) -> f64 {
        self.of_type(type_name).map_or(0.0, |sums| sums.total.sum)
    }

    /// Number of processes with profiles of a type.
    pub fn processes(&self, type_name: &str) -> usize {
        self.of_type(type_name).map_or(0, TypeSums::processes)
    }

    /// The number of samples of a part of a type; 0 if the sampling interval is unknown.
    pub(crate) fn samples(&self, type_name: &str, part: f64) -> f64 {
        self.of_type(type_name).map_or(0.0, |sums| sums.samples.unwrap_or_default() * part / sums.total.sum.max(1.0))
    }

    pub(super) fn of_type(&self, type_name: &str) -> Option<&TypeSums> {
        self.by_type.get(type_name)
    }
}

impl TypeSums {
    pub fn new(summed: Summed) -> Self {
        Self {
            unit: String::new(),
            windows: 0,
            samples: Some(0.0),
            has_samples: false,
            weight: 0,
            total: Exposure::default(),
            duration: Exposure::default(),
            stacks: SummedStacks::new(summed),
            groups: HashMap::new(),
            group_totals: Vec::new(),
            has_unidentified: false,
        }
    }

    /// Number of replicates if processes are these, at most [`MAX_GROUPS`]; 0 if a process is unknown.
    pub fn process_groups(&self) -> usize {
        if self.has_unidentified {
            0
        } else {
            self.group_totals.len()
        }
    }

    /// Number of processes.
    pub fn processes(&self) -> usize {
        self.groups.len()
    }

    fn add_window(&mut self, profile: &Profile, resource: &ResourceProfiles) -> WindowExposure {
        let weight = profile.samples.iter().fold(0i64, |sum, sample| sum.saturating_add(profile.weight(sample)));
        if self.unit.is_empty() {
            profile.unit().clone_into(&mut self.unit);
        }
        self.has_samples |= !profile.samples.is_empty();
        self.weight = self.weight.saturating_add(weight);
        let total = weight as f64;
        let (duration, interval) = (profile.duration_nano as f64, profile.sampling_interval());
        self.windows += 1;
        self.total.add(total);
        self.duration.add(duration);
        self.samples = self.samples.zip(interval).map(|(samples, interval)| samples + total / interval);
        let group = process_identity(resource).map(|identity| {
            let number = self.groups.len();
            let group = *self.groups.entry(identity).or_insert(number % MAX_GROUPS);
            (group, self.groups.len() > number)
        });
        match group {
            None => self.has_unidentified = true,
            Some((group, is_new_process)) => {
                if group >= self.group_totals.len() {
                    self.group_totals.resize(group + 1, GroupTotals::default());
                }
                let totals = &mut self.group_totals[group];
                totals.total += total;
                totals.duration += duration;
                totals.processes += f64::from(u8::from(is_new_process));
            }
        }
        let group = group.map(|(group, _)| group);
        WindowExposure { total, duration, interval, group }
    }
}

/// The weight of each value of a label; samples without it are one row.
fn label_weights(
    dictionary: &Dictionary,
    resource: &ResourceProfiles,
    profile: &Profile,
    key: &str,
) -> BTreeMap<String, i64> {
    let of_resource = resource.resource.iter().find(|attribute| attribute.key == key);
    let value_of = |set: AttributeSetId| {
        let of_sample = dictionary.attributes_of(set).find(|attribute| attribute.key == key);
        let value = of_sample.map(|label| label.value).or(of_resource.map(|attribute| attribute.value.as_ref()));
        value.map_or_else(|| format!("(no {key})"), |value| format!("{key}={value}"))
    };
    let mut sums: HashMap<AttributeSetId, i64> = HashMap::new();
    for sample in &profile.samples {
        let sum = sums.entry(sample.attributes).or_default();
        *sum = sum.saturating_add(profile.weight(sample));
    }
    // Several sets have one value.
    let mut rows: BTreeMap<String, i64> = BTreeMap::new();
    for (set, weight) in sums {
        let sum = rows.entry(value_of(set)).or_default();
        *sum = sum.saturating_add(weight);
    }
    rows
}

/// A hash of the attributes that identify a process.
pub(crate) fn process_identity(resource: &ResourceProfiles) -> Option<u64> {
    let is_identity = |attribute: &&Attribute| PROCESS_IDENTITY.contains(&attribute.key.as_str());
    let identity: Vec<&Attribute> = resource.resource.iter().filter(is_identity).collect();
    if identity.is_empty() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    for attribute in identity {
        (&attribute.key, attribute.value.as_ref().to_string()).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// As [`Profile::estimated_samples`].
pub(crate) fn estimated_samples(profile: &Profile, weight: i64) -> (f64, bool) {
    profile.estimated_samples(weight)
}
