//! Step `sources`: installs each package from source as its users do, from a clone and from packages with sources, and runs it
//! once. Called by `test` too, one language at a time.

use std::path::Path;

use crate::languages;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::workspace::{self, VERSION};
use crate::{artifact, scratch};

/// The program of a new user.
const PROGRAM: &str = r#"fn main() -> Result<(), spanprof::Error> {
    let config = spanprof::Config::builder().service_name("first").output("flame.html").load()?;
    let profiler = spanprof::Profiler::start(config)?;
    println!("{}", (0..50_000_000u64).map(|number| number * number % 97).sum::<u64>());
    profiler.stop();
    Ok(())
}
"#;

/// The manifest of a new user. Not by `cargo init`, which would make the directory below this workspace a member of it. Names need
/// debug information.
const MANIFEST: &str = r#"[package]
name = "first"
version = "0.1.0"
edition = "2021"

[dependencies]

[workspace]

[profile.dev.package.first]
debug = "line-tables-only"
"#;

pub fn check() -> StepResult {
    languages::ALL.iter().try_for_each(|language| language.install_from_source())?;
    rust()
}

/// `cargo install` of the command, and a program that uses the crate.
pub fn rust() -> StepResult {
    command(&scratch::empty("cargo-install")?)?;
    let directory = scratch::empty("cargo-add")?;
    let cargo = |name: &str| artifact::outside_the_workspace(ProcessStep::cargo(name)).in_directory(&directory);
    scratch::write(&directory.join("Cargo.toml"), MANIFEST)?;
    scratch::write(&directory.join("src/main.rs"), PROGRAM)?;
    cargo("cargo add --path core").args(["add", "--quiet", "--path"]).arg(workspace::root().join("core")).run()?;
    artifact::copy(&workspace::root().join("Cargo.lock"), &directory.join("Cargo.lock"))?;
    cargo("a program that uses the crate").args(["run", "--quiet"]).run()?;
    let page = scratch::read(&directory.join("flame.html"))?;
    match page.contains("first::main") {
        true => Ok(()),
        false => Err(StepFailure::new("a program that uses the crate", "wrote a flame graph without `first::main`")),
    }
}

fn command(directory: &Path) -> StepResult {
    artifact::outside_the_workspace(ProcessStep::cargo("cargo install --path core/crates/cli"))
        .args(["install", "--quiet", "--locked", "--debug", "--path", "core/crates/cli", "--root"])
        .arg(directory)
        .run()?;
    let text = ProcessStep::new("the installed command", directory.join("bin/spanprof")).arg("--version").capture()?;
    match text.trim() == format!("spanprof {VERSION}") {
        true => Ok(()),
        false => Err(StepFailure::new("the installed command", format!("expected spanprof {VERSION}, got {text}"))),
    }
}
