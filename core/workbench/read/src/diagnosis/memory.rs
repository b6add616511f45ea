//! The rule on objects in use.

use std::collections::BTreeMap;

use super::service::{FunctionId, HeapWindow, ServiceProfile};
use super::{EstimatedShare, Fact, Finding, Rule, MIN_FINDING_SAMPLES};

/// With fewer windows, growth is indistinguishable from the filling of caches at the start.
const MIN_HEAP_WINDOWS: usize = 4;
/// Smallest growth, bytes, and share of the objects in use at the end.
const MIN_GROWTH_BYTES: f64 = 1_048_576.0;
const MIN_GROWTH_SHARE: f64 = 0.1;
/// Growth in standard errors (see [`variance`]): over all windows, where some hundred functions are tested, and over the second half.
const WHOLE_ERRORS: f64 = 4.0;
const HALF_ERRORS: f64 = 2.5;
/// Part of the growth that must be in the second half, and that must be of objects of an earlier window.
const LATE_PART: f64 = 0.25;
/// Part of the growth above which one window is a single event, such as the first use of a library.
const STEP_PART: f64 = 0.75;
const AGED_PART: f64 = 0.5;

/// A function at the first, middle and last window.
#[derive(Clone, Copy, Default)]
struct Course {
    bytes: [f64; 3],
    samples: [f64; 3],
    aged: [f64; 3],
    /// Variance of the growth of `samples`, over all windows and over the second half.
    variances: [f64; 2],
    /// The largest growth from a window to the next, bytes.
    step: f64,
}

/// Largest gap before a window that follows another, as a part of its duration. A longer one can contain a window that was removed.
const MAX_GAP: f64 = 0.25;

/// Variance of the growth of a function's samples over consecutive windows: the number of samples that were added and removed. With
/// ages both are known, since the older samples of a window are objects of the window before. Otherwise it is that of two independent
/// windows, which is the largest possible.
fn variance(windows: &[HeapWindow], function: FunctionId) -> f64 {
    let at = |window: &HeapWindow| window.functions.get(&function).copied().unwrap_or_default();
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return 0.0 };
    let of_independent = at(first).samples + at(last).samples;
    let mut changes = 0.0;
    for pair in windows.windows(2) {
        let gap = pair[1].start_unix_nano.saturating_sub(pair[0].end_unix_nano) as f64;
        let is_next = gap <= MAX_GAP * pair[1].end_unix_nano.saturating_sub(pair[1].start_unix_nano) as f64;
        let (before, after) = (at(&pair[0]), at(&pair[1]));
        // More old samples than there were: the windows are of several processes.
        let is_consistent = after.aged_samples <= before.samples + 0.5;
        if !is_next || !pair[1].has_ages || !is_consistent {
            return of_independent;
        }
        changes += (after.samples - after.aged_samples) + (before.samples - after.aged_samples).max(0.0);
    }
    of_independent.min(changes)
}

/// The largest growth of a function from a window to the next, bytes.
fn largest_step(windows: &[HeapWindow], function: FunctionId) -> f64 {
    let bytes = |window: &HeapWindow| window.functions.get(&function).map_or(0.0, |sums| sums.bytes as f64);
    windows.windows(2).map(|pair| bytes(&pair[1]) - bytes(&pair[0])).fold(0.0, f64::max)
}

/// The functions of a service with their courses, over the processes with enough windows.
struct Courses {
    functions: BTreeMap<FunctionId, Course>,
    /// Whether the samples have ages.
    has_ages: bool,
    /// The largest number of windows of a process.
    windows: usize,
    /// Objects in use at the end, bytes.
    in_use: f64,
}

impl Courses {
    fn of(service: &ServiceProfile) -> Self {
        let mut courses = Self { functions: BTreeMap::new(), has_ages: true, windows: 0, in_use: 0.0 };
        for of_process in service.heap.values().filter(|windows| windows.len() >= MIN_HEAP_WINDOWS) {
            courses.add(of_process);
        }
        courses
    }

    fn add(&mut self, of_process: &[HeapWindow]) {
        let last = of_process.len() - 1;
        self.has_ages &= of_process[last].has_ages;
        self.windows = self.windows.max(of_process.len());
        self.in_use += of_process[last].total as f64;
        // Windows may be missing: the middle of the time, not of their number.
        let end = |at: usize| of_process[at].end_unix_nano;
        let middle = end(0) / 2 + end(last) / 2;
        let middle = (0..=last).min_by_key(|at| end(*at).abs_diff(middle)).unwrap_or_default();
        for (nth, at) in [0, middle, last].into_iter().enumerate() {
            for (function, sums) in &of_process[at].functions {
                let course = self.functions.entry(*function).or_default();
                course.bytes[nth] += sums.bytes as f64;
                course.samples[nth] += sums.samples;
                course.aged[nth] += sums.aged_bytes as f64;
            }
        }
        for (function, course) in &mut self.functions {
            course.variances[0] += variance(of_process, *function);
            course.variances[1] += variance(&of_process[middle..], *function);
            course.step += largest_step(of_process, *function);
        }
    }

    /// Whether a function's objects grow until the last window, and grow old.
    fn grow(&self, course: &Course) -> bool {
        let Course { bytes: [first, middle, last], samples, aged, variances, step } = course;
        let errors = |from: f64, to: f64, variance: f64| (to - from) / variance.max(1.0).sqrt();
        let grown = last - first;
        let is_large = grown >= MIN_GROWTH_BYTES && grown >= MIN_GROWTH_SHARE * self.in_use;
        let is_significant = samples[2] >= MIN_FINDING_SAMPLES
            && errors(samples[0], samples[2], variances[0]) >= WHOLE_ERRORS
            && errors(samples[1], samples[2], variances[1]) >= HALF_ERRORS;
        let is_lasting =
            last - middle >= LATE_PART * grown && (!self.has_ages || aged[2] - aged[0] >= AGED_PART * grown);
        is_large && is_significant && is_lasting && *step <= STEP_PART * grown
    }
}

/// Functions whose objects in use grow until the last window, and grow old. A cache that fills grows in the first half only,
/// and a single event in one window.
pub(super) fn growth(service: &ServiceProfile) -> Vec<Finding> {
    let courses = Courses::of(service);
    let growing = courses.functions.iter().filter(|(_, course)| courses.grow(course));
    let finding = |(function, course): (&FunctionId, &Course)| {
        let Course { bytes: [first, middle, last], samples, aged, .. } = *course;
        let mut facts = vec![
            ("first", Fact::Quantity(first as i64, "bytes")),
            ("middle", Fact::Quantity(middle as i64, "bytes")),
            ("last", Fact::Quantity(last as i64, "bytes")),
            ("windows", Fact::Number(courses.windows as f64)),
        ];
        if courses.has_ages {
            facts.push(("older_than_a_window", Fact::Part(aged[2] / last)));
        }
        Finding {
            rule: Rule::MemoryGrowth,
            service: String::new(),
            type_name: "inuse_space",
            function: Some(service.function(*function).clone()),
            share: EstimatedShare::of(last, courses.in_use, samples[2] * courses.in_use / last),
            cost: (last - first) / courses.in_use,
            samples: samples[2],
            facts,
        }
    };
    growing.map(finding).collect()
}
