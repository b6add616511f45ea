//! The last step of the demo: a Python program that leaks memory, and the leak in a comparison of its first and last window.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{progress, scratch, workspace};

/// The function of examples/python-leak that keeps what it allocates.
const LEAKING: &str = "remember";

/// The profiles of the program.
pub struct LeakProfiles {
    directory: PathBuf,
    output: String,
}

/// Runs the program with an interpreter that has the package.
pub fn record(python: &Path) -> StepResult<LeakProfiles> {
    let directory = scratch::empty("demo-leak")?;
    let log = workspace::target().join("demo-leak.log");
    scratch::write(&log, "")?;
    let program = ProcessStep::new("a program that leaks", python)
        .arg(workspace::root().join("examples/python-leak/leak.py"))
        .arg(&directory)
        .time_limit(Duration::from_secs(60));
    progress::into_log(&log, || program.run())?;
    Ok(LeakProfiles { directory, output: scratch::read(&log)? })
}

/// Prints the comparison of the first and the last window. Fails if the leak is not its first row.
pub fn show(command: &Path, profiles: &LeakProfiles) -> StepResult {
    println!("\n══ a memory leak, found by comparing two windows of one process");
    print!("{}", profiles.output);
    let windows = first_and_last(in_use(&profiles.directory)?)?;
    println!("spanprof diff {} {} --type inuse_space", name(&windows[0]), name(&windows[1]));
    let diff = |words: &[&str]| {
        let mut diff = Command::new(command);
        diff.arg("diff").args(&windows).args(["--type", "inuse_space", "-n", "3"]).args(words);
        diff.output().map_err(|error| StepFailure::new("diff", error.to_string()))
    };
    print!("{}", String::from_utf8_lossy(&diff(&[])?.stdout));
    let table: Value = serde_json::from_slice(&diff(&["--json"])?.stdout).unwrap_or_default();
    let first = &table["rows"][0];
    let weights = ["baseline", "comparison"].map(|side| first[side]["flat"].as_i64().unwrap_or_default());
    if first["function"].as_str() == Some(LEAKING) && weights[1] > 2 * weights[0] {
        Ok(())
    } else {
        Err(StepFailure::new("memory leak", format!("expected {LEAKING} to grow eightfold, got {table}")))
    }
}

fn first_and_last(windows: Vec<PathBuf>) -> StepResult<[PathBuf; 2]> {
    match windows.as_slice() {
        [first, .., last] => Ok([first.clone(), last.clone()]),
        _ => Err(StepFailure::new("memory leak", format!("expected several windows, got {windows:?}"))),
    }
}

/// The profiles of objects in use at the end of each window, in order.
fn in_use(directory: &Path) -> StepResult<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).map_err(|error| StepFailure::new("memory leak", error.to_string()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| is_in_use(path)).collect();
    files.sort();
    Ok(files)
}

fn is_in_use(path: &Path) -> bool {
    name(path).starts_with("heap-") && name(path).ends_with(".pb.gz")
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
