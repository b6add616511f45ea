//! The pytest suites of `bindings-python`, with the wheel in the profile of the workspace's tests.

use std::path::Path;

use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::deadline::at_most;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;

/// Runs the suite on the oldest and the newest interpreter, and the tests of the runtime on every one.
pub fn run(tally: &mut Tally) -> StepResult {
    let wheel = package::build_for_tests()?;
    for python in runtimes::oldest_and_newest()? {
        let before = *tally;
        let outcome = environment(&python, &wheel).and_then(|venv| pytest(&venv, &python, &[], tally));
        tally.add_outcome(before, outcome);
    }
    // Each interpreter has its own layout.
    for python in runtimes::all()? {
        let before = *tally;
        let outcome = runtime_tests(&python, &wheel, tally);
        tally.add_outcome(before, outcome);
    }
    Ok(())
}

/// Runs the conformance tests on the oldest and the newest interpreter.
pub fn conformance(tally: &mut Tally) -> StepResult {
    let wheel = package::build_for_tests()?;
    for python in runtimes::oldest_and_newest()? {
        let venv = environment(&python, &wheel)?;
        pytest(&venv, &python, &["-k", "conformance"], tally)?;
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
fn pytest(venv: &Venv, python: &Python, words: &[&str], tally: &mut Tally) -> StepResult {
    let before = *tally;
    ProcessStep::new(format!("tests on Python {}", python.full()), venv.python())
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q"])
        .args(words)
        .in_directory(&crate::workspace::root().join("bindings-python"))
        .time_limit(at_most(20))
        .run_with_lines(|line| tally.read(line))?;
    if tally.passed == before.passed {
        return Err(StepFailure::new("pytest", "no test ran"));
    }
    Ok(())
}

/// Runs the tests of the runtime's `testing` functions (`bindings-python/tests/runtime`). They need the wheel for tests and no
/// fixture of the suite.
fn runtime_tests(python: &Python, wheel: &Path, tally: &mut Tally) -> StepResult {
    let venv = Venv::with("runtime", python, &["pytest", "pytest-timeout", "greenlet"].map(str::to_owned))?;
    venv.install_wheel(wheel)?;
    let before = *tally;
    ProcessStep::new(format!("tests of the runtime on Python {}", python.full()), venv.python())
        .args(["-m", "pytest", "-p", "no:cacheprovider", "--color=no", "-q", "-o", "python_files=check_*.py"])
        .args(["--confcutdir", "tests/runtime", "tests/runtime"])
        .in_directory(&crate::workspace::root().join("bindings-python"))
        .time_limit(at_most(10))
        .run_with_lines(|line| tally.read(line))?;
    if tally.passed == before.passed {
        return Err(StepFailure::new("pytest", "no test ran"));
    }
    Ok(())
}
