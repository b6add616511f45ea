//! A service whose receiver refuses, discards, never responds or resets: latency and memory must stay constant, counters must
//! show the losses, and delivery must resume when a receiver is available. The disk buffer of 1,000 killed processes must be complete.

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages::python;
use crate::scratch;
use crate::step::{all_passed, ProcessStep, StepResult};
use crate::verbs::demo;

pub fn run(arguments: &LiveArguments) -> StepResult {
    let seconds = arguments.seconds.unwrap_or(30);
    let directory = scratch::empty("live-outage")?;
    let venv = python::Venv::with("live", &python::runtimes::preferred()?, &[])?;
    venv.install_wheel(&python::package::build_for_tests()?)?;
    let command = artifact::command_line()?;
    let mut failed = Vec::new();
    let killed = ProcessStep::cargo("disk buffer of 1,000 killed processes")
        .args(["test", "--quiet", "-p", "spanprof-export", "--test", "it", "buffer_processes::", "--", "--nocapture"])
        .env("SPANPROF_TEST_KILLS", "1000")
        .run();
    if let Err(failure) = killed {
        eprintln!("{failure}");
        failed.push("disk buffer");
    }
    for mode in ["refused", "swallowed", "never-answering", "resetting"] {
        let ports = demo::Ports::free()?;
        let outcome = ProcessStep::new(format!("receiver {mode} for {seconds} s"), venv.python())
            .arg("xtask/live/outage/outage.py")
            .args([mode, &ports.http.to_string(), &seconds.to_string()])
            .arg(&command)
            .arg(directory.join(mode))
            .run();
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            failed.push(mode);
        }
    }
    all_passed("outage", &failed)
}
