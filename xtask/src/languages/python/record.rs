//! `live python --record`: records stacks of synthetic programs in every CPython, for the tests that replay them
//! (`bindings-python/src/runtime/capture/recorded_stack_tests.rs`).

use super::debian::Debian;
use super::runtimes;
use super::{package, Venv};
use crate::arguments::LiveArguments;
use crate::step::{ProcessStep, StepFailure, StepResult};
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
    let (installed, missing) = runtimes::chosen_or_missing(&arguments.runtimes.python)?;
    for python in installed {
        let venv = Venv::with("record", &python, &[])?;
        venv.install_wheel(&wheel)?;
        record(&python.minor(), |shape| {
            ProcessStep::new(format!("record {shape}"), venv.python())
                .arg("xtask/live/python/record_stacks.py")
                .arg(shape)
        })?;
    }
    if arguments.runtimes.python.is_empty() || !missing.is_empty() {
        let debian = Debian::with_wheel(&wheel, &missing)?;
        for version in debian.versions() {
            record(version, |shape| debian.step(&format!("record {shape}"), version, "record_stacks.py").arg(shape))?;
        }
    }
    Ok(())
}

/// Runs the program once per shape and writes its fixtures.
fn record(version: &str, step: impl Fn(&str) -> ProcessStep) -> StepResult {
    let directory = workspace::root().join("bindings-python/tests/recorded").join(version);
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    let made = std::fs::create_dir_all(&directory);
    made.map_err(|error| StepFailure::new("recorded stacks", format!("{}: {error}", directory.display())))?;
    for (shape, versions) in SHAPES {
        if versions.contains(&minor) {
            let fixture = step(shape).capture()?;
            scratch::write(&directory.join(format!("{shape}.json")), &fixture)?;
            println!("recorded {shape} on CPython {version}: {} bytes", fixture.len());
        }
    }
    Ok(())
}
