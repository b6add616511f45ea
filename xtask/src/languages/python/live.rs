//! Stress in Python interpreters: every installed CPython and Debian's newer ones, with every clock; forks and restarts; the package's
//! suites on Debian's; and requests of the oldest web frameworks and instrumentations. A crash or a hang fails the suite.

use std::path::Path;

use super::runtimes::{self, Python};
use super::{debian, package, suite, Venv};
use crate::arguments::LiveArguments;
use crate::deadline::at_most;
use crate::second_attempt::UNSTABLE_LIMIT;
use crate::step::{all_passed, StepResult};
use crate::tally::Tally;
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

pub fn run(arguments: &LiveArguments) -> StepResult {
    // The wheel in the profile of the tests: the same code as the release, unoptimized.
    let wheel = package::build_for_tests()?;
    let mut failed = Vec::new();
    for python in debian::installed_and_newer(&arguments.runtimes.python)? {
        stress(&python, &wheel, arguments, &mut failed)?;
        // `cargo xtask test` runs them on the installed ones.
        if python.root.is_some() && arguments.has_cell("suites") {
            suites(&python, &wheel, &mut failed);
        }
    }
    if arguments.has_cell("frameworks") {
        if let Err(failure) = oldest_frameworks(&wheel) {
            eprintln!("{failure}");
            failed.push("oldest frameworks".to_owned());
        }
    }
    all_passed("live python", &failed)
}

/// Runs the programs of xtask/live/python with each clock.
fn stress(python: &Python, wheel: &Path, arguments: &LiveArguments, failed: &mut Vec<String>) -> StepResult {
    let sizes = [("stress", arguments.seconds.unwrap_or(60)), ("forks", arguments.forks), ("cycles", arguments.cycles)];
    let chosen: Vec<_> = sizes.into_iter().filter(|(cell, _)| arguments.has_cell(cell)).collect();
    if chosen.is_empty() {
        return Ok(());
    }
    // Used by stress.py.
    let venv = Venv::with("live-python", python, &["numpy".to_owned(), "gevent".to_owned()])?;
    venv.install_wheel(wheel)?;
    for clock in &arguments.clock {
        for (cell, size) in &chosen {
            let name = format!("{cell} on Python {} by {clock}", python.full());
            let outcome = venv
                .step(&name)
                .without_cpu_budget()
                .arg(format!("xtask/live/python/{cell}.py"))
                .env("PYTHONFAULTHANDLER", "1")
                .args([clock, &size.to_string()])
                .run();
            if let Err(failure) = outcome {
                eprintln!("{failure}");
                failed.push(name);
            }
        }
    }
    Ok(())
}

fn suites(python: &Python, wheel: &Path, failed: &mut Vec<String>) {
    let mut tally = Tally::default();
    suite::complete(python, wheel, &mut tally);
    println!("suites on Python {}: {tally}", python.full());
    if tally.failed > 0 || tally.unstable > UNSTABLE_LIMIT {
        failed.push(format!("suites on Python {}", python.full()));
    }
}

/// The tests of frameworks, which the suite runs with the newest packages.
fn oldest_frameworks(wheel: &Path) -> StepResult {
    let Some(python) = runtimes::oldest_and_newest()?.into_iter().next() else { return Ok(()) };
    let venv = Venv::with("frameworks", &python, &OLDEST_FRAMEWORKS.map(str::to_owned))?;
    venv.install_wheel(wheel)?;
    venv.step(format!("oldest frameworks on Python {}", python.full()))
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-q", "tests/test_frameworks.py"])
        .in_directory(&workspace::root().join("bindings-python"))
        .time_limit(at_most(10))
        .run()
}
