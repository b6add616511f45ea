//! Changes of a busy profiler by calls, the watched file and requests at once, ten per second each. The program must not
//! end, the last writer must win within a second, and totals must be those of the enabled time. The calls alone, beside programs of
//! every language, are in the stress of each language.

use std::time::Duration;

use crate::arguments::LiveArguments;
use crate::scratch;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::verbs::live::suite_program::SuiteProgram;

/// Duration of the changes without `--seconds`.
const DEFAULT_SECONDS: u64 = 60;
/// Start, end and the comparison of totals.
const GRACE: Duration = Duration::from_secs(120);
/// A change of the file takes effect within a second; the rest is the time of a busy machine.
const MAX_FILE_SECONDS: f64 = 1.5;
/// Largest error of the totals.
const MAX_ERROR: f64 = 0.02;

pub fn run(given: &LiveArguments) -> StepResult {
    let seconds = given.seconds.unwrap_or(DEFAULT_SECONDS);
    let directory = scratch::empty("live-control")?;
    let SuiteProgram { words, .. } = SuiteProgram::python("control", "toggles.py")?;
    let mut printed: Vec<(String, f64)> = Vec::new();
    ProcessStep::new(format!("{seconds} s of changes"), &words[0])
        .args(&words[1..])
        .arg(directory)
        .arg(seconds.to_string())
        .time_limit(Duration::from_secs(seconds) + GRACE)
        .run_with_lines(|line| {
            let pair =
                line.split_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)));
            printed.extend(pair);
        })?;
    let value = |name: &str| printed.iter().find(|(other, _)| other == name).map_or(f64::NAN, |(_, value)| *value);
    let [changes, file_seconds, totals, panics] = ["changes", "file_seconds", "totals", "panics"].map(value);
    println!("{changes} changes, file after {file_seconds:.2} s, totals {totals:.4}");
    let is_good =
        changes > 0.0 && file_seconds <= MAX_FILE_SECONDS && (totals - 1.0).abs() <= MAX_ERROR && panics == 0.0;
    is_good.then_some(()).ok_or_else(|| StepFailure::new("live control", format!("{printed:?}")))
}
