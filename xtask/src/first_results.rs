//! The first program of each language in the documents: each must write a flame graph with its function.

use std::path::Path;
use std::time::Duration;

use crate::languages::{self, FirstProgram};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::{documents, scratch, workspace};

/// Runs the first program of each language; each must write a flame graph.
pub fn run() -> StepResult {
    let readme = scratch::read(&workspace::root().join(documents::FIRST_PROGRAMS))?;
    let directory = scratch::empty("docs-first-results")?;
    let programs: Vec<FirstProgram> = languages::ALL
        .iter()
        .filter_map(|language| language.first_program(&directory).transpose())
        .collect::<StepResult<_>>()?;
    for FirstProgram { tag, file: name, step } in programs {
        let file = directory.join(name);
        scratch::write(&file, &documents::blocks_of(&readme, tag))?;
        step.arg(&file).in_directory(&directory).time_limit(Duration::from_secs(120)).run()?;
        take_flame_graph(&directory, name, "price")?;
    }
    Ok(())
}

/// As [`run`], for Rust, in a package that depends on the crate.
pub fn run_in_rust(package: &Path) -> StepResult {
    let readme = scratch::read(&workspace::root().join(documents::FIRST_PROGRAMS))?;
    scratch::write(&package.join("src/bin/readme.rs"), &documents::blocks_of(&readme, "rust"))?;
    ProcessStep::cargo("the first program in Rust")
        .args(["run", "--quiet", "--bin", "readme"])
        .in_directory(package)
        .run()?;
    take_flame_graph(package, "readme.rs", "readme::main")
}

/// Fails when the program `name` has not written a flame graph with `function`.
fn take_flame_graph(directory: &Path, name: &str, function: &str) -> StepResult {
    let flame_graph = directory.join("flame.html");
    if !scratch::read(&flame_graph)?.contains(function) {
        let page = documents::FIRST_PROGRAMS;
        let message = format!("{name} of {page} wrote a flame graph without `{function}`");
        return Err(StepFailure::new("first result", message));
    }
    std::fs::remove_file(&flame_graph).map_err(|error| StepFailure::new("first result", error.to_string()))
}
