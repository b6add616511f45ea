//! How much a row of a comparison grew, and how certain that is.
//!
//! A side's value is a ratio: the row's weight to the total weight, or to the duration of the windows. With [`MIN_WINDOWS`]
//! windows or more its variance comes from the windows (the linearized ratio estimator: Cochran, Sampling Techniques, 6.4),
//! moderated by [`super::dispersion`], but is at least the variance of the number of samples, where the sampling interval is
//! known. With fewer windows it is the variance of the number of samples: Poisson, or binomial for shares. The interval is
//! symmetric for the logarithm of the growth, with Student's t and the degrees of freedom of Welch and Satterthwaite.
//!
//! Significance holds for all rows together: by Holm's procedure, at most [`FAMILY_ERROR`] of the comparisons of two equal programs
//! have any significant row.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::dispersion::CommonDispersion;
use super::summed_row::{RowSums, SummedRow};
use super::window_sums::{Exposure, TypeSums};

/// With fewer windows on a side, the number of its samples decides: they are too few to estimate how much a value varies.
pub const MIN_WINDOWS: usize = 5;
/// Smallest share of the total, on either side, of a row that is tested.
pub const MIN_SHARE: f64 = 0.01;
/// Smallest number of samples of a row, on both sides together, where the sampling interval is known.
pub const MIN_SAMPLES: f64 = 20.0;
/// Share of comparisons of equal programs that may have a significant row. Measured: 0.3 to 1.9 % (decision 43).
pub const FAMILY_ERROR: f64 = 0.005;
/// Confidence of each interval.
const CONFIDENCE: f64 = 0.95;
/// Above, Student's t is the normal distribution.
const MANY_DEGREES_OF_FREEDOM: f64 = 1e5;

/// Relative growth of a row: 0.05 is 5 % more than in the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The estimate; infinite for a row that is new.
    pub estimate: f64,
    /// Lower end of the 95 % confidence interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Probability of at least this change between equal programs, of this row alone.
    pub p_value: f64,
}

/// Divisor of the weight of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Basis {
    /// Nothing; its variance is that of the weight per second of the windows.
    Duration,
    /// The total weight: shares are compared.
    Total,
    /// The number of processes, or of requests in all of them: the cost of one is compared.
    Runs,
}

/// The sums of one side, and what its rows have in common.
#[derive(Clone, Copy)]
pub(super) struct TestedSide<'s> {
    sums: &'s TypeSums,
    basis: Basis,
    by_process: bool,
    replicates: usize,
    exposure: Exposure,
    /// Number of runs or requests.
    units: f64,
    common: CommonDispersion,
}

/// Whether the processes of both sides are the replicates: each has enough of them. Windows of one process resemble each other
/// more than windows of two processes: addresses and the order of allocations differ between runs (decision 43).
pub(super) fn compares_processes(sums: [&TypeSums; 2]) -> bool {
    sums.iter().all(|side| side.process_groups() >= MIN_WINDOWS)
}

impl<'s> TestedSide<'s> {
    /// The side whose `rows` are compared; `by_process` is that of [`compares_processes`].
    pub fn new(sums: &'s TypeSums, rows: &[SummedRow], basis: Basis, by_process: bool) -> Self {
        let mut side = Self {
            sums,
            basis,
            by_process,
            replicates: sums.windows,
            exposure: if basis == Basis::Total { sums.total } else { sums.duration },
            units: sums.processes() as f64,
            common: CommonDispersion::default(),
        };
        if by_process {
            side.exposure = Exposure::default();
            side.replicates = sums.group_totals.len();
            for group in &sums.group_totals {
                side.exposure.add(match basis {
                    Basis::Duration => group.duration,
                    Basis::Total => group.total,
                    Basis::Runs => group.processes,
                });
            }
        }
        if side.replicates >= MIN_WINDOWS {
            let rows = rows.iter().map(|row| side.row(row));
            let tested = rows.filter(|row| row.weight >= MIN_SHARE * sums.total.sum);
            let dispersions: Vec<f64> = tested.filter_map(|row| side.dispersion(row)).collect();
            side.common = CommonDispersion::fit(&dispersions, side.freedom());
        }
        side
    }

    /// As [`Basis::Runs`], of this number of requests.
    pub fn per(self, requests: f64) -> Self {
        Self { units: requests, ..self }
    }

    /// The weight of one run or request.
    pub fn unit_weight(&self, weight: f64) -> i64 {
        (weight / self.units).round() as i64
    }

    /// The sums of a row over the replicates.
    pub fn row(&self, row: &SummedRow) -> RowSums {
        if self.by_process {
            row.by_process(&self.sums.group_totals)
        } else {
            row.sums
        }
    }

    /// As [`Self::row`], of a row that may be absent.
    pub fn row_of(&self, row: Option<&SummedRow>) -> RowSums {
        row.map_or_else(RowSums::default, |row| self.row(row))
    }

    fn freedom(&self) -> f64 {
        self.replicates as f64 - 1.0
    }

    /// The square of the relative standard error of a count of 1. The total of a run is not counted but measured by a clock, so
    /// that only the share in it is a matter of sampling.
    fn variance_of_one(&self, row: RowSums) -> f64 {
        match self.basis {
            Basis::Duration => 1.0,
            Basis::Total | Basis::Runs => 1.0 - (row.weight / self.sums.total.sum).min(1.0),
        }
    }

    /// The variance between replicates relative to that of a count, in the unit of the weight; `None` for a row without any.
    fn dispersion(&self, row: RowSums) -> Option<f64> {
        let product = match self.basis {
            Basis::Duration => row.by_duration,
            Basis::Total => row.by_total,
            Basis::Runs => row.by_processes,
        };
        let of_one = self.variance_of_one(row);
        if row.weight <= 0.0 || self.exposure.sum <= 0.0 || of_one <= 0.0 {
            return None;
        }
        Some(self.relative_variance(row.weight, row.squares, product) * row.weight / of_one)
    }

    /// The square of the relative standard error of a weight, from the replicates: the linearized ratio estimator.
    fn relative_variance(&self, weight: f64, squares: f64, product: f64) -> f64 {
        let Exposure { sum, squares: exposure_squares } = self.exposure;
        let ratio = weight / sum;
        let residuals = squares - 2.0 * ratio * product + ratio * ratio * exposure_squares;
        let replicates = self.replicates as f64;
        replicates / (replicates - 1.0) * residuals.max(0.0) / (weight * weight)
    }

    fn value(&self, weight: f64) -> f64 {
        match self.basis {
            Basis::Duration => weight,
            Basis::Total => weight / self.sums.total.sum,
            Basis::Runs => weight / self.units,
        }
    }

    /// The total weight of a run. Its error is the variation of the runs: clocks measure it.
    fn total(&self) -> Option<Estimate> {
        let groups = self.sums.group_totals.iter();
        let (squares, product) = groups.fold((0.0, 0.0), |(squares, product), group| {
            (squares + group.total * group.total, product + group.total * group.processes)
        });
        let weight = self.sums.total.sum;
        (weight > 0.0).then(|| Estimate {
            value: self.value(weight),
            relative_variance: self.relative_variance(weight, squares, product),
            freedom: self.freedom(),
        })
    }
}

/// Value of one side: the estimate, the square of its relative standard error, and the degrees of freedom of that.
#[derive(Clone, Copy)]
struct Estimate {
    value: f64,
    relative_variance: f64,
    freedom: f64,
}

/// The growth of a row from the baseline to the comparison; `None` if nothing can be concluded, as below `min_share` of the total.
pub(super) fn growth(sides: [TestedSide; 2], rows: [RowSums; 2], min_share: f64) -> Option<Growth> {
    let is_small = |side: usize| rows[side].weight < min_share * sides[side].sums.total.sum;
    let samples = sides.iter().all(|side| side.sums.samples.is_some()).then(|| rows[0].samples + rows[1].samples);
    if is_small(0) && is_small(1) || samples.is_some_and(|samples| samples < MIN_SAMPLES) {
        return None;
    }
    let is_absent = rows.iter().any(|row| row.weight == 0.0);
    let of_side = |side: usize| estimate(sides[side], rows[side], is_absent);
    let growth = growth_between(of_side(0)?, of_side(1)?);
    Some(Growth {
        estimate: match rows.map(|row| row.weight == 0.0) {
            [true, _] => f64::INFINITY,
            [_, true] => -1.0,
            _ => growth.estimate,
        },
        ..growth
    })
}

/// The growth of the total weight of a run; `None` without any on a side.
pub(super) fn growth_of_total(sides: [TestedSide; 2]) -> Option<Growth> {
    Some(growth_between(sides[0].total()?, sides[1].total()?))
}

fn growth_between(baseline: Estimate, comparison: Estimate) -> Growth {
    let variances = [baseline, comparison].map(|side| side.relative_variance);
    let error = (variances[0] + variances[1]).sqrt();
    let of_side = |side: Estimate| side.relative_variance.powi(2) / side.freedom;
    let freedom = (variances[0] + variances[1]).powi(2) / (of_side(baseline) + of_side(comparison));
    let logarithm = (comparison.value / baseline.value).ln();
    // A row that is all of both sides has no error.
    let margin = if error == 0.0 { 0.0 } else { quantile(0.5 + CONFIDENCE / 2.0, freedom) * error };
    let [low, high] = [logarithm - margin, logarithm + margin].map(|end| end.exp() - 1.0);
    Growth {
        estimate: logarithm.exp() - 1.0,
        low,
        high,
        p_value: if error == 0.0 { f64::from(logarithm == 0.0) } else { 2.0 * tail(logarithm.abs() / error, freedom) },
    }
}

fn estimate(side: TestedSide, row: RowSums, adds_half: bool) -> Option<Estimate> {
    let sums = side.sums;
    if sums.total.sum <= 0.0 {
        return None;
    }
    // Half a sample keeps the logarithm of an absent row finite.
    let half = if adds_half { 0.5 } else { 0.0 };
    let weight = match sums.samples.filter(|samples| *samples > 0.0) {
        Some(samples) => row.weight + half * sums.total.sum / samples,
        // Without a sampling interval, of the smallest weight that is tested.
        None => row.weight + half * MIN_SHARE * sums.total.sum,
    };
    let of_one = side.variance_of_one(row);
    let by_samples = sums.samples.map(|_| of_one / (row.samples + half));
    let dispersion = (side.replicates >= MIN_WINDOWS).then(|| side.dispersion(row)).flatten();
    let (relative_variance, freedom) = match (dispersion, by_samples) {
        (Some(dispersion), counted) => {
            let (dispersion, freedom) = side.common.moderate(dispersion, side.freedom());
            ((dispersion * of_one / row.weight).max(counted.unwrap_or(0.0)), freedom)
        }
        (None, Some(counted)) => (counted, f64::INFINITY),
        // Absent, and the weight of a sample is unknown.
        (None, None) if side.replicates >= MIN_WINDOWS && half > 0.0 => (1.0 / half, side.freedom()),
        (None, None) => return None,
    };
    Some(Estimate { value: side.value(weight), relative_variance, freedom })
}

fn quantile(probability: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(student) if freedom < MANY_DEGREES_OF_FREEDOM => student.inverse_cdf(probability),
        _ => Normal::standard().inverse_cdf(probability),
    }
}

/// Probability of a value above `z`.
fn tail(z: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(student) if freedom < MANY_DEGREES_OF_FREEDOM => student.sf(z),
        _ => Normal::standard().sf(z),
    }
}

/// Which of the probabilities are significant together (Holm 1979).
pub(super) fn significant(p_values: &[f64]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let mut are_significant = vec![false; p_values.len()];
    for (nth, at) in order.iter().enumerate() {
        if p_values[*at] > FAMILY_ERROR / (p_values.len() - nth) as f64 {
            break;
        }
        are_significant[*at] = true;
    }
    are_significant
}
