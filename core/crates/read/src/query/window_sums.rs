//! Sums of one side of a comparison over its windows, and over its processes: the replicates from which [`super::growth`] estimates
//! how much a value varies by chance. Windows are added one at a time; memory depends on the number of rows only.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::HashMap;
use spanprof_profile::{
    transform::{self, FunctionKey, StackTree},
    Attribute, AttributeSetId, Dictionary, Profile, ProfilesData, ResourceProfiles, PROCESS_IDENTITY,
};

use super::generated_names;
use super::weights::{weights_of, FunctionLine, Granularity, Weight};

/// Groups of processes as replicates; further processes join these groups in turn, which bounds memory.
const MAX_GROUPS: usize = 32;

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
    has_paths: bool,
    has_folded_paths: bool,
    /// Rows are the values of this label, not functions.
    label: Option<String>,
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
    pub rows: HashMap<FunctionLine, SummedRow>,
    /// Call paths with their callees, by [`path_keys`].
    pub paths: HashMap<u64, SummedRow>,
    /// Those with folded libraries and runtimes.
    pub folded_paths: HashMap<u64, SummedRow>,
    /// Group of each process; profiles without a process identity are in none.
    groups: HashMap<u64, usize>,
    pub group_totals: Vec<GroupTotals>,
    has_unidentified: bool,
}

/// One group of processes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupTotals {
    pub total: f64,
    pub duration: f64,
    pub processes: f64,
}

/// A row over all windows, and its weight in each group of processes.
#[derive(Clone, Debug, Default)]
pub(super) struct SummedRow {
    pub sums: RowSums,
    pub groups: Vec<f64>,
}

/// A window of one side, as the exposure of its rows.
#[derive(Clone, Copy)]
struct WindowExposure {
    total: f64,
    duration: f64,
    interval: Option<f64>,
    group: Option<usize>,
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
    pub by_processes: f64,
    pub samples: f64,
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
        Self { by, compared, ..Self::default() }
    }

    /// Rows are the values of a label, or of an attribute of the resource: `endpoint=/cart`.
    pub fn of_label(key: &str) -> Self {
        Self { label: Some(key.to_owned()), ..Self::default() }
    }

    /// As [`Self::new`]; also sums call paths, for [`super::diff_tree()`].
    pub fn with_paths(by: Granularity, compared: Compared) -> Self {
        Self { has_paths: true, ..Self::new(by, compared) }
    }

    /// Also sums call paths with folded libraries and runtimes, for [`super::folded_diff_tree()`].
    pub fn and_folded_paths(self) -> Self {
        Self { has_folded_paths: true, ..self }
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
        let sums = self
            .by_type
            .entry(profile.type_name().to_owned())
            .or_insert_with(|| TypeSums { samples: Some(0.0), ..TypeSums::default() });
        let window = sums.add_window(profile, resource);
        let rows = match &self.label {
            Some(key) => label_weights(dictionary, resource, profile, key),
            None => weights_of(dictionary, std::iter::once(profile), self.by, Some(generated_names::fold)).rows,
        };
        for (at, weight) in rows {
            sums.rows.entry(at).or_default().add(self.compared.of(weight), window);
        }
        if self.has_paths || self.has_folded_paths {
            let tree = transform::tree_of(dictionary, std::iter::once(profile), Some(generated_names::fold), true);
            if self.has_paths {
                add_paths(&mut sums.paths, &tree, window);
            }
            if self.has_folded_paths {
                add_paths(&mut sums.folded_paths, &tree.folded(|_| false), window);
            }
        }
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
        let total = profile.samples.iter().fold(0i64, |sum, sample| sum.saturating_add(profile.weight(sample))) as f64;
        let (duration, interval) = (profile.duration_nano as f64, sampling_interval(profile));
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

fn add_paths(paths: &mut HashMap<u64, SummedRow>, tree: &StackTree, window: WindowExposure) {
    let edges = tree.nodes.iter().map(|node| (node.parent, node.function));
    for (key, node) in path_keys(&tree.functions, edges).into_iter().zip(&tree.nodes) {
        paths.entry(key).or_default().add(node.total_weight, window);
    }
}

impl SummedRow {
    fn add(&mut self, weight: i64, window: WindowExposure) {
        let weight = weight as f64;
        let sums = &mut self.sums;
        sums.weight += weight;
        sums.squares += weight * weight;
        sums.by_total += weight * window.total;
        sums.by_duration += weight * window.duration;
        sums.samples += window.interval.map_or(0.0, |interval| weight / interval);
        if let Some(group) = window.group {
            if group >= self.groups.len() {
                self.groups.resize(group + 1, 0.0);
            }
            self.groups[group] += weight;
        }
    }

    /// The sums with groups of processes in place of windows.
    pub fn by_process(&self, group_totals: &[GroupTotals]) -> RowSums {
        let mut sums = RowSums { squares: 0.0, by_total: 0.0, by_duration: 0.0, ..self.sums };
        for (weight, group) in self.groups.iter().zip(group_totals) {
            sums.squares += weight * weight;
            sums.by_total += weight * group.total;
            sums.by_duration += weight * group.duration;
            sums.by_processes += weight * group.processes;
        }
        sums
    }
}

/// The weight of each value of a label; samples without it are one row.
fn label_weights(
    dictionary: &Dictionary,
    resource: &ResourceProfiles,
    profile: &Profile,
    key: &str,
) -> Vec<(FunctionLine, Weight)> {
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
    let row = |(set, sum)| {
        (FunctionLine { function: value_of(set), ..FunctionLine::default() }, Weight { flat: sum, cum: sum })
    };
    // Several sets have one value.
    let mut rows: BTreeMap<FunctionLine, Weight> = BTreeMap::new();
    for (at, weight) in sums.into_iter().map(row) {
        let sum = rows.entry(at).or_default();
        sum.flat = sum.flat.saturating_add(weight.flat);
        sum.cum = sum.flat;
    }
    rows.into_iter().collect()
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

/// A number per call path, equal in all windows: a hash of its functions. Nodes are parents and functions, parents first.
pub(super) fn path_keys(functions: &[FunctionKey], nodes: impl Iterator<Item = (u32, u32)>) -> Vec<u64> {
    let hash_of = |value: &dyn Fn(&mut DefaultHasher)| {
        // Fixed keys, unlike those of maps.
        let mut hasher = DefaultHasher::new();
        value(&mut hasher);
        hasher.finish()
    };
    let functions: Vec<u64> = functions.iter().map(|function| hash_of(&|hasher| function.hash(hasher))).collect();
    let mut keys: Vec<u64> = Vec::new();
    for (parent, function) in nodes {
        let key = match keys.get(parent as usize) {
            Some(caller) => hash_of(&|hasher| (caller, functions[function as usize]).hash(hasher)),
            None => 0,
        };
        keys.push(key);
    }
    keys
}

/// Longest time that one observation of a waiting thread covers, nanoseconds: profiles of `off_cpu` do not state their number.
const WAIT_SAMPLE_NS: f64 = 2.5e8;

/// The weight of one sample. Of allocations it is the mean interval: samples of larger objects weigh more, so the number of
/// samples is estimated too high only where the weight is nearly exact. Measured times, such as `off_cpu`, have the period of a
/// nanosecond, and no interval.
fn sampling_interval(profile: &Profile) -> Option<f64> {
    let counts_samples = profile.sample_type.kind == "samples" && profile.unit() == "count";
    let is_measured = profile.period == 1 && profile.unit() == "nanoseconds";
    match profile.period_type.unit == profile.unit() && profile.period > 0 && !is_measured {
        true => Some(profile.period as f64),
        false => counts_samples.then_some(1.0),
    }
}

/// The number of samples in an aggregated sample. The second value is false if only their lower limit is known.
pub(crate) fn estimated_samples(profile: &Profile, weight: i64) -> (f64, bool) {
    match sampling_interval(profile) {
        Some(interval) => (weight as f64 / interval, true),
        None if profile.type_name() == "off_cpu" => ((weight as f64 / WAIT_SAMPLE_NS).max(1.0), true),
        None => (1.0, false),
    }
}
