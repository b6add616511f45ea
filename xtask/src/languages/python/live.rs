//! Stress in Python interpreters: every installed CPython with every clock; forks and restarts. A crash or a hang fails
//! the suite.

use std::path::Path;

use super::debian::Debian;
use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::arguments::LiveArguments;
use crate::step::{all_passed, ProcessStep, StepResult};

/// Programs of xtask/live/python and their sizes, for each interpreter and clock.
struct PythonCells(Vec<(&'static str, u64)>);

pub fn run(given: &LiveArguments) -> StepResult {
    let seconds = given.seconds.unwrap_or(60);
    let forks = given.forks;
    let cycles = given.cycles;
    let cells = PythonCells(vec![("stress", seconds), ("forks", forks), ("cycles", cycles)]);
    // The wheel in the profile of the tests: the same code as the release, unoptimized.
    let wheel = package::build_for_tests()?;
    let mut failed = Vec::new();
    let (installed, missing) = runtimes::chosen_or_missing(&given.runtimes.python)?;
    for python in installed {
        let interpreter = environment(&python, &wheel)?;
        let step = |name: &str, program: &str| {
            ProcessStep::new(name, &interpreter)
                .without_cpu_budget()
                .arg(format!("xtask/live/python/{program}"))
                .env("PYTHONFAULTHANDLER", "1")
        };
        cells.run(&python.full(), &given.clock, step, &mut failed);
    }
    if given.runtimes.python.is_empty() || !missing.is_empty() {
        let debian = Debian::with_wheel(&wheel, &missing)?;
        for version in debian.versions() {
            cells.run(version, &given.clock, |name, program| debian.step(name, version, program), &mut failed);
        }
    }
    all_passed("live python", &failed)
}

impl PythonCells {
    fn run(
        &self,
        version: &str,
        clocks: &[String],
        step: impl Fn(&str, &str) -> ProcessStep,
        failed: &mut Vec<String>,
    ) {
        for clock in clocks {
            for (cell, size) in &self.0 {
                let name = format!("{cell} on Python {version} by {clock}");
                let outcome = step(&name, &format!("{cell}.py")).args([clock, &size.to_string()]).run();
                if let Err(failure) = outcome {
                    eprintln!("{failure}");
                    failed.push(name);
                }
            }
        }
    }
}

fn environment(python: &Python, wheel: &Path) -> StepResult<std::path::PathBuf> {
    // Used by stress.py.
    let venv = Venv::with("live-python", python, &["numpy".to_owned(), "gevent".to_owned()])?;
    venv.install_wheel(wheel)?;
    Ok(venv.python())
}
