//! `live python --record`: records stacks of synthetic programs in every CPython, for the tests that replay them
//! (`bindings-python/src/runtime/capture/recorded_stack_tests.rs`).

use super::debian;
use super::runtimes::Python;
use super::{package, Venv};
use crate::arguments::LiveArguments;
use crate::step::{StepFailure, StepResult};
use crate::{scratch, workspace};

/// The shapes of xtask/live/python/record_stacks.py, and the minor versions that have them.
const SHAPES: [(&str, std::ops::RangeInclusive<u32>); 7] = [
    ("function", 9..=u32::MAX),
    ("generator", 9..=u32::MAX),
    ("coroutine", 9..=u32::MAX),
    ("c_call", 9..=u32::MAX),
    ("recursion", 9..=u32::MAX),
    ("other_thread", 9..=u32::MAX),
    // Only there is the start of the frame chain a record on the C stack.
    ("loop_entry", 11..=12),
];

/// Replaces the recorded stacks of the chosen interpreters.
pub fn run(arguments: &LiveArguments) -> StepResult {
    let wheel = package::build_for_recording()?;
    for python in debian::installed_and_newer(&arguments.runtimes.python)? {
        let venv = Venv::with("record", &python, &[])?;
        venv.install_wheel(&wheel)?;
        record(&python, &venv)?;
    }
    Ok(())
}

/// Runs the program once per shape and writes its fixtures.
fn record(python: &Python, venv: &Venv) -> StepResult {
    let version = python.minor();
    let directory = workspace::root().join("bindings-python/tests/recorded").join(&version);
    let made = std::fs::create_dir_all(&directory);
    made.map_err(|error| StepFailure::new("recorded stacks", format!("{}: {error}", directory.display())))?;
    for (shape, versions) in SHAPES {
        if versions.contains(&python.version.0) {
            let step = venv.step(format!("record {shape}")).arg("xtask/live/python/record_stacks.py");
            let fixture = step.arg(shape).capture()?;
            scratch::write(&directory.join(format!("{shape}.json")), &fixture)?;
            println!("recorded {shape} on CPython {version}: {} bytes", fixture.len());
        }
    }
    Ok(())
}
