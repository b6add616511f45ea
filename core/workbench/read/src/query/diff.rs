//! The comparison of two profiles: flat and cumulative weight per function or line in both, and which differences are
//! significant. The flat weight of managed code has that of the native code that it called, so that profiles with and without native
//! frames of one program are equal. Native functions are compared too if both sides have them.

use std::cmp::Reverse;

use hashbrown::HashMap;

use super::growth::{self, Basis, Growth, TestedSide, MIN_SHARE};
use super::stack_sums::Summed;
use super::summed_row::{Compared, SummedRow};
use super::weights::{FunctionLine, Granularity, Weight};
use super::window_sums::{TypeSums, WindowSums};

/// One function or line in both profiles. Generated names are those of their family: `Foo$*.run`.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffRow {
    /// The function or line.
    pub location: FunctionLine,
    /// Its weight in the baseline; 0 when absent.
    pub baseline: Weight,
    /// Its weight in the comparison; 0 when absent.
    pub comparison: Weight,
    /// Growth of the weight that is compared; `None` if nothing can be concluded: a share below [`growth::MIN_SHARE`], too few
    /// samples, or an unknown sampling interval and too few windows.
    pub growth: Option<Growth>,
    /// Whether the growth differs from 0 by more than chance, among all rows.
    pub is_significant: bool,
    /// Whether it grew by more than chance, among all rows: one-sided, for a gate.
    pub has_grown: bool,
}

/// Rows that differ, by descending absolute difference of `flat`, then of `cum`, then name.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// Number of rows with a [`DiffRow::growth`].
    pub tested: usize,
    /// Windows of the baseline and of the comparison.
    pub windows: [usize; 2],
    /// Processes of the baseline and of the comparison, if their variation decides; otherwise that of the windows does.
    pub processes: Option<[usize; 2]>,
    /// Samples of the baseline and of the comparison; `None` where the sampling interval is unknown.
    pub samples: [Option<f64>; 2],
    /// The growth of the total, if costs are compared: see [`cost()`].
    pub cost: Option<CostGrowth>,
    /// The sides with processes in which no managed code called native code, if another process has such code: those of another version
    /// of the profiler, or without native frames. Native code then counts for its callers only.
    pub lacks_native: [bool; 2],
}

impl DiffTable {
    /// Whether native code that managed code called is compared too.
    pub(super) fn compares_native(&self) -> bool {
        self.lacks_native == [false; 2]
    }
}

/// [`DiffTable::lacks_native`].
fn lacks_native(sums: [&TypeSums; 2]) -> [bool; 2] {
    let weights = sums.map(|side| side.stacks.managed_weights());
    let is_known = weights.iter().any(|[with_native, _]| *with_native > 0.0);
    weights.map(|[with_native, others]| is_known && others > MIN_SHARE * (with_native + others))
}

/// The growth of the total cost of a run or request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostGrowth {
    /// `None` with fewer than [`growth::MIN_WINDOWS`] processes on a side.
    pub growth: Option<Growth>,
    /// As [`DiffRow::has_grown`].
    pub has_grown: bool,
}

impl DiffRow {
    fn untested(location: FunctionLine, [baseline, comparison]: [Weight; 2]) -> Self {
        Self { location, baseline, comparison, growth: None, is_significant: false, has_grown: false }
    }

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
pub fn diff(sides: [&WindowSums; 2], type_name: &str, normalize: bool) -> DiffTable {
    let none = TypeSums::new(Summed::default());
    let sums = sides.map(|side| side.of_type(type_name).unwrap_or(&none));
    let [baseline, comparison] = sums;
    let scaled = |value: i64| match comparison.weight {
        total if normalize && total != 0 => (value as f64 * (baseline.weight as f64 / total as f64)).round() as i64,
        _ => value,
    };
    let by_process = growth::compares_processes(sums);
    let basis = if normalize { Basis::Total } else { Basis::Duration };
    let tested_sides = sums.map(|sums| TestedSide::new(sums, sums.stacks.sums(), basis, by_process));
    let lacks_native = lacks_native(sums);
    let mut rows: Vec<DiffRow> = rows_of_both(sums, lacks_native)
        .into_iter()
        .map(|(location, [baseline, comparison])| {
            let of_side = [baseline.1, comparison.1];
            let of_side = [0, 1].map(|side| tested_sides[side].row_of(of_side[side]));
            let growth = growth::growth(tested_sides, of_side, MIN_SHARE);
            let comparison = Weight { flat: scaled(comparison.0.flat), cum: scaled(comparison.0.cum) };
            DiffRow { growth, ..DiffRow::untested(location, [baseline.0, comparison]) }
        })
        .collect();
    let compared = rows.len();
    let tested = mark_significant(&mut rows);
    rows.retain(|row| row.baseline != row.comparison);
    rows.sort_by(|one, other| {
        let key = |row: &DiffRow| {
            let Weight { flat, cum } = row.difference();
            Reverse((flat.unsigned_abs(), cum.unsigned_abs()))
        };
        key(one).cmp(&key(other)).then_with(|| one.location.cmp(&other.location))
    });
    DiffTable {
        type_name: type_name.to_owned(),
        unit: if baseline.unit.is_empty() { comparison.unit.clone() } else { baseline.unit.clone() },
        baseline_total: baseline.weight,
        comparison_total: comparison.weight,
        equal: compared - rows.len(),
        rows,
        tested,
        windows: sums.map(|side| side.windows),
        processes: by_process.then(|| sums.map(|side| side.processes())),
        samples: sums.map(|side| side.samples),
        cost: None,
        lacks_native,
    }
}

/// Compares what a run costs: all weights are those of one process, or of one request if `requests` has their number on each side.
/// The variation of the processes decides, of the total and of each row: nothing is tested with fewer than
/// [`growth::MIN_WINDOWS`] of them on a side.
pub fn cost(sides: [&WindowSums; 2], type_name: &str, unit: &str, requests: Option<[f64; 2]>) -> DiffTable {
    let none = TypeSums::new(Summed::default());
    let sums = sides.map(|side| side.of_type(type_name).unwrap_or(&none));
    let by_process = growth::compares_processes(sums);
    let mut tested_sides = sums.map(|sums| TestedSide::new(sums, sums.stacks.sums(), Basis::Runs, by_process));
    if let Some(requests) = requests {
        tested_sides = [0, 1].map(|side| tested_sides[side].per(requests[side]));
    }
    let mut rows = tested_rows(sums, tested_sides, by_process);
    for row in &mut rows {
        row.baseline.flat = tested_sides[0].unit_weight(row.baseline.flat as f64);
        row.comparison.flat = tested_sides[1].unit_weight(row.comparison.flat as f64);
    }
    // The total is one more row of the family.
    let total = DiffRow {
        growth: growth::growth_of_total(tested_sides).filter(|_| by_process),
        ..DiffRow::untested(FunctionLine::default(), [Weight::default(); 2])
    };
    rows.push(total);
    let tested = mark_significant(&mut rows);
    let total = rows.pop().map(|total| CostGrowth { growth: total.growth, has_grown: total.has_grown });
    let compared = rows.len();
    rows.retain(|row| row.baseline != row.comparison);
    rows.sort_by(|one, other| {
        let key = |row: &DiffRow| Reverse(row.difference().flat.unsigned_abs());
        key(one).cmp(&key(other)).then_with(|| one.location.cmp(&other.location))
    });
    DiffTable {
        type_name: type_name.to_owned(),
        unit: unit.to_owned(),
        baseline_total: tested_sides[0].unit_weight(sums[0].total.sum),
        comparison_total: tested_sides[1].unit_weight(sums[1].total.sum),
        equal: compared - rows.len(),
        rows,
        tested,
        windows: sums.map(|side| side.windows),
        processes: by_process.then(|| sums.map(|side| side.processes())),
        samples: sums.map(|side| side.samples),
        cost: total,
        lacks_native: lacks_native(sums),
    }
}

/// The weight of a row on one side, and its sums over the windows; `None` where it is absent.
type SideRow<'s> = (Weight, Option<&'s SummedRow>);

/// The rows of both sides. Lines have the native code that they called, and so has managed code in the sums of [`Compared::Cum`].
fn rows_of_both(sums: [&TypeSums; 2], lacks_native: [bool; 2]) -> Vec<(FunctionLine, [SideRow<'_>; 2])> {
    let mut rows: Vec<(FunctionLine, [SideRow<'_>; 2])> = Vec::new();
    let mut row_numbers: HashMap<FunctionLine, usize> = HashMap::new();
    for (side, sums) in sums.into_iter().enumerate() {
        let Summed { by, compared, .. } = sums.stacks.summed();
        let has_native = lacks_native == [false; 2] && (by, compared) == (Granularity::Function, Compared::Flat);
        for (location, weight, sums) in sums.stacks.rows(has_native) {
            let row = *row_numbers.entry(location).or_insert_with_key(|location| {
                rows.push((location.clone(), Default::default()));
                rows.len() - 1
            });
            rows[row].1[side] = (weight, Some(sums));
        }
    }
    rows
}

/// The rows of both sides with their growth; nothing is tested with `is_tested` false.
fn tested_rows(sums: [&TypeSums; 2], sides: [TestedSide; 2], is_tested: bool) -> Vec<DiffRow> {
    let row = |(location, of_side): (FunctionLine, [SideRow<'_>; 2])| {
        let of_side = [0, 1].map(|side| sides[side].row_of(of_side[side].1));
        let weights = of_side.map(|sums| Weight { flat: sums.weight as i64, cum: 0 });
        let growth = is_tested.then(|| growth::growth(sides, of_side, MIN_SHARE)).flatten();
        DiffRow { growth, ..DiffRow::untested(location, weights) }
    };
    rows_of_both(sums, lacks_native(sums)).into_iter().map(row).collect()
}

/// The functions or lines whose share of a type is significantly larger in the comparison (one-sided, all rows together), by
/// descending growth of the share; weights are those of each side.
pub(crate) fn regressions(sides: [&WindowSums; 2], type_name: &str) -> Vec<DiffRow> {
    let [Some(baseline), Some(comparison)] = sides.map(|side| side.of_type(type_name)) else { return Vec::new() };
    let sums = [baseline, comparison];
    let by_process = growth::compares_processes(sums);
    let tested_sides = sums.map(|sums| TestedSide::new(sums, sums.stacks.sums(), Basis::Total, by_process));
    let mut rows = tested_rows(sums, tested_sides, true);
    mark_significant(&mut rows);
    rows.retain(|row| row.has_grown);
    let growth_of_share = |row: &DiffRow| {
        row.comparison.flat as f64 / comparison.total.sum - row.baseline.flat as f64 / baseline.total.sum
    };
    rows.sort_by(|one, other| {
        growth_of_share(other).total_cmp(&growth_of_share(one)).then_with(|| one.location.cmp(&other.location))
    });
    rows
}

/// Marks the significant rows; returns the number of rows that were tested.
fn mark_significant(rows: &mut [DiffRow]) -> usize {
    let tested: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].growth.is_some()).collect();
    let p_values: Vec<f64> = tested.iter().filter_map(|row| Some(rows[*row].growth?.p_value)).collect();
    for (row, is_significant) in tested.iter().zip(growth::significant(&p_values)) {
        rows[*row].is_significant = is_significant;
    }
    let grew = |row: &usize| rows[*row].growth.is_some_and(|growth| growth.estimate > 0.0);
    let one_sided: Vec<f64> = tested
        .iter()
        .zip(&p_values)
        .map(|(row, p_value)| if grew(row) { p_value / 2.0 } else { 1.0 - p_value / 2.0 })
        .collect();
    for (row, has_grown) in tested.iter().zip(growth::significant(&one_sided)) {
        rows[*row].has_grown = has_grown;
    }
    tested.len()
}
