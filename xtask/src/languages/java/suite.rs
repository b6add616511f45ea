//! The JUnit suite of `bindings-java`: complete on the oldest installed JDK, and the part that depends on the VM on the others.

use super::package::{self, path_properties, Libraries};
use super::runtimes::{self, Jdk};
use crate::deadline::at_most;
use crate::languages::Versions;
use crate::second_attempt::{self, FailedTests};
use crate::step::{StepFailure, StepResult};
use crate::tally::Tally;
use crate::{progress, scratch};

/// The tests of walks, heap, collectors, locks, threads and virtual threads, whose outcome depends on the VM's version.
const OF_THE_VM: &str = "-Dtest=AllocationsTest,GcPausesTest,InheritedTest,LocksTest,MountsTest,VmThreadsTest,\
    ProfileTest#stacksAreCompleteWhileTheCollector*+labelsFollowVirtual*+wallTimeCovers*";

/// Runs the suite on the oldest installed JDK, and the part that depends on the VM's version on the others; with every version also
/// on one between them.
pub fn run(versions: Versions, tally: &mut Tally) -> StepResult {
    let libraries = Libraries::for_tests()?;
    for (index, java) in runtimes::all()?.iter().enumerate() {
        let is_complete = index == 0 || versions == Versions::Complete;
        run_on(java, if is_complete { &[] } else { &[OF_THE_VM] }, &libraries, tally)?;
    }
    first_run_on_oldest(tally);
    match versions {
        Versions::Complete => junit_between(&libraries, tally),
        Versions::Dependent => Ok(()),
    }
}

/// Runs the first program on the oldest supported Java, which the classes of the tests are too new for.
fn first_run_on_oldest(tally: &mut Tally) {
    let outcome = runtimes::oldest_supported()
        .and_then(|java| package::first_run(&runtimes::preferred()?, &java, &package::for_tests()?));
    let failed_before = tally.failed;
    tally.add_outcome(failed_before, outcome);
}

/// Runs the tests that depend on the VM's version on the Java from PyPI, which is between the usual installed ones. It has
/// no compiler: the oldest installed JDK compiles. Without PyPI these tests are left out, with one line.
fn junit_between(libraries: &Libraries, tally: &mut Tally) -> StepResult {
    let installed = runtimes::all()?;
    let java = match runtimes::between(&installed) {
        Ok(Some(java)) => java,
        Ok(None) => return Ok(()),
        Err(failure) => {
            progress::print(&format!("Java tests of the VM are left out: the Java from PyPI is missing: {failure}"));
            return Ok(());
        }
    };
    let program = format!("-Djvm={}", java.home.join("bin/java").display());
    let compiler = Jdk { home: installed[0].home.clone(), ..java };
    run_on(&compiler, &[OF_THE_VM, &program], libraries, tally)
}

/// Runs the classes that `words` select on every installed JDK with the library for tests.
pub fn junit(words: &[&str], tally: &mut Tally) -> StepResult {
    let libraries = Libraries::for_tests()?;
    let jdks = runtimes::all()?;
    let list: Vec<_> = jdks.iter().map(|java| java.version.to_string()).collect();
    progress::print(&format!("Java tests run on JDK {}", list.join(", ")));
    jdks.iter().try_for_each(|java| run_on(java, words, &libraries, tally))
}

fn run_on(java: &Jdk, words: &[&str], libraries: &Libraries, tally: &mut Tally) -> StepResult {
    let build = scratch::empty(&format!("java-{}", java.version))?;
    let (passed_before, failed_before, unstable_before) = (tally.passed, tally.failed, tally.unstable);
    let mut failed = FailedTests::default();
    let outcome = runtimes::maven(format!("tests on Java {}", java.version), java)
        .args(["test", "-Dsurefire.rerunFailingTestsCount=1"])
        .args(words)
        .args(path_properties(libraries, &build))
        .time_limit(at_most(30))
        .run_with_lines(|line| {
            tally.read(line);
            second_attempt::failed_in_surefire(line).into_iter().for_each(|name| failed.add(name.clone(), name));
        });
    if tally.unstable > unstable_before {
        tally.named.push(format!("failed at an attempt: {}", failed.names.join("; ")));
    }
    if outcome.is_ok() && tally.passed == passed_before {
        return Err(StepFailure::new("JUnit", "no test ran"));
    }
    tally.add_outcome(failed_before, outcome.map_err(|failure| failure.with_failed_tests(&failed.names)));
    Ok(())
}
