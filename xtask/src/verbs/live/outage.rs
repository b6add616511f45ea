//! A service whose receiver refuses, discards, never responds or resets: latency and memory must stay constant, counters must
//! show the losses, and delivery must resume when a receiver is available. With a disk buffer, every window of an outage must
//! arrive once and in order, in every language.

use std::path::{Path, PathBuf};

use crate::arguments::LiveArguments;
use crate::artifact;
use crate::languages::{java, node, python};
use crate::step::{all_passed, ProcessStep, StepResult};
use crate::verbs::demo;
use crate::{scratch, workspace};

/// A program with a disk buffer; the caller appends the arguments.
struct BufferedProgram {
    language: &'static str,
    words: Vec<PathBuf>,
    modules: Option<PathBuf>,
}

pub fn run(given: &LiveArguments) -> StepResult {
    let seconds = given.seconds.unwrap_or(30);
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
    for program in [rust, python, node, java] {
        let program = program()?;
        if let Err(failure) = program.check(&venv, &directory, seconds) {
            eprintln!("{failure}");
            failed.push(program.language);
        }
    }
    all_passed("outage", &failed)
}

impl BufferedProgram {
    fn check(&self, driver: &python::Venv, directory: &Path, seconds: u64) -> StepResult {
        let name = format!("disk buffer in {} without a receiver for {} s", self.language, 2 * seconds);
        let step = ProcessStep::new(name, driver.python())
            .args(["xtask/live/outage/buffer.py", self.language])
            .args([super::free_port()?.to_string(), seconds.to_string()])
            .arg(directory.join(format!("buffer-{}", self.language)))
            .args(&self.words);
        self.modules.iter().fold(step, |step, modules| step.env("NODE_PATH", modules)).run()
    }
}

fn source(name: &str) -> PathBuf {
    workspace::root().join("xtask/live/outage").join(name)
}

fn rust() -> StepResult<BufferedProgram> {
    let words = vec![artifact::for_tests()?.join("buffered")];
    Ok(BufferedProgram { language: "rust", words, modules: None })
}

/// In the environment that `run` made.
fn python() -> StepResult<BufferedProgram> {
    let venv = python::Venv::with("live", &python::runtimes::preferred()?, &[])?;
    Ok(BufferedProgram { language: "python", words: vec![venv.python(), source("buffered.py")], modules: None })
}

fn node() -> StepResult<BufferedProgram> {
    let words = vec![node::runtimes::preferred()?.program, source("buffered.js")];
    Ok(BufferedProgram { language: "node", words, modules: Some(node::live::installed()?) })
}

/// With a heap of constant size, so that memory growth is due to the buffer.
fn java() -> StepResult<BufferedProgram> {
    let mut words = java::live::command_of(&source("Buffered.java"), &java::package::for_tests()?, "live-outage-java")?;
    words.splice(1..1, ["-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch"].map(PathBuf::from));
    Ok(BufferedProgram { language: "java", words, modules: None })
}
