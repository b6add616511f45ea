//! `cargo xtask check`: the quick look before a commit; with `--deep`, the slow proofs that need a nightly compiler.

use std::process::Command;

use super::{fuzz, tidy, Verb};
use crate::arguments::{Arguments, Known};
use crate::step::{Failure, Outcome, Step};
use crate::tally::Tally;

pub const VERB: Verb = Verb {
    name: "check",
    usage: "check [--deep]",
    about: "formatting, lints, tidy and the unit tests of the pure crates\n\n\
        --deep adds: licences and sources of the dependencies (cargo-deny), loom with four preemptions, Miri\n\
        on the pure crates, ten minutes of fuzzing per decoder.\n\
        Miri and fuzzing need a nightly toolchain; where it is missing the command that installs it is printed.",
    options: &[Known::Switch("deep")],
    run,
};

/// Crates that need nothing but a Rust compiler.
pub const PURE: [&str; 4] = ["spanprof-signal", "spanprof-profile", "spanprof-export", "xtask"];

fn run(given: &Arguments) -> Outcome {
    format()?;
    clippy()?;
    tidy::run()?;
    let packages = PURE.iter().flat_map(|name| ["-p", name]);
    Step::cargo("unit tests of the pure crates").args(["test", "--quiet"]).args(packages).run()?;
    if given.has("deep") {
        deep()?;
    }
    println!("check: all is well");
    Ok(())
}

/// Formatting, unchanged files only.
pub fn format() -> Outcome {
    Step::cargo("formatting").args(["fmt", "--all", "--check"]).missing_means("rustup component add rustfmt").run()
}

/// Lints of every crate and target, with the features that only a user or a live suite asks for.
pub fn clippy() -> Outcome {
    let mut step = Step::cargo("lints")
        .args(["clippy", "--workspace", "--all-targets", "--quiet"])
        .args(["--features", "spanprof/opentelemetry,spanprof-profile/readback"])
        .args(["--", "-D", "warnings"]);
    if let Ok(python) = crate::pythons::preferred() {
        step = step.env("PYO3_PYTHON", &python.program);
    }
    step.missing_means("rustup component add clippy").run()
}

/// Every interleaving of ring and slot, as far as each model's own bound reaches, or with a larger bound. Built apart, since
/// `--cfg loom` would rebuild everything else.
pub fn loom(preemptions: Option<u32>, tally: &mut Tally) -> Outcome {
    let before = *tally;
    let mut step = Step::cargo("loom: interleavings of ring and slot")
        .args(["test", "--release", "-p", "spanprof-signal", "--lib", "model", "--target-dir"])
        .arg(crate::workspace::target().join("loom"))
        .env("RUSTFLAGS", "--cfg loom")
        // A model is small code run a million times: link-time optimisation would cost more than it gives.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    if let Some(preemptions) = preemptions {
        step = step.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    step.run_reading(|line| tally.read(line))?;
    match tally.passed > before.passed {
        true => Ok(()),
        false => Err(Failure::new("loom", "no model ran")),
    }
}

fn deep() -> Outcome {
    dependencies()?;
    loom(Some(4), &mut Tally::default())?;
    nightly_with("miri", "rustup toolchain install nightly --component miri rust-src")?;
    Step::nightly_cargo("Miri")
        .args(["miri", "test", "-p", "spanprof-signal", "-p", "spanprof-profile", "--lib", "--target-dir"])
        .arg(crate::workspace::target().join("miri"))
        // A ring lives as long as its process, in tests as elsewhere.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-ignore-leaks")
        .env("PROPTEST_CASES", "1")
        .run()?;
    fuzz::every_target(600)
}

/// What deny.toml allows. Advisories are left to `cargo deny check advisories`: they need the network, and change without us.
fn dependencies() -> Outcome {
    let name = "licences and sources of the dependencies";
    if !Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Err(Failure::new(name, "cargo-deny is not installed").with_way_out("cargo install --locked cargo-deny"));
    }
    Step::cargo(name).args(["deny", "check", "licenses", "bans", "sources"]).run()
}

/// Fails plainly when the nightly toolchain lacks a tool.
pub fn nightly_with(tool: &str, install: &str) -> Outcome {
    let found = Command::new("cargo")
        .args(["+nightly", tool, "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if found {
        return Ok(());
    }
    Err(Failure::new(format!("find nightly cargo {tool}"), "this check needs it, and it is not installed")
        .with_way_out(install))
}
