//! A real service whose receiver refuses, swallows, never answers or resets: latency and memory must not move, counters
//! must tell, and delivery must resume when a receiver appears.

use crate::arguments::Arguments;
use crate::step::{Failure, Outcome, Step};
use crate::verbs::demo;
use crate::{pythons, scratch, venv, verbs};

pub fn run(given: &Arguments) -> Outcome {
    let seconds = given.number("seconds")?.unwrap_or(30);
    let folder = scratch::empty("live-outage")?;
    let python = pythons::preferred()?;
    let venv = venv::Venv::with("live", &python, &[])?;
    venv.install_wheel(&verbs::wheel::build_for_tests()?)?;
    let command = super::command_line()?;
    let mut failed = Vec::new();
    for mode in ["refused", "swallowed", "never-answering", "resetting"] {
        let ports = demo::Ports::free()?;
        let outcome = Step::new(format!("receiver {mode} for {seconds} s"), venv.python())
            .arg("xtask/live/outage/outage.py")
            .args([mode, &ports.http.to_string(), &seconds.to_string()])
            .arg(&command)
            .arg(folder.join(mode))
            .run();
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            failed.push(mode);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new("outage", format!("failed: {}", failed.join(", ")))),
    }
}
