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
    /// Failures that the names stand for.
    pub count: u64,
}

impl FailedTests {
    /// Adds one failure.
    pub fn add(&mut self, name: String) {
        self.count += 1;
        if !self.names.contains(&name) {
            self.names.push(name);
        }
    }
}

/// Runs the failed tests again if they are few and all have a name. `outcome` and `tally` are of the first attempt, `before`
/// is the tally before it; `again` runs the named tests and nothing else.
pub fn of_failed(
    failed: &FailedTests,
    before: Tally,
    tally: &mut Tally,
    outcome: StepResult,
    again: impl FnOnce(&[String], &mut Tally) -> StepResult,
) -> StepResult {
    let (names, count) = (failed.names.join(", "), failed.count);
    let have_names = tally.failed - before.failed == count;
    if outcome.is_ok() || count == 0 || count > UNSTABLE_LIMIT || !have_names {
        return outcome;
    }
    progress::print(&format!("second attempt of {names}"));
    let mut second = Tally::default();
    let result = again(&failed.names, &mut second);
    if result.is_err() || second.failed > 0 || second.passed < count {
        return outcome;
    }
    progress::print(&format!("unstable: passed at the second attempt only: {names}"));
    tally.failed -= count;
    tally.passed += count;
    tally.unstable += count;
    Ok(())
}

/// The name in a line of `cargo test` about a failed test.
pub fn failed_in_cargo(line: &str) -> Option<String> {
    Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned())
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

    const BEFORE: Tally = Tally { passed: 1, failed: 0, unstable: 0 };

    /// Tally and success after a first attempt with two failures and a second one with `passed` and `failed` tests.
    fn after(names: &[&str], passed: u64, failed: u64) -> (Tally, bool) {
        let mut first = FailedTests::default();
        names.iter().for_each(|name| first.add((*name).to_owned()));
        let mut tally = Tally { passed: 8, failed: 2, unstable: 0 };
        let outcome = Err(StepFailure::new("tests", "exit code 1"));
        let result = of_failed(&first, BEFORE, &mut tally, outcome, |_, second| {
            *second = Tally { passed, failed, unstable: 0 };
            match failed {
                0 => Ok(()),
                _ => Err(StepFailure::new("tests", "exit code 1")),
            }
        });
        (tally, result.is_ok())
    }

    #[test]
    fn tests_that_pass_at_the_second_attempt_are_unstable() {
        assert_eq!(after(&["a", "b"], 2, 0), (Tally { passed: 10, failed: 0, unstable: 2 }, true));
    }

    #[test]
    fn a_test_that_fails_twice_or_does_not_run_again_is_a_failure() {
        let failure = (Tally { passed: 8, failed: 2, unstable: 0 }, false);
        assert_eq!(after(&["a", "b"], 1, 1), failure);
        assert_eq!(after(&["a", "b"], 0, 0), failure);
    }

    #[test]
    fn failures_without_a_name_get_no_second_attempt() {
        assert_eq!(after(&["a"], 1, 0), (Tally { passed: 8, failed: 2, unstable: 0 }, false));
    }

    #[test]
    fn names_are_read_from_the_lines_of_cargo_and_pytest() {
        assert_eq!(failed_in_cargo("test sys::fork::a_child ... FAILED"), Some("sys::fork::a_child".to_owned()));
        assert_eq!(failed_in_cargo("test sys::fork::a_child ... ok"), None);
        let line = "FAILED tests/test_heap.py::test_leak[16 B] - AssertionError: 1 - 2";
        assert_eq!(failed_in_pytest(line), Some("tests/test_heap.py::test_leak[16 B]".to_owned()));
        assert_eq!(failed_in_pytest("FAILED"), None);
    }
}
