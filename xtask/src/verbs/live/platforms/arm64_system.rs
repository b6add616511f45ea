//! arm64 with a kernel of its own, in a virtual machine (qemu-system): what the emulation of programs lacks, such as the perf clock, reads
//! by the kernel, addresses of 48 bits and pages of 16 KiB.

use std::path::PathBuf;

use super::arm64;
use super::{node_directory, python_package, unit_tests};
use crate::artifact::copy;
use crate::languages::java;
use crate::step::{ProcessStep, StepResult};
use crate::target::Target;
use crate::{debian_root, git, scratch, workspace};

/// Time limit of the virtual machine.
const SECONDS: &str = "2400";
/// What the programs run and read.
const FILES: [&str; 3] = ["xtask/live/platforms/", "xtask/wheel/first_run.py", "bindings-python/tests/pprof_reader.py"];

pub fn pages_of_4_kib() -> StepResult {
    run("arm64-kernel", ".", "linux-image-cloud-arm64")
}

pub fn pages_of_16_kib() -> StepResult {
    run("arm64-kernel-16k", "trixie", "linux-image-arm64-16k")
}

/// Boots a kernel of Debian and runs the tests.
fn run(name: &str, release: &str, package: &str) -> StepResult {
    let kernel = debian_root::with_packages(name, release, "arm64", &[package, "busybox-static"])?;
    let (root, job) = (arm64::root_directory()?, job()?);
    copy(&kernel.join("bin/busybox"), &job.join("busybox"))?;
    ProcessStep::new("tests on a kernel for arm64", "bash")
        .arg("xtask/live/platforms/arm64-system.sh")
        .args([&kernel, &root, &job])
        .arg(SECONDS)
        .run()
}

/// A directory with the tests and programs, and the program that runs them.
fn job() -> StepResult<PathBuf> {
    let job = scratch::empty("platforms/arm64-system")?;
    let tests = scratch::empty("platforms/arm64-system/tests")?;
    unit_tests(Target::Arm64, &["signal", "unwind", "os"])?
        .arg("--tests")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("cp -t {}", tests.display()))
        .run()?;
    copy(&workspace::root().join("xtask/live/platforms/arm64-job.sh"), &job.join("run"))?;
    for files in FILES {
        git::copy(files, &job.join(files))?;
    }
    python_package(&job.join("site/spanprof"), Target::Arm64)?;
    node_directory(&job.join("node"), Target::Arm64)?;
    let jar = java::package::of_dev_libraries(Target::Arm64)?;
    copy(&jar, &job.join("java/spanprof.jar"))?;
    let classes = scratch::empty("platforms/arm64-system/java/classes")?;
    java::package::compile_first_run(&java::runtimes::preferred()?, &jar, &classes)?;
    Ok(job)
}
