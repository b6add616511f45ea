//! `cargo xtask check`: the fast checks before a commit; with `--deep`, also the slow ones that need a nightly compiler.

use std::process::Command;

use super::{fuzz, tidy};
use crate::languages::python;
use crate::step::{nightly_with, ProcessStep, StepFailure, StepResult};
use crate::tally::Tally;

/// formatting, lints, tidy and the unit tests of the pure crates
///
/// Miri and fuzzing need a nightly toolchain; where it is missing the command that installs it is printed.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DeepCheckArguments {
    /// adds licenses and sources of the dependencies (cargo-deny), loom with four preemptions, Miri on the pure crates,
    /// ten minutes of fuzzing per decoder
    #[arg(long)]
    deep: bool,
}

/// Crates that need only a Rust compiler.
pub const PURE: [&str; 5] = ["spanprof-signal", "spanprof-profile", "spanprof-read", "spanprof-export", "xtask"];

pub fn run(arguments: &DeepCheckArguments) -> StepResult {
    format()?;
    clippy()?;
    tidy::run()?;
    let packages = PURE.iter().flat_map(|name| ["-p", name]);
    ProcessStep::cargo("unit tests of the pure crates").args(["test", "--quiet"]).args(packages).run()?;
    if arguments.deep {
        deep()?;
    }
    println!("check: passed");
    Ok(())
}

/// Formatting, without changes to files.
pub fn format() -> StepResult {
    ProcessStep::cargo("formatting")
        .args(["fmt", "--all", "--check"])
        .install_hint("rustup component add rustfmt")
        .run()
}

/// Lints of every crate and target, with the features that only users and live suites enable. Compiles the documents' blocks in Rust.
pub fn clippy() -> StepResult {
    let mut step = ProcessStep::cargo("lints")
        .args(["clippy", "--workspace", "--all-targets", "--quiet"])
        .args(["--features", "spanprof-read/readback"])
        .args(["--", "-D", "warnings"]);
    if let Ok(python) = python::runtimes::preferred() {
        step = step.env("PYO3_PYTHON", &python.program);
    }
    step.install_hint("rustup component add clippy").run()
}

/// Explores the interleavings of ring and slot within each model's bound, or within a larger one. Has its own target
/// directory, since `--cfg loom` would rebuild everything else.
pub fn loom(preemptions: Option<u32>, tally: &mut Tally) -> StepResult {
    let passed_before = tally.passed;
    let mut step = ProcessStep::cargo("loom: interleavings of ring and slot")
        .args(["test", "--release", "-p", "spanprof-signal", "--lib", "model", "--target-dir"])
        .arg(crate::workspace::target().join("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        // A model is small code that runs a million times: link-time optimization would take longer than it saves.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    if let Some(preemptions) = preemptions {
        step = step.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    step.run_with_lines(|line| tally.read(line))?;
    if tally.passed > passed_before {
        Ok(())
    } else {
        Err(StepFailure::new("loom", "no model ran"))
    }
}

fn deep() -> StepResult {
    dependencies()?;
    loom(Some(4), &mut Tally::default())?;
    nightly_with("miri", "rustup toolchain install nightly --component miri rust-src")?;
    ProcessStep::nightly_cargo("Miri")
        .args([
            "miri",
            "test",
            "-p",
            "spanprof-signal",
            "-p",
            "spanprof-profile",
            "-p",
            "spanprof-read",
            "--lib",
            "--target-dir",
        ])
        .arg(crate::workspace::target().join("miri"))
        // A ring is never freed, in tests as elsewhere.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks")
        .env("PROPTEST_CASES", "1")
        .run()?;
    fuzz::every_target(600)
}

/// Checks deny.toml. Advisories are excluded: they need the network and change independently (`cargo deny check advisories`).
fn dependencies() -> StepResult {
    let name = "licenses and sources of the dependencies";
    if !Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Err(
            StepFailure::new(name, "cargo-deny is not installed").with_hint("cargo install --locked cargo-deny")
        );
    }
    ProcessStep::cargo(name).args(["deny", "check", "licenses", "bans", "sources"]).run()
}
