//! Sums the results of the test runners, parsed from their closing lines. A step that fails without a counted test adds one
//! failure, so that the total never shows "0 failed" after a failure. Keeps what failed, for the end of a long output.

use std::fmt;

use crate::step::StepResult;

/// Passed and failed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed, and steps that failed without a test.
    pub failed: u64,
    /// Passed tests that failed at their first attempt.
    pub unstable: u64,
    /// The failed steps, each with the names of its failed tests, and the unstable tests.
    pub named: Vec<String>,
}

impl Tally {
    /// Reads one line of `cargo test` (`test result: …`), of pytest (`==== 3 passed, 1 failed in 0.1s ====`) or of Maven's
    /// surefire (`Tests run: 12, Failures: …`).
    pub fn read(&mut self, line: &str) {
        let line = line.trim_matches(|c: char| c == '=' || c.is_whitespace());
        if let Some((_, counts)) = line.split_once("] Tests run: ") {
            return self.read_surefire(counts);
        }
        let counts = match line.strip_prefix("test result: ") {
            Some(rest) => rest.split_once(". ").map(|(_, counts)| counts),
            None => line
                .rsplit_once(" in ")
                .filter(|(_, time)| time.starts_with(|c: char| c.is_ascii_digit()))
                .map(|(counts, _)| counts),
        };
        for part in counts.unwrap_or_default().split([',', ';']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(kind)) = (words.next().and_then(|word| word.parse::<u64>().ok()), words.next())
            else {
                continue;
            };
            match kind {
                "passed" => self.passed += number,
                "failed" | "error" | "errors" => self.failed += number,
                _ => {}
            }
        }
    }

    /// Reads `12, Failures: 1, Errors: 0, Skipped: 2`, with `, Flakes: 1` after second attempts. Lines with a time are of one
    /// class; the closing line is the sum.
    fn read_surefire(&mut self, counts: &str) {
        if counts.contains("Time elapsed") {
            return;
        }
        let numbers: Vec<u64> = counts.split(", ").filter_map(|part| part.rsplit(' ').next()?.parse().ok()).collect();
        if let [run, failures, errors, skipped, unstable @ ..] = numbers.as_slice() {
            let failed = failures + errors;
            self.failed += failed;
            self.passed += run.saturating_sub(failed + skipped);
            self.unstable += unstable.iter().sum::<u64>();
        }
    }

    /// Adds the results of tests that were counted apart.
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.unstable += other.unstable;
        self.named.extend(other.named);
    }

    /// Adds a step's outcome: a failure without a counted test adds one.
    pub fn add_outcome(&mut self, failed_before: u64, outcome: StepResult) {
        if let Err(failure) = outcome {
            eprintln!("\nxtask: {failure}");
            if self.failed == failed_before {
                self.failed += 1;
            }
            self.named.push(failure.to_string());
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::StepFailure;

    #[test]
    fn results_are_added_over_the_closing_lines_of_each_runner() {
        let cargo = [
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        ];
        let pytest =
            ["==== 1 failed, 41 passed, 2 warnings in 75.10s (0:01:15) ====", "7 passed in 0.5s", "1 error in 0.2s"];
        let surefire = [
            "[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.3 s -- in io.spanprof.ScopesTest",
            "[ERROR] Tests run: 12, Failures: 1, Errors: 2, Skipped: 3",
        ];
        let flaky = ["[WARNING] Tests run: 12, Failures: 0, Errors: 0, Skipped: 2, Flakes: 1"];
        let others = ["3 passed the gate", "test a_thing ... ok", "rolled back 4 failed writes in memory", ""];
        for (lines, expected) in [
            (&cargo[..], (15, 2, 0)),
            (&pytest, (48, 2, 0)),
            (&surefire, (6, 3, 0)),
            (&flaky, (10, 0, 1)),
            (&others, (0, 0, 0)),
        ] {
            let mut tally = Tally::default();
            lines.iter().for_each(|line| tally.read(line));
            assert_eq!((tally.passed, tally.failed, tally.unstable), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_step_that_fails_without_a_test_counts_once() {
        let mut tally = Tally::default();
        tally.add_outcome(0, Err(StepFailure::new("clippy", "no compiler")));
        assert_eq!(tally.failed, 1);
        assert_eq!(tally.named, ["step `clippy`: no compiler"]);
    }

    #[test]
    fn a_step_whose_failures_were_counted_is_not_counted_again() {
        let mut tally = Tally { passed: 1, failed: 2, unstable: 0, ..Tally::default() };
        tally.add_outcome(0, Err(StepFailure::new("tests", "two tests failed")));
        assert_eq!(tally.failed, 2);
    }
}
