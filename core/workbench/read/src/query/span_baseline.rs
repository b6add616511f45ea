//! One span, or one trace, against the mean of the others of its endpoint, by function.
//!
//! A span has few samples, so the tests are exact for small counts. Given equal rates, the samples of the span are a binomial
//! part of the samples of all spans of the endpoint. The profiler may have sampled them at different intervals (a governor, a
//! change of the configuration): the expected part is in proportion to the sampling rates. Intervals of one count follow
//! Garwood (1936); recovered variances combine them to the interval of a difference (Zou and Donner 2008). Where the other spans
//! vary more than counts do, the baseline counts as correspondingly fewer spans. A test shows that chance of sampling
//! is no explanation. It does not show that the span is unusual: for that, a row has the number of other spans with as
//! much.
//!
//! The comparison of `diff` is not used: it needs 20 samples of a function. A quantile of the other spans alone is no
//! test: with 20 of them, each of 20 functions is the largest by chance in one of 21 spans. Simulated spans of 14
//! samples: 4 of 3,000 equal ones have a significant function, and 963 of 1,000 intervals contain the true difference.

use std::cmp::Reverse;

use hashbrown::HashMap;
use spanprof_profile::code_origin::CodeOrigin;
use spanprof_profile::Link;
use statrs::distribution::{ContinuousCDF, Gamma};
use statrs::function::beta::beta_reg;

use super::growth;
use super::span_time::SpanTime;
use super::spans::{key_of, SpanSums, SpanTotals, TypeTotal};
use super::summed_row::Compared;
use super::weights::FunctionLine;

/// Smallest number of samples of a tested row: those of the span and of the mean span together.
pub const MIN_SPAN_SAMPLES: f64 = 3.0;
/// Types whose functions are compared unless one is chosen, most telling first.
pub const COMPARED_TYPES: [&str; 6] = ["cpu", "off_cpu", "awaited", "wall", "delay", "alloc_space"];
/// From this number of spans on, their variation counts.
const MIN_SPANS: usize = 5;
const TAIL: f64 = 0.025;
/// Part of a request's time with which a function is its cause, whatever its callers add.
const MOST: f64 = 0.8;

impl SpanTotals {
    /// Functions of the tracked type, and whether its numbers of samples are known.
    pub(super) fn functions(&self) -> (&[FunctionLine], bool) {
        let tracked = self.tracked.as_ref();
        tracked.map_or((&[], false), |tracked| (&tracked.rows, tracked.has_counts))
    }

    /// By function of the tracked type: its smallest distance from the root of a stack. If one function calls another, that of the caller
    /// is smaller.
    pub(super) fn depths(&self) -> &[usize] {
        self.tracked.as_ref().map_or(&[], |tracked| &tracked.depths)
    }

    /// The innermost line of own code in which more than half of a span's weight of the tracked type was spent, with its callees, and
    /// its weight; of other code without one.
    pub(crate) fn main_line(&self, link: Link) -> Option<(&FunctionLine, i64)> {
        let span = self.spans.get(&key_of(link))?;
        let half = self.tracked_total(span).weight / 2;
        let ((lines, _), depths) = (self.functions(), self.depths());
        let heavy = span.functions.iter().filter(|(_, weight)| weight.cum > half);
        let main = heavy.map(|(at, weight)| (*at as usize, weight.cum)).max_by_key(|(at, _)| {
            let line = &lines[*at];
            let is_code = !line.file.is_empty();
            (is_code && line.origin() == CodeOrigin::Own, is_code, depths[*at], line)
        });
        main.map(|(at, weight)| (&lines[at], weight))
    }

    /// Name and unit of the tracked type.
    pub(super) fn tracked_type(&self) -> (&str, &str) {
        let name = self.tracked.as_ref().map_or("", |tracked| tracked.type_name.as_str());
        (name, self.tracked_index().map_or("", |at| self.units[at].as_str()))
    }

    fn tracked_index(&self) -> Option<usize> {
        let name = &self.tracked.as_ref()?.type_name;
        self.types.iter().position(|known| known == name)
    }

    /// The samples of the tracked type in a span.
    pub(super) fn tracked_total(&self, span: &SpanSums) -> TypeTotal {
        self.tracked_index().and_then(|at| span.totals.get(at)).copied().unwrap_or_default()
    }
}

/// The difference between a span and the mean of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanDifference {
    /// Weight of the span.
    pub weight: i64,
    /// Mean weight of the others, 0 without any.
    pub mean: f64,
    /// 95 % interval of the difference; `None` where the number of samples is unknown or there is no other span.
    pub interval: Option<(f64, f64)>,
    /// Probability of at least this difference if the span equals the mean; `None` where nothing can be concluded.
    pub p_value: Option<f64>,
    /// Other spans with at least the weight of this one.
    pub as_much: usize,
}

/// A function or line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanBaselineRow {
    /// The function or line.
    pub location: FunctionLine,
    /// The difference in the compared weight.
    pub difference: SpanDifference,
    /// Whether it is more than chance, among all rows.
    pub is_significant: bool,
}

/// Rows by descending absolute difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpanBaseline {
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: String,
    /// Unit of the weights.
    pub unit: String,
    /// `service.name`.
    pub service: String,
    /// Endpoint of the span.
    pub endpoint: String,
    /// [`SpanTime::others`].
    pub others: usize,
    /// Samples of the span and of all others; `None` where their number is unknown.
    pub samples: Option<[f64; 2]>,
    /// The difference of all functions together.
    pub total: SpanDifference,
    /// The functions of the span and of the others.
    pub rows: Vec<SpanBaselineRow>,
    /// Rows with a [`SpanDifference::p_value`].
    pub tested: usize,
}

/// Why a span cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSpanBaseline {
    /// No sample of the type belongs to it.
    NotFound,
    /// None of its samples has a label that names an endpoint.
    NoEndpoint,
}

/// One span or trace: the sum of its functions, and of everything.
#[derive(Clone, Default)]
struct SpanUnit {
    functions: HashMap<u32, i64>,
    total: i64,
    /// As sampled, for the mean interval.
    sampled: TypeTotal,
}

impl SpanUnit {
    fn add(&mut self, totals: &SpanTotals, span: &SpanSums, compared: impl Fn(u32) -> Compared) {
        let sampled = totals.tracked_total(span);
        self.sampled.weight = self.sampled.weight.saturating_add(sampled.weight);
        self.sampled.samples += sampled.samples;
        for (function, weight) in &span.functions {
            let sum = self.functions.entry(*function).or_default();
            *sum = sum.saturating_add(compared(*function).of(*weight));
            self.total = self.total.saturating_add(weight.flat);
        }
    }
}

/// Compares a span or trace with [`SpanTime::others`], of which those without samples of the type count as 0.
/// `totals` are those of [`SpanTotals::with_functions`]. Without `compared`, own code is compared with its callees and other code without:
/// its callers have all of the time, and its leaf is often a library, or the reason of a wait.
pub fn span_baseline(
    totals: &SpanTotals,
    time: &SpanTime,
    compared: Option<Compared>,
) -> Result<SpanBaseline, NoSpanBaseline> {
    let (type_name, unit) = totals.tracked_type();
    let subject = &time.subject;
    // The link of a trace has no span.
    let is_trace = subject.link.span_id == [0; 8];
    let key = |link: &Link| if is_trace { Link { span_id: [0; 8], ..*link } } else { *link };
    let (functions, has_counts) = totals.functions();
    let is_own: Vec<bool> = functions.iter().map(|function| function.origin() == CodeOrigin::Own).collect();
    let of_subject = totals.spans().filter(|(link, _)| key(link) == subject.link);
    let has_own = of_subject.flat_map(|(_, span)| span.functions.keys()).any(|function| is_own[*function as usize]);
    let is_wait = matches!(type_name, "off_cpu" | "delay");
    let compared_of = |function: u32| {
        compared.unwrap_or(if is_own[function as usize] || is_wait && !has_own {
            Compared::Cum
        } else {
            Compared::Flat
        })
    };
    let mut own = SpanUnit::default();
    let mut others: HashMap<Link, SpanUnit> =
        time.sampled_others.iter().map(|link| (*link, SpanUnit::default())).collect();
    for (link, span) in totals.spans().filter(|(_, span)| !span.functions.is_empty()) {
        if key(&link) == subject.link {
            own.add(totals, span, compared_of);
        } else if let Some(unit) = others.get_mut(&key(&link)) {
            unit.add(totals, span, compared_of);
        }
    }
    if own.functions.is_empty() {
        return Err(NoSpanBaseline::NotFound);
    }
    if subject.endpoint.is_empty() {
        return Err(NoSpanBaseline::NoEndpoint);
    }
    let others: Vec<SpanUnit> = others.into_values().collect();
    let all = others.iter().fold(TypeTotal::default(), |sum, unit| TypeTotal {
        weight: sum.weight.saturating_add(unit.sampled.weight),
        samples: sum.samples + unit.sampled.samples,
    });
    let interval = |sampled: TypeTotal| sampled.weight as f64 / sampled.samples;
    let own_interval = Some(interval(own.sampled)).filter(|interval| has_counts && *interval > 0.0);
    let intervals = own_interval.map(|own| [own, Some(interval(all)).filter(|all| *all > 0.0).unwrap_or(own)]);
    let total = difference(own.total, others.iter().map(|unit| unit.total), time.others, intervals);
    // Weights of the others, by function.
    let mut of_others: HashMap<u32, Vec<i64>> = own.functions.keys().map(|function| (*function, Vec::new())).collect();
    for (function, weight) in others.iter().flat_map(|unit| &unit.functions) {
        of_others.entry(*function).or_default().push(*weight);
    }
    let mut numbered: Vec<(u32, SpanDifference)> = of_others
        .into_iter()
        .map(|(function, weights)| {
            let weight = own.functions.get(&function).copied().unwrap_or_default();
            (function, difference(weight, weights.into_iter(), time.others, intervals))
        })
        .filter(|(_, difference)| difference.weight != 0 || difference.mean != 0.0)
        .collect();
    // The program's own code first: of its functions with nearly all of the time, the callee is more specific than its callers.
    let depths = totals.depths();
    numbered.sort_by_cached_key(|(function, difference)| {
        let location = &functions[*function as usize];
        let is_own = compared.is_none() && difference.weight > 0 && is_own[*function as usize];
        let has_most = is_own && difference.weight as f64 >= MOST * own.total as f64;
        let size = if has_most { 0.0 } else { (difference.weight as f64 - difference.mean).abs() };
        (!is_own, !has_most, Reverse(size.to_bits()), Reverse(depths[*function as usize]), location)
    });
    let row = |(function, difference): (u32, SpanDifference)| SpanBaselineRow {
        location: functions[function as usize].clone(),
        difference,
        is_significant: false,
    };
    let mut rows: Vec<SpanBaselineRow> = numbered.into_iter().map(row).collect();
    let tested: Vec<usize> = (0..rows.len()).filter(|row| rows[*row].difference.p_value.is_some()).collect();
    let p_values: Vec<f64> = tested.iter().filter_map(|row| rows[*row].difference.p_value).collect();
    for (row, is_significant) in tested.iter().zip(growth::significant(&p_values)) {
        rows[*row].is_significant = is_significant;
    }
    Ok(SpanBaseline {
        type_name: type_name.to_owned(),
        unit: unit.to_owned(),
        service: subject.service.clone(),
        endpoint: subject.endpoint.clone(),
        others: time.others,
        samples: intervals.map(|_| [own.sampled.samples, all.samples]),
        total,
        rows,
        tested: tested.len(),
    })
}

/// The difference between a weight and the mean of `count` others, of which those that are not in `others` are 0. `intervals`: the
/// mean weight of a sample of the span, and of the others.
fn difference(
    weight: i64,
    others: impl Iterator<Item = i64>,
    count: usize,
    intervals: Option<[f64; 2]>,
) -> SpanDifference {
    let (mut sum, mut squares, mut as_much) = (0.0, 0.0, 0);
    for other in others {
        sum += other as f64;
        squares += (other as f64).powi(2);
        as_much += usize::from(other >= weight && weight > 0);
    }
    if count == 0 {
        return SpanDifference { weight, ..SpanDifference::default() };
    }
    let spans = count as f64;
    let mean = sum / spans;
    let untested = SpanDifference { weight, mean, interval: None, p_value: None, as_much };
    let Some([own_interval, interval]) = intervals else { return untested };
    let (own, other) = (weight as f64 / own_interval, mean / interval);
    // Variance between the spans relative to that of a count.
    let dispersion = if count >= MIN_SPANS && mean > 0.0 {
        (((squares - sum * mean) / (spans - 1.0)) / (mean * interval)).max(1.0)
    } else {
        1.0
    };
    let spans = spans / dispersion;
    let own_weight = weight as f64;
    let (low, high) = count_interval(own);
    let (low, high) = (low * own_interval, high * own_interval);
    let (mean_low, mean_high) = count_interval(other * spans);
    let (mean_low, mean_high) = (mean_low * interval / spans, mean_high * interval / spans);
    let below = (own_weight - low).hypot(mean_high - mean);
    let above = (high - own_weight).hypot(mean - mean_low);
    let difference = own_weight - mean;
    // Spans that would have as many samples at the rate of this one.
    let equivalent_spans = spans * own_interval / interval;
    SpanDifference {
        interval: Some((difference - below, difference + above)),
        p_value: (own + other >= MIN_SPAN_SAMPLES).then(|| p_value(own, other * spans, equivalent_spans)),
        ..untested
    }
}

/// Ends of the 95 % interval of a Poisson mean from one count.
fn count_interval(count: f64) -> (f64, f64) {
    let quantile = |shape: f64, probability| Gamma::new(shape, 1.0).map_or(0.0, |gamma| gamma.inverse_cdf(probability));
    (if count > 0.0 { quantile(count, TAIL) } else { 0.0 }, quantile(count + 1.0, 1.0 - TAIL))
}

/// Two-sided probability of `own` samples of one span given `others` samples of `spans` spans of the same rate.
fn p_value(own: f64, others: f64, spans: f64) -> f64 {
    let share = 1.0 / (1.0 + spans);
    // Tails of the binomial distribution as incomplete beta functions, which accept fractions of samples.
    let is_above = own > others / spans;
    let tail = if is_above && own > 0.0 {
        beta_reg(own, others + 1.0, share)
    } else if !is_above && others > 0.0 {
        beta_reg(others, own + 1.0, 1.0 - share)
    } else {
        1.0
    };
    (2.0 * tail).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_count_is_that_of_garwood() {
        for (count, low, high) in [(0.0, 0.0, 3.689), (1.0, 0.0253, 5.572), (10.0, 4.795, 18.39)] {
            let interval = count_interval(count);
            assert!((interval.0 - low).abs() < 1e-3 && (interval.1 - high).abs() < 6e-3, "{count}: {interval:?}");
        }
    }

    #[test]
    fn the_probability_is_that_of_the_binomial_distribution() {
        // Three samples in one span, none in ten: (1/11)³, twice.
        assert!((p_value(3.0, 0.0, 10.0) - 2.0 / 1331.0).abs() < 1e-9);
        // None in the span, 20 in ten: (10/11)²⁰, twice.
        assert!((p_value(0.0, 20.0, 10.0) - 2.0 * (10.0f64 / 11.0).powi(20)).abs() < 1e-9);
        assert_eq!(p_value(2.0, 20.0, 10.0), 1.0);
    }

    #[test]
    fn spans_that_vary_more_than_counts_make_a_weaker_baseline() {
        let difference = |others: &[i64]| difference(12, others.iter().copied(), others.len(), Some([1.0; 2]));
        let (even, uneven) = (difference(&[2; 10]), difference(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 20]));
        assert_eq!((even.mean, uneven.mean), (2.0, 2.0));
        assert!(uneven.p_value.unwrap() > 10.0 * even.p_value.unwrap(), "{even:?} {uneven:?}");
        assert!(uneven.interval.unwrap().0 < even.interval.unwrap().0);
        assert_eq!((even.as_much, uneven.as_much), (0, 1));
    }
}
