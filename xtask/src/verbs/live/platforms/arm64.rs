//! arm64 in emulation (qemu-user), with the programs of Debian.

use std::path::{Path, PathBuf};

use super::{node_directory, profiles_in, script, shows_function, unit_tests};
use crate::artifact::{self, copy};
use crate::languages::java;
use crate::step::{on_path, ProcessStep, StepFailure, StepResult};
use crate::target::Target;
use crate::{git, scratch, workspace};

/// Debian's packages in the root.
const ARM64_PACKAGES: [&str; 3] = ["python3", "libstdc++6", "openjdk-17-jre-headless"];
/// The emulator.
const QEMU: &str = "qemu-aarch64-static";

/// Tests that read memory by `process_vm_readv`, which the emulator does not know, or expect a signal before the call that sends it ends.
const NOT_EMULATED: [&str; 6] = [
    "the_program_and_the_c_library_have_unwind_information",
    "changed_unwind_information_makes_no_panic_and_takes_bounded_time",
    "the_c_library_has_a_rule_at_each_of_its_functions",
    "a_pc_at_or_after_the_syscall_instruction_is_inside_a_system_call",
    "a_copy_by_words_equals_the_copy_of_the_process",
    "the_requested_thread_responds_with_clock_signals_blocked_and_its_errno_preserved",
];

/// The unit tests without those of clocks and of threads of the kernel, which emulation changes.
pub fn rust() -> StepResult {
    let root = root_directory()?;
    unit_tests(Target::Arm64, &["signal", "unwind", "profile", "aggregate", "config"])?
        .arg("--")
        .args(NOT_EMULATED.iter().flat_map(|test| ["--skip", test]))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{QEMU} -L {}", root.display()))
        .run()
}

pub fn python() -> StepResult {
    let root = root_directory()?;
    let (site, profiles) =
        (scratch::empty("platforms/python-arm64/site")?, scratch::empty("platforms/python-arm64/out")?);
    let library = artifact::dev_library("spanprof-python", Target::Arm64)?;
    copy(&library, &site.join("spanprof/_spanprof.abi3.so"))?;
    git::copy("bindings-python/python/spanprof/", &site.join("spanprof"))?;
    emulated("first run of Python on arm64", &root, "usr/bin/python3")
        .arg("xtask/wheel/first_run.py")
        .arg(&profiles)
        .arg("native")
        .env("PYTHONPATH", &site)
        .in_directory(&workspace::root())
        .run()?;
    shows_function(&profiles, "work")
}

pub fn node() -> StepResult {
    let root = root_directory()?;
    let directory = node_directory(&workspace::target().join("platforms/node-arm64"), Target::Arm64)?;
    emulated("first run of Node.js on arm64", &root, "opt/node/bin/node")
        // The emulator does not start child processes for another processor.
        .args(["first_run.mjs", "alone"])
        .in_directory(&directory)
        .run()?;
    shows_function(&profiles_in(&directory)?, "anonymous")
}

pub fn java() -> StepResult {
    let root = root_directory()?;
    let jar = java::package::of_dev_libraries(Target::Arm64)?;
    let (classes, profiles) =
        (scratch::empty("platforms/java-arm64/classes")?, scratch::empty("platforms/java-arm64/out")?);
    java::package::compile_first_run(&java::runtimes::preferred()?, &jar, &classes)?;
    emulated("first run of Java on arm64", &root, "usr/lib/jvm/java-17-openjdk-arm64/bin/java")
        .args(["-cp", &format!("{}:{}", classes.display(), jar.display()), "FirstRun", "library"])
        .arg(&profiles)
        .run()?;
    shows_function(&profiles, "FirstRun.main")
}

/// The root with Debian's programs for arm64.
fn root_directory() -> StepResult<PathBuf> {
    let root = workspace::target().join("live/arm64");
    ProcessStep::new("fetch Debian's programs for arm64", "bash")
        .arg("xtask/live/debian-root.sh")
        .arg(&root)
        .args([".", "arm64"])
        .args(ARM64_PACKAGES)
        .run()?;
    script("fetch Node.js for arm64", "node.sh").arg(&root).arg("manylinux_2_28_aarch64").run()?;
    if on_path(Path::new(QEMU)).is_none() {
        return Err(
            StepFailure::new("emulator", format!("{QEMU} is missing")).with_hint("apt-get install qemu-user-static")
        );
    }
    Ok(root)
}

fn emulated(name: &str, root: &Path, program: &str) -> ProcessStep {
    // A library of the dev profile can take longer than the default to stop there.
    ProcessStep::new(name, QEMU).arg("-L").arg(root).arg(root.join(program)).env("SPANPROF_STOP_TIMEOUT", "20")
}
