//! Stress in Python interpreters: every installed CPython with every clock; forks and restarts; and requests of the oldest web
//! frameworks and instrumentations. A crash or a hang fails the suite.

use std::path::Path;

use super::debian::Debian;
use super::runtimes::{self, Python};
use super::{package, Venv};
use crate::arguments::LiveArguments;
use crate::deadline::at_most;
use crate::step::{all_passed, ProcessStep, StepResult};
use crate::workspace;

/// The oldest web frameworks and OpenTelemetry packages that are supported, with the packages that they need in an old version.
const OLDEST_FRAMEWORKS: [&str; 21] = [
    "aiohttp==3.9.0",
    "celery==5.3.0",
    "django==4.2",
    "fastapi==0.110.0",
    "flask==3.0.0",
    "grpcio==1.60.0",
    "httpx==0.27.0",
    "importlib-metadata<8",
    "opentelemetry-instrumentation-aiohttp-server==0.45b0",
    "opentelemetry-instrumentation-asgi==0.45b0",
    "opentelemetry-instrumentation-celery==0.45b0",
    "opentelemetry-instrumentation-django==0.45b0",
    "opentelemetry-instrumentation-fastapi==0.45b0",
    "opentelemetry-instrumentation-flask==0.45b0",
    "opentelemetry-instrumentation-grpc==0.45b0",
    "opentelemetry-sdk==1.24.0",
    "pytest-timeout",
    "setuptools<70",
    "starlette==0.36.3",
    "werkzeug<3.1",
    "yarl==1.9.4",
];

/// Programs of xtask/live/python and their sizes, for each interpreter and clock.
struct PythonCells(Vec<(&'static str, u64)>);

pub fn run(arguments: &LiveArguments) -> StepResult {
    let seconds = arguments.seconds.unwrap_or(60);
    let forks = arguments.forks;
    let cycles = arguments.cycles;
    let cells = PythonCells(vec![("stress", seconds), ("forks", forks), ("cycles", cycles)]);
    // The wheel in the profile of the tests: the same code as the release, unoptimized.
    let wheel = package::build_for_tests()?;
    let mut failed = Vec::new();
    let (installed, missing) = runtimes::chosen_or_missing(&arguments.runtimes.python)?;
    for python in installed {
        let interpreter = environment(&python, &wheel)?;
        let step = |name: &str, program: &str| {
            ProcessStep::new(name, &interpreter)
                .without_cpu_budget()
                .arg(format!("xtask/live/python/{program}"))
                .env("PYTHONFAULTHANDLER", "1")
        };
        cells.run(&python.full(), &arguments.clock, step, &mut failed);
    }
    if arguments.runtimes.python.is_empty() || !missing.is_empty() {
        let debian = Debian::with_wheel(&wheel, &missing)?;
        for version in debian.versions() {
            cells.run(version, &arguments.clock, |name, program| debian.step(name, version, program), &mut failed);
        }
    }
    if let Err(failure) = oldest_frameworks(&wheel) {
        eprintln!("{failure}");
        failed.push("oldest frameworks".to_owned());
    }
    all_passed("live python", &failed)
}

/// The tests of frameworks, which the suite runs with the newest packages.
fn oldest_frameworks(wheel: &Path) -> StepResult {
    let Some(python) = runtimes::oldest_and_newest()?.into_iter().next() else { return Ok(()) };
    let venv = Venv::with("frameworks", &python, &OLDEST_FRAMEWORKS.map(str::to_owned))?;
    venv.install_wheel(wheel)?;
    ProcessStep::new(format!("oldest frameworks on Python {}", python.full()), venv.python())
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/test_frameworks.py"])
        .in_directory(&workspace::root().join("bindings-python"))
        .time_limit(at_most(10))
        .run()
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
