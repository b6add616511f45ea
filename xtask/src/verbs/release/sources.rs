//! Step `sources`: installs each package from source as its users do, from a clone and from packages with sources, and runs it
//! once. Called by `test` too, one language at a time.

use std::path::Path;

use crate::languages;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::workspace::{self, VERSION};
use crate::{artifact, first_results, guides, scratch};

pub fn check() -> StepResult {
    languages::ALL.iter().try_for_each(|language| language.install_from_source())?;
    rust()
}

/// `cargo install` of the command, and the documents whose commands run with it and the crate.
pub fn rust() -> StepResult {
    let installed = scratch::empty("cargo-install")?;
    command(&installed)?;
    guides::run("rust", &[installed.join("bin")], |directory| {
        artifact::copy(&workspace::root().join("Cargo.lock"), &directory.join("Cargo.lock"))?;
        // Else cargo would make the new package a member of the workspace that contains the target directory.
        scratch::write(&directory.join("Cargo.toml"), "[workspace]\nresolver = \"2\"\n")?;
        scratch::write(&directory.join(".cargo/config.toml"), &cargo_configuration())
    })?;
    first_results::run_in_rust(&guides::directory("docs/start/rust.md").join("checkout"))
}

/// Directory and profile of builds outside the workspace, and debug information of the user's package. The profile of a dependency is
/// that of `command`, which has compiled most of them. On a busy machine, a debug build can take longer than the default to stop.
fn cargo_configuration() -> String {
    let target = workspace::target().join("source-packages");
    format!(
        "[build]\ntarget-dir = {target:?}\n[profile.dev]\ndebug = 0\nincremental = false\n\
         [profile.dev.package.checkout]\ndebug = \"line-tables-only\"\n\
         [profile.dev.package.spanprof-os]\nopt-level = 1\n\
         [profile.dev.package.spanprof-signal]\nopt-level = 1\n\
         [profile.dev.package.spanprof-aggregate]\nopt-level = 1\n\
         [profile.dev.package.spanprof-unwind]\nopt-level = 2\n\
         [profile.dev.package.gimli]\nopt-level = 2\n\
         [env]\nSPANPROF_STOP_TIMEOUT = \"20\"\n"
    )
}

fn command(directory: &Path) -> StepResult {
    artifact::outside_the_workspace(ProcessStep::cargo("cargo install --path core/workbench/cli"))
        .args(["install", "--quiet", "--locked", "--debug", "--path", "core/workbench/cli", "--root"])
        .arg(directory)
        .run()?;
    let text = ProcessStep::new("the installed command", directory.join("bin/spanprof")).arg("--version").capture()?;
    match text.trim() == format!("spanprof {VERSION}") {
        true => Ok(()),
        false => Err(StepFailure::new("the installed command", format!("expected spanprof {VERSION}, got {text}"))),
    }
}
