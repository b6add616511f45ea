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

/// The tests of features whose implementation depends on the VM, by programs in Java 8.
const BY_OLD_PROGRAMS: &str = "-Dtest=Java8Test,LocksTest#theDelayOfPlatformThreads*+idleWaitsOfPlatform*,\
    GcPausesTest#pausesHave*,InheritedTest#*AThread*,AgentPathTest#theNativeAgent*Program*,\
    AsyncGetCallTraceTest#shares*,OpenTelemetryTest#asAnExtension*,PermissionsTest,\
    ProfileTest#stacksAreCompleteWhileTheCollector*+stacksAreCompleteIn*+shares*+aScopesLabels*+wallTime*+nullChecks*+aSample*+codeOf*";
/// Those that Java 8 does not support.
const OF_ALLOCATIONS: &str = ",AllocationsTest#allocatedBytes*+theProfileOfObjects*+eachSampleOfAPlatform*";
/// Those of modules that the Java 11 from PyPI lacks (HTTP server, debugger).
const OF_JAVA_8: &str = ",ZeroCodeTest#requestsOfAService*,ProfileTest#stacksAreCompleteWhileADebuggers*";

/// Runs the suite on the oldest installed JDK, and the part that depends on the VM's version on the others; with every version also
/// on one between them.
pub fn run(versions: Versions, tally: &mut Tally) -> StepResult {
    let libraries = Libraries::for_tests()?;
    for (index, java) in runtimes::all()?.iter().enumerate() {
        let is_complete = index == 0 || versions == Versions::Complete;
        run_on(java, if is_complete { &[] } else { &[OF_THE_VM] }, &libraries, tally)?;
    }
    on_old(&libraries, tally)?;
    match versions {
        Versions::Complete => junit_between(&libraries, tally),
        Versions::Dependent => Ok(()),
    }
}

/// Runs the first program, and programs of the tests, on the Java versions that are too old for the tests themselves.
fn on_old(libraries: &Libraries, tally: &mut Tally) -> StepResult {
    let compiler = runtimes::preferred()?;
    for java in runtimes::old()? {
        let failed_before = tally.failed;
        tally.add_outcome(failed_before, package::first_run(&compiler, &java, &package::for_tests()?));
        let tests = format!("{BY_OLD_PROGRAMS}{}", if java.version < 11 { OF_JAVA_8 } else { OF_ALLOCATIONS });
        let program = format!("-Dprograms.java={}", java.home.join("bin/java").display());
        let version = format!("-Dprograms.version={}", java.version);
        let compiler = Jdk { home: compiler.home.clone(), ..java };
        run_on(&compiler, &[&tests, &program, &version], libraries, tally)?;
    }
    let failed_before = tally.failed;
    tally.add_outcome(failed_before, package::declined_run(&compiler, &runtimes::oldest()?, &package::for_tests()?));
    Ok(())
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
