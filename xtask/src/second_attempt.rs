//! A second attempt of failed tests, alone, since many tests use real clocks, signals and processes on a shared machine. A
//! test that fails twice is a failure. One that passes is reported as unstable, which is a defect to fix.

use crate::progress;
use crate::step::StepResult;
use crate::tally::Tally;

/// Unstable tests that a run may have; with more, it fails.
pub const UNSTABLE_LIMIT: u64 = 3;

/// The tests that failed at the first attempt.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FailedTests {
    /// Tests, or files of tests.
    pub names: Vec<String>,
    /// One line for each failure: the test, and its reason where the runner prints one.
    pub lines: Vec<String>,
}

impl FailedTests {
    /// Adds the failure that `line` describes, of a test that runs again by `name`.
    pub fn add(&mut self, name: String, line: impl Into<String>) {
        self.lines.push(line.into());
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }
}

/// Runs the failed tests again if they are few and all have a name. `outcome` and `tally` are of the first attempt, before
/// which `failed_before` tests had failed; `again` runs the named tests and nothing else.
pub fn of_failed(
    failed: &FailedTests,
    failed_before: u64,
    tally: &mut Tally,
    outcome: StepResult,
    again: impl FnOnce(&[String], &mut Tally) -> StepResult,
) -> StepResult {
    let (names, count) = (failed.names.join(", "), failed.lines.len() as u64);
    let outcome = outcome.map_err(|failure| failure.with_failed_tests(&failed.lines));
    let have_names = tally.failed - failed_before == count;
    if outcome.is_ok() || count == 0 || count > UNSTABLE_LIMIT || !have_names {
        return outcome;
    }
    progress::print(&format!("second attempt of {names}"));
    let mut second = Tally::default();
    let result = again(&failed.names, &mut second);
    if result.is_err() || second.failed > 0 || second.passed < count {
        return outcome;
    }
    let unstable = format!("unstable: passed at the second attempt only: {}", failed.lines.join("; "));
    progress::print(&unstable);
    tally.named.push(unstable);
    tally.failed -= count;
    tally.passed += count;
    tally.unstable += count;
    Ok(())
}

/// The name in a line of `cargo test` about a failed test.
pub fn failed_in_cargo(line: &str) -> Option<String> {
    Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned())
}

/// The name in a line of Maven's surefire about a failed test.
pub fn failed_in_surefire(line: &str) -> Option<String> {
    let (name, outcome) = line.strip_prefix("[ERROR] ")?.split_once(" -- Time elapsed: ")?;
    (outcome.contains("<<< ") && !name.starts_with("Tests run: ")).then(|| name.to_owned())
}

/// The name in a line of pytest's summary about a failed test.
pub fn failed_in_pytest(line: &str) -> Option<String> {
    let rest = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR "))?;
    let name = rest.split_once(" - ").map_or(rest, |(name, _)| name);
    name.contains("::").then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::StepFailure;

    /// Tally and success after a first attempt with two failures and a second one with `passed` and `failed` tests.
    fn after(names: &[&str], passed: u64, failed: u64) -> ((u64, u64, u64), bool) {
        let mut first = FailedTests::default();
        names.iter().for_each(|name| first.add((*name).to_owned(), *name));
        let mut tally = Tally { passed: 8, failed: 2, ..Tally::default() };
        let outcome = Err(StepFailure::new("tests", "exit code 1"));
        let result = of_failed(&first, 0, &mut tally, outcome, |_, second| {
            *second = Tally { passed, failed, ..Tally::default() };
            match failed {
                0 => Ok(()),
                _ => Err(StepFailure::new("tests", "exit code 1")),
            }
        });
        assert_eq!(result.as_ref().is_err_and(|failure| failure.to_string().contains("failed: a")), result.is_err());
        ((tally.passed, tally.failed, tally.unstable), result.is_ok())
    }

    #[test]
    fn tests_that_pass_at_the_second_attempt_are_unstable() {
        assert_eq!(after(&["a", "b"], 2, 0), ((10, 0, 2), true));
    }

    #[test]
    fn a_test_that_fails_twice_or_does_not_run_again_is_a_failure() {
        let failure = ((8, 2, 0), false);
        assert_eq!(after(&["a", "b"], 1, 1), failure);
        assert_eq!(after(&["a", "b"], 0, 0), failure);
    }

    #[test]
    fn failures_without_a_name_get_no_second_attempt() {
        assert_eq!(after(&["a"], 1, 0), ((8, 2, 0), false));
    }

    #[test]
    fn names_are_read_from_the_lines_of_cargo_pytest_and_surefire() {
        assert_eq!(failed_in_cargo("test sys::fork::a_child ... FAILED"), Some("sys::fork::a_child".to_owned()));
        assert_eq!(failed_in_cargo("test sys::fork::a_child ... ok"), None);
        let line = "FAILED tests/test_heap.py::test_leak[16 B] - AssertionError: 1 - 2";
        assert_eq!(failed_in_pytest(line), Some("tests/test_heap.py::test_leak[16 B]".to_owned()));
        assert_eq!(failed_in_pytest("FAILED"), None);
        let line = "[ERROR] io.spanprof.LocksTest.aMonitor -- Time elapsed: 0.105 s <<< FAILURE!";
        assert_eq!(failed_in_surefire(line), Some("io.spanprof.LocksTest.aMonitor".to_owned()));
        let line = "[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 1 s <<< FAILURE! -- in A";
        assert_eq!(failed_in_surefire(line), None);
    }
}
