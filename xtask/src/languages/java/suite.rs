//! The JUnit suite of `bindings-java` on every installed JDK.

use super::package::{path_properties, Libraries};
use super::runtimes;
use crate::deadline::at_most;
use crate::scratch;
use crate::step::{StepFailure, StepResult};
use crate::tally::Tally;

/// Runs the JUnit suite, or the classes that `words` select, on every installed JDK with the library for tests.
pub fn junit(words: &[&str], tally: &mut Tally) -> StepResult {
    let libraries = Libraries::for_tests()?;
    let jdks = runtimes::all()?;
    let list: Vec<_> = jdks.iter().map(|java| java.version.to_string()).collect();
    println!("Java tests run on JDK {}", list.join(", "));
    for java in &jdks {
        let build = scratch::empty(&format!("java-{}", java.version))?;
        let before = *tally;
        let outcome = runtimes::maven(format!("tests on Java {}", java.version), java)
            .args(["test", "-Dsurefire.rerunFailingTestsCount=1"])
            .args(words)
            .args(path_properties(&libraries, &build))
            .time_limit(at_most(10))
            .run_with_lines(|line| tally.read(line));
        if outcome.is_ok() && tally.passed == before.passed {
            return Err(StepFailure::new("JUnit", "no test ran"));
        }
        tally.add_outcome(before, outcome);
    }
    Ok(())
}
