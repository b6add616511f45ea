//! Stress in real interpreters: every CPython here times every clock, with forks, restarts and stray signals. A crash, a
//! hang or a wrong name fails the suite.

use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::pythons::{self, Python};
use crate::step::{Failure, Outcome, Step};
use crate::{venv, verbs};

const CLOCKS: [&str; 2] = ["thread_timer", "perf"];

pub fn run(given: &Arguments) -> Outcome {
    let seconds = given.number("seconds")?.unwrap_or(60);
    let forks = given.number("forks")?.unwrap_or(1000);
    let cycles = given.number("cycles")?.unwrap_or(1000);
    let clocks: Vec<&str> = given.text("clock").map_or(CLOCKS.to_vec(), |text| text.split(',').collect());
    let wheel = verbs::wheel::build_for_tests()?;
    let mut failed = Vec::new();
    for python in pythons::chosen(given.text("python"))? {
        let interpreter = environment(&python, &wheel)?;
        for clock in &clocks {
            let cells = [
                ("stress", seconds),
                ("names", seconds.min(20)),
                ("forks", forks),
                ("cycles", cycles),
                ("stray_signals", 10),
            ];
            for (cell, size) in cells {
                let name = format!("{cell} on Python {} by {clock}", python.full());
                let step = Step::new(&name, &interpreter)
                    .arg(format!("xtask/live/python/{cell}.py"))
                    .args([*clock, &size.to_string()])
                    .env("PYTHONFAULTHANDLER", "1");
                if let Err(failure) = step.run() {
                    eprintln!("{failure}");
                    failed.push(name);
                }
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("live python", format!("failed: {}", failed.join("; ")))),
    }
}

fn environment(python: &Python, wheel: &Path) -> Outcome<PathBuf> {
    let venv = venv::Venv::with("live-python", python, &[])?;
    venv.install_wheel(wheel)?;
    Ok(venv.python())
}
