//! The pytest suites of `bindings-python`, with the wheel in the profile of the workspace's tests.

use std::path::Path;

use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::deadline::at_most;
use crate::languages::Versions;
use crate::second_attempt::{self, FailedTests};
use crate::step::{StepFailure, StepResult};
use crate::tally::Tally;

/// Test files whose outcome does not depend on the interpreter: delivery, options, daemons, system calls, weights of allocations,
/// frameworks, the type checker.
const INDEPENDENT: [&str; 20] = [
    "test_bind",
    "test_capture",
    "test_child_ends",
    "test_daemons",
    "test_demo",
    "test_django",
    "test_exec",
    "test_frameworks",
    "test_heap_accuracy",
    "test_heap_peak",
    "test_hostile_labels",
    "test_outcome",
    "test_pull_handlers",
    "test_pyroscope",
    "test_request_ends",
    "test_run",
    "test_seccomp",
    "test_servers",
    "test_sidecars",
    "test_typing",
];

/// Runs the suite on the newest interpreter, the part that depends on the interpreter on the oldest one, and the tests of the runtime on
/// every one, since each has its own layout. One after the other: tests of other lanes run beside them on few processors.
pub fn run(versions: Versions, tally: &mut Tally) -> StepResult {
    let wheel = package::build_for_tests()?;
    let (mut oldest, all) = (runtimes::oldest_and_newest()?, runtimes::all()?);
    let newest = oldest.pop();
    newest.iter().for_each(|python| suite(python, &wheel, &[], tally));
    oldest.iter().for_each(|python| suite(python, &wheel, left_out(versions), tally));
    all.iter().for_each(|python| runtime_tests(python, &wheel, tally));
    Ok(())
}

/// Runs every test on an interpreter.
pub fn complete(python: &Python, wheel: &Path, tally: &mut Tally) {
    runtime_tests(python, wheel, tally);
    suite(python, wheel, &[], tally);
}

/// Test files that do not run on the older interpreter.
fn left_out(versions: Versions) -> &'static [&'static str] {
    match versions {
        Versions::Complete => &[],
        Versions::Dependent => &INDEPENDENT,
    }
}

fn suite(python: &Python, wheel: &Path, left_out: &[&str], tally: &mut Tally) {
    let options: Vec<String> = left_out.iter().map(|name| format!("--ignore=tests/{name}.py")).collect();
    let failed_before = tally.failed;
    let outcome = environment(python, wheel).and_then(|venv| pytest(&venv, python, &options, tally));
    tally.add_outcome(failed_before, outcome);
}

/// Runs the conformance tests on the oldest and the newest interpreter.
pub fn conformance(tally: &mut Tally) -> StepResult {
    let wheel = package::build_for_tests()?;
    for python in runtimes::oldest_and_newest()? {
        let venv = environment(&python, &wheel)?;
        pytest(&venv, &python, &["-k", "conformance"].map(str::to_owned), tally)?;
    }
    Ok(())
}

/// An environment with the dependencies of the Python tests and the wheel under test.
fn environment(python: &Python, wheel: &Path) -> StepResult<Venv> {
    let venv = Venv::with("tests", python, &["-r".to_owned(), "bindings-python/tests/requirements.txt".to_owned()])?;
    venv.install_wheel(wheel)?;
    Ok(venv)
}

/// Runs the Python suite, or a part of it.
fn pytest(venv: &Venv, python: &Python, selection: &[String], tally: &mut Tally) -> StepResult {
    let name = format!("tests on Python {}", python.full());
    with_second_attempt(venv, &name, &[], selection, 45, tally)
}

/// Runs pytest with `options` on the tests that `selection` selects, and what failed once more.
fn with_second_attempt(
    venv: &Venv,
    name: &str,
    options: &[&str],
    selection: &[String],
    minutes: u64,
    tally: &mut Tally,
) -> StepResult {
    let tests = |name: String, selection: &[String]| {
        venv.step(name)
            .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q"])
            .args(options)
            .args(selection)
            .in_directory(&crate::workspace::root().join("bindings-python"))
            .time_limit(at_most(minutes))
    };
    let (passed_before, failed_before, mut failed) = (tally.passed, tally.failed, FailedTests::default());
    let outcome = tests(name.to_owned(), selection).run_with_lines(|line| {
        tally.read(line);
        second_attempt::failed_in_pytest(line).into_iter().for_each(|name| failed.add(name, line));
    });
    second_attempt::of_failed(&failed, failed_before, tally, outcome, |names, second| {
        tests(format!("failed {name}"), names).run_with_lines(|line| second.read(line))
    })?;
    if tally.passed > passed_before {
        Ok(())
    } else {
        Err(StepFailure::new("pytest", "no test ran"))
    }
}

/// Runs the tests of the runtime's `testing` functions (`bindings-python/tests/runtime`). They need the wheel for tests and no
/// fixture of the suite.
fn runtime_tests(python: &Python, wheel: &Path, tally: &mut Tally) {
    let name = format!("tests of the runtime on Python {}", python.full());
    let options = ["-o", "python_files=check_*.py", "--confcutdir", "tests/runtime"];
    let failed_before = tally.failed;
    let outcome = Venv::with("runtime", python, &["pytest", "pytest-timeout", "greenlet"].map(str::to_owned))
        .and_then(|venv| venv.install_wheel(wheel).map(|()| venv))
        .and_then(|venv| with_second_attempt(&venv, &name, &options, &["tests/runtime".to_owned()], 10, tally));
    tally.add_outcome(failed_before, outcome);
}
