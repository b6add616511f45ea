//! The Python part of `cargo xtask bench`: the release wheel and other profilers in separate environments, and the scripts of
//! xtask/bench/python.

use std::path::{Path, PathBuf};

use super::runtimes::Python;
use super::Venv;
use crate::scratch;
use crate::step::{ProcessStep, StepResult};

/// Runs one benchmark beside the profilers of `packages` and returns its output.
pub fn measure(
    name: &str,
    packages: &[(&str, &str)],
    python: &Python,
    wheel: &Path,
    command: &Path,
    short: bool,
) -> StepResult<String> {
    let own = Venv::with("bench-spanprof", python, &[])?;
    own.install_wheel(wheel)?;
    let mut peers: Vec<(String, PathBuf)> = vec![("spanprof".to_owned(), own.python())];
    for (peer, package) in packages {
        let venv = Venv::with(&format!("bench-{peer}"), python, &[(*package).to_owned()])?;
        peers.push(((*peer).to_owned(), venv.python()));
    }
    let peers: Vec<String> = peers.iter().map(|(name, python)| format!("{name}={}", python.display())).collect();
    let directory = scratch::empty(&format!("bench-{name}"))?;
    println!("── bench {name}");
    let mut step = ProcessStep::new(format!("bench {name}"), own.python())
        .arg(format!("xtask/bench/python/{name}.py"))
        .arg("--command")
        .arg(command)
        .arg("--folder")
        .arg(&directory)
        .arg("--wheel")
        .arg(wheel);
    if short {
        step = step.arg("--short");
    }
    step.args(peers).capture()
}
