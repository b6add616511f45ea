//! Changes of a busy profiler by calls, the watched file and requests at once, ten per second each, in every language. The
//! program must not end, the last writer must win within a second, and totals must be those of the enabled time.

use std::path::Path;
use std::time::Duration;

use crate::arguments::LiveArguments;
use crate::scratch;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
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
    let mut failed = Vec::new();
    let prepare: [fn() -> StepResult<SuiteProgram>; 3] = [
        || SuiteProgram::python("control", "toggles.py"),
        || SuiteProgram::node("control", "toggles.js"),
        || SuiteProgram::java("control", "Toggles.java"),
    ];
    for prepare in prepare {
        let program = prepare()?;
        let own = directory.join(program.language);
        std::fs::create_dir_all(&own).map_err(|error| StepFailure::new("live control", error.to_string()))?;
        if let Err(failure) = program.check(&own, seconds) {
            eprintln!("{failure}");
            failed.push(program.language);
        }
    }
    all_passed("live control", &failed)
}

impl SuiteProgram {
    fn check(&self, directory: &Path, seconds: u64) -> StepResult {
        let [program, words @ ..] = self.words.as_slice() else { unreachable!("a program has a name") };
        let step = ProcessStep::new(format!("{} s of changes in {}", seconds, self.language), program)
            .args(words)
            .arg(directory)
            .arg(seconds.to_string())
            .time_limit(Duration::from_secs(seconds) + GRACE);
        let step = self.variables.iter().fold(step, |step, (key, value)| step.env(key, value));
        let mut printed: Vec<(String, f64)> = Vec::new();
        step.run_with_lines(|line| {
            let pair =
                line.split_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)));
            printed.extend(pair);
        })?;
        let value = |name: &str| printed.iter().find(|(known, _)| known == name).map_or(f64::NAN, |(_, value)| *value);
        let [changes, file_seconds, totals, panics] = ["changes", "file_seconds", "totals", "panics"].map(value);
        println!("{}: {changes} changes, file after {file_seconds:.2} s, totals {totals:.4}", self.language);
        let is_good =
            changes > 0.0 && file_seconds <= MAX_FILE_SECONDS && (totals - 1.0).abs() <= MAX_ERROR && panics == 0.0;
        let failure = || StepFailure::new("live control", format!("{}: {printed:?}", self.language));
        is_good.then_some(()).ok_or_else(failure)
    }
}
