//! The rule on objects in use.

use std::collections::BTreeMap;

use super::service::{FunctionId, HeapWindow, ServiceProfile};
use super::{EstimatedShare, Fact, Finding, Rule, MIN_FINDING_SAMPLES};

/// With fewer windows, growth is indistinguishable from the filling of caches at the start.
const MIN_HEAP_WINDOWS: usize = 4;
/// Smallest growth, bytes, and share of the objects in use at the end.
const MIN_GROWTH_BYTES: f64 = 1_048_576.0;
const MIN_GROWTH_SHARE: f64 = 0.1;
/// Growth in standard errors: over all windows, where some hundred functions are tested, and over the second half.
const WHOLE_ERRORS: f64 = 4.0;
const HALF_ERRORS: f64 = 3.0;
/// Part of the growth that must be in the second half, and that must be of objects of an earlier window.
const LATE_PART: f64 = 0.25;
const AGED_PART: f64 = 0.5;
/// Findings of a service.
const MAX_GROWING: usize = 3;

/// A function at the first, middle and last window.
#[derive(Clone, Copy, Default)]
struct Course {
    bytes: [f64; 3],
    samples: [f64; 3],
    aged: [f64; 3],
}

/// Functions whose objects in use grow until the last window, and grow old. A cache that fills grows in the first half only.
pub(super) fn growth(service: &ServiceProfile) -> Vec<Finding> {
    let mut courses: BTreeMap<FunctionId, Course> = BTreeMap::new();
    let (mut has_ages, mut windows, mut in_use) = (true, 0, 0.0);
    for of_process in service.heap.values().filter(|windows| windows.len() >= MIN_HEAP_WINDOWS) {
        let last = of_process.len() - 1;
        has_ages &= of_process[last].has_ages;
        windows = windows.max(of_process.len());
        in_use += of_process[last].total as f64;
        // Windows may be missing: the middle of the time, not of their number.
        let end = |at: usize| of_process[at].end_unix_nano;
        let middle = end(0) / 2 + end(last) / 2;
        let middle = (0..=last).min_by_key(|at| end(*at).abs_diff(middle)).unwrap_or_default();
        for (nth, at) in [0, middle, last].into_iter().enumerate() {
            let HeapWindow { functions, .. } = &of_process[at];
            for (function, (bytes, samples, aged)) in functions {
                let course = courses.entry(*function).or_default();
                course.bytes[nth] += *bytes as f64;
                course.samples[nth] += samples;
                course.aged[nth] += *aged as f64;
            }
        }
    }
    let errors = |from: f64, to: f64| (to - from) / (to + from).max(1.0).sqrt();
    let mut findings: Vec<Finding> = courses
        .into_iter()
        .filter_map(|(function, Course { bytes, samples, aged })| {
            let [first, middle, last] = bytes;
            let grown = last - first;
            let is_large = grown >= MIN_GROWTH_BYTES && grown >= MIN_GROWTH_SHARE * in_use;
            let is_significant = samples[2] >= MIN_FINDING_SAMPLES
                && errors(samples[0], samples[2]) >= WHOLE_ERRORS
                && errors(samples[1], samples[2]) >= HALF_ERRORS;
            let is_lasting =
                last - middle >= LATE_PART * grown && (!has_ages || aged[2] - aged[0] >= AGED_PART * grown);
            if !is_large || !is_significant || !is_lasting {
                return None;
            }
            let mut facts = vec![
                ("first", Fact::Quantity(first as i64, "bytes")),
                ("middle", Fact::Quantity(middle as i64, "bytes")),
                ("last", Fact::Quantity(last as i64, "bytes")),
                ("windows", Fact::Number(windows as f64)),
            ];
            if has_ages {
                facts.push(("older_than_a_window", Fact::Part(aged[2] / last)));
            }
            Some(Finding {
                rule: Rule::MemoryGrowth,
                service: String::new(),
                type_name: "inuse_space",
                function: Some(service.function(function).clone()),
                share: EstimatedShare::of(last, in_use, samples[2] * in_use / last),
                cost: grown / in_use,
                samples: samples[2],
                facts,
            })
        })
        .collect();
    findings.sort_by(|one, other| other.cost.total_cmp(&one.cost).then_with(|| one.function.cmp(&other.function)));
    findings.truncate(MAX_GROWING);
    findings
}
