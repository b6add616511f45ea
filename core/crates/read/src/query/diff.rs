//! The comparison of two profiles: flat and cumulative weight per function or line in both.

use std::cmp::Reverse;

use hashbrown::HashMap;
use spanprof_profile::ProfilesData;

use super::weights::{weights, FunctionLine, Granularity, Weight};

/// One function or line in both profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffRow {
    /// The function or line.
    pub at: FunctionLine,
    /// Its weight in the baseline; 0 when absent.
    pub baseline: Weight,
    /// Its weight in the comparison; 0 when absent.
    pub comparison: Weight,
}

/// Rows that differ, by descending absolute difference of `flat`, then of `cum`, then name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffTable {
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: String,
    /// Unit of all weights.
    pub unit: String,
    /// Weight of all samples of the baseline.
    pub baseline_total: i64,
    /// Weight of all samples of the comparison, before normalization.
    pub comparison_total: i64,
    /// The rows that differ.
    pub rows: Vec<DiffRow>,
    /// Number of functions or lines with equal weights.
    pub equal: usize,
}

impl DiffRow {
    /// Comparison minus baseline.
    pub fn difference(&self) -> Weight {
        Weight {
            flat: self.comparison.flat.saturating_sub(self.baseline.flat),
            cum: self.comparison.cum.saturating_sub(self.baseline.cum),
        }
    }
}

/// Compares one profile type. With `normalize`, weights of the comparison are scaled to the total of the baseline, which
/// compares shares: of runs of different length or load. Without samples in the comparison it scales nothing.
pub fn diff(
    baseline: &ProfilesData,
    comparison: &ProfilesData,
    type_name: &str,
    by: Granularity,
    normalize: bool,
) -> DiffTable {
    let [baseline, comparison] = [baseline, comparison].map(|data| weights(data, type_name, by));
    let scaled = |value: i64| match comparison.total {
        total if normalize && total != 0 => (value as f64 * (baseline.total as f64 / total as f64)).round() as i64,
        _ => value,
    };
    let mut rows: HashMap<FunctionLine, [Weight; 2]> =
        baseline.rows.into_iter().map(|(at, weight)| (at, [weight, Weight::default()])).collect();
    for (at, weight) in comparison.rows {
        let weight = Weight { flat: scaled(weight.flat), cum: scaled(weight.cum) };
        rows.entry(at).or_default()[1] = weight;
    }
    let compared = rows.len();
    let mut rows: Vec<DiffRow> = rows
        .into_iter()
        .filter(|(_, [baseline, comparison])| baseline != comparison)
        .map(|(at, [baseline, comparison])| DiffRow { at, baseline, comparison })
        .collect();
    rows.sort_by(|one, other| {
        let key = |row: &DiffRow| {
            let Weight { flat, cum } = row.difference();
            Reverse((flat.unsigned_abs(), cum.unsigned_abs()))
        };
        key(one).cmp(&key(other)).then_with(|| one.at.cmp(&other.at))
    });
    DiffTable {
        type_name: type_name.to_owned(),
        unit: if baseline.unit.is_empty() { comparison.unit } else { baseline.unit },
        baseline_total: baseline.total,
        comparison_total: comparison.total,
        equal: compared - rows.len(),
        rows,
    }
}
