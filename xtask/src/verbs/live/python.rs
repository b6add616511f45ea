//! Stress in real interpreters: every CPython here times every clock, with forks, restarts and stray signals. A crash, a
//! hang or a wrong name fails the suite.

use std::path::Path;

use super::debian::Debian;
use crate::arguments::Arguments;
use crate::pythons::{self, Python};
use crate::step::{Failure, Outcome, Step};
use crate::{venv, verbs};

const CLOCKS: [&str; 2] = ["thread_timer", "perf"];

/// What runs in each interpreter under each clock: a program of xtask/live/python and its size.
struct Cells(Vec<(&'static str, u64)>);

pub fn run(given: &Arguments) -> Outcome {
    let seconds = given.number("seconds")?.unwrap_or(60);
    let forks = given.number("forks")?.unwrap_or(1000);
    let cycles = given.number("cycles")?.unwrap_or(1000);
    let cells = Cells(vec![
        ("stress", seconds),
        ("names", seconds.min(20)),
        ("forks", forks),
        ("cycles", cycles),
        ("stray_signals", 10),
    ]);
    let clocks: Vec<&str> = given.text("clock").map_or(CLOCKS.to_vec(), |text| text.split(',').collect());
    // The profile and the doors of tests: the code under stress is what ships, unoptimised (docs/decisions/0015).
    let wheel = verbs::wheel::build_for_tests()?;
    let mut failed = Vec::new();
    let (here, elsewhere) = pythons::chosen_or_missing(given.text("python"))?;
    for python in here {
        let interpreter = environment(&python, &wheel)?;
        let step = |name: &str, program: &str| {
            Step::new(name, &interpreter).arg(format!("xtask/live/python/{program}")).env("PYTHONFAULTHANDLER", "1")
        };
        cells.run(&python.full(), &clocks, step, &mut failed);
    }
    if given.text("python").is_none() || !elsewhere.is_empty() {
        from_debian(&cells, &clocks, &wheel, &elsewhere, &mut failed)?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("live python", format!("failed: {}", failed.join("; ")))),
    }
}

/// Runs in what Debian has of the versions asked for; of none asked for, in all it has.
fn from_debian(
    cells: &Cells,
    clocks: &[&str],
    wheel: &Path,
    asked_for: &[String],
    failed: &mut Vec<String>,
) -> Outcome {
    let debian = Debian::fetch()?;
    let is_asked_for = |version: &&String| asked_for.is_empty() || asked_for.contains(version);
    let chosen: Vec<_> = debian.versions.iter().filter(is_asked_for).collect();
    if let Some(missing) = asked_for.iter().find(|version| !chosen.contains(version)) {
        return Err(Failure::new("find Python", format!("no CPython {missing}, neither here nor from Debian")));
    }
    if chosen.is_empty() {
        return Ok(());
    }
    debian.install(wheel)?;
    for version in chosen {
        cells.run(version, clocks, |name, program| debian.step(name, version, program), failed);
    }
    Ok(())
}

impl Cells {
    fn run(&self, version: &str, clocks: &[&str], step: impl Fn(&str, &str) -> Step, failed: &mut Vec<String>) {
        for clock in clocks {
            for (cell, size) in &self.0 {
                let name = format!("{cell} on Python {version} by {clock}");
                let outcome = step(&name, &format!("{cell}.py")).args([*clock, &size.to_string()]).run();
                if let Err(failure) = outcome {
                    eprintln!("{failure}");
                    failed.push(name);
                }
            }
        }
    }
}

fn environment(python: &Python, wheel: &Path) -> Outcome<std::path::PathBuf> {
    let venv = venv::Venv::with("live-python", python, &[])?;
    venv.install_wheel(wheel)?;
    Ok(venv.python())
}
