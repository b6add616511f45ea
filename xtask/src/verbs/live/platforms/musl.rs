//! musl natively: unit tests of Rust on this machine, other languages in the root of Alpine Linux.

use std::path::{Path, PathBuf};

use super::{node_directory, profiles_in, script, shows_function, unit_tests};
use crate::artifact;
use crate::step::{ProcessStep, StepResult};
use crate::target::Target;
use crate::{debian_root, scratch, workspace};

/// The unit tests of the crates in a service, and a static program, as `cargo build` makes it for musl.
pub fn rust() -> StepResult {
    let triple = Target::X64Musl.triple();
    let crates = ["signal", "unwind", "os", "profile", "aggregate", "config", "export", "profiler"];
    unit_tests(Target::X64Musl, &crates)?.run()?;
    artifact::cargo_with_zig("build a program with musl", Target::X64Musl)?
        .args(["zigbuild", "--locked", "--target", &triple, "-p", "spanprof-live", "--bin", "rust-phases"])
        .run()?;
    let profiles = scratch::empty("platforms/rust-musl/out")?;
    ProcessStep::new("a program with musl", workspace::target().join(triple).join("debug/rust-phases"))
        .env("PHASE_MS", "250")
        .env("SPANPROF_FILE_DIRECTORY", &profiles)
        .run()?;
    shows_function(&profiles, "rust_phases::run")
}

pub fn node() -> StepResult {
    first_program_of_node(&alpine()?)
}

/// The first program of Node.js with the musl of Debian sid, whose root needs no other programs to make.
pub fn node_on_debians_musl() -> StepResult {
    let root = debian_root::with_packages("musl", "sid", "amd64", &["musl"])?;
    script("fetch Node.js for musl", "node.sh").arg(&root).arg("musllinux_1_2_x86_64").run()?;
    first_program_of_node(&root)
}

fn first_program_of_node(root: &Path) -> StepResult {
    let directory = node_directory(&workspace::target().join("platforms/node-musl"), Target::X64Musl)?;
    ProcessStep::in_root("first run of Node.js with musl", Some(root), "/opt/node/bin/node")
        .arg("first_run.mjs")
        .in_directory(&directory)
        .run()?;
    shows_function(&profiles_in(&directory)?, "anonymous")
}

/// The root of Alpine.
pub(in crate::verbs::live) fn alpine() -> StepResult<PathBuf> {
    let root = workspace::target().join("live/alpine");
    script("fetch Alpine", "alpine.sh").arg(&root).run()?;
    script("fetch Node.js for Alpine", "node.sh").arg(&root).arg("musllinux_1_2_x86_64").run()?;
    Ok(root)
}
