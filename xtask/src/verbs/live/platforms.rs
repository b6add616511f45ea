//! First programs of each language on other platforms, and the unit tests in Rust: musl natively, other languages in the root of Alpine
//! Linux; arm64 in emulation (qemu-user) with the programs of Debian. The libraries are those of the dev profile. Nothing is installed on
//! the machine.

use std::path::{Path, PathBuf};

use crate::arguments::LiveArguments;
use crate::artifact::{self, copy};
use crate::interpreters;
use crate::languages::java;
use crate::proc_mount::ProcMount;
use crate::step::{all_passed, on_path, ProcessStep, StepFailure, StepResult};
use crate::target::Target;
use crate::{git, scratch, workspace};

/// Debian's packages in the root of arm64.
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

/// A first program: its name, and its function.
type Cell = (&'static str, fn() -> StepResult);

/// Every first program.
const CELLS: [Cell; 6] = [
    ("rust-musl", rust_on_musl),
    ("rust-arm64", rust_on_arm64),
    ("node-musl", node_on_alpine),
    ("python-arm64", python_on_arm64),
    ("node-arm64", node_on_arm64),
    ("java-arm64", java_on_arm64),
];

pub fn run(arguments: &LiveArguments) -> StepResult {
    let is_chosen = |name: &str| arguments.cell.is_empty() || arguments.cell.iter().any(|cell| cell == name);
    let mut failed = Vec::new();
    for (name, program) in CELLS.iter().filter(|(name, _)| is_chosen(name)) {
        println!("── platforms {name}");
        if let Err(failure) = program() {
            eprintln!("platforms {name}: {failure}");
            failed.push(*name);
        }
    }
    all_passed("platforms", &failed)
}

/// The unit tests of the crates in a service, and a static program, as `cargo build` makes it for musl.
fn rust_on_musl() -> StepResult {
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

/// The unit tests without those of clocks and of threads of the kernel, which emulation changes.
fn rust_on_arm64() -> StepResult {
    let root = arm64()?;
    unit_tests(Target::Arm64, &["signal", "unwind", "profile", "aggregate", "config"])?
        .arg("--")
        .args(NOT_EMULATED.iter().flat_map(|test| ["--skip", test]))
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{QEMU} -L {}", root.display()))
        .run()
}

/// `cargo test` of crates for a platform.
fn unit_tests(target: Target, crates: &[&str]) -> StepResult<ProcessStep> {
    Ok(artifact::cargo_with_zig(format!("unit tests for {}", target.triple()), target)?
        .args(["test", "--locked", "--lib", "--target", &target.triple()])
        .args(crates.iter().flat_map(|name| ["-p".to_owned(), format!("spanprof-{name}")])))
}

fn node_on_alpine() -> StepResult {
    let (root, _mount) = alpine()?;
    let directory = node_directory(&root.join("first-run"), Target::X64Musl)?;
    ProcessStep::new("first run of Node.js on Alpine", "chroot")
        .arg(&root)
        .args(["/bin/sh", "-c", "cd /first-run && exec /opt/node/bin/node first_run.mjs"])
        .run()?;
    shows_function(&profiles_in(&directory)?, "anonymous")
}

fn python_on_arm64() -> StepResult {
    let root = arm64()?;
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

fn node_on_arm64() -> StepResult {
    let root = arm64()?;
    let directory = node_directory(&workspace::target().join("platforms/node-arm64"), Target::Arm64)?;
    emulated("first run of Node.js on arm64", &root, "opt/node/bin/node")
        // The emulator does not start child processes for another processor.
        .args(["first_run.mjs", "alone"])
        .in_directory(&directory)
        .run()?;
    shows_function(&profiles_in(&directory)?, "anonymous")
}

fn java_on_arm64() -> StepResult {
    let root = arm64()?;
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

/// The profiles of the program that imports the package.
fn profiles_in(directory: &Path) -> StepResult<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut profiles =
        entries.filter(|path| path.to_string_lossy().contains("/profiles-v") && !path.to_string_lossy().contains("--"));
    profiles.next().ok_or_else(|| StepFailure::new("find the profiles", format!("none in {}", directory.display())))
}

/// A directory with `first_run.mjs`, and as npm installs them the package and that of the platform.
fn node_directory(directory: &Path, target: Target) -> StepResult<PathBuf> {
    let _ = std::fs::remove_dir_all(directory);
    let modules = directory.join("node_modules");
    let library = artifact::dev_library("spanprof-node", target)?;
    copy(&library, &modules.join(target.npm_package()).join("spanprof.node"))?;
    for part in ["lib/", "package.json"] {
        git::copy(&format!("bindings-node/{part}"), &modules.join("spanprof").join(part))?;
    }
    copy(&workspace::root().join("xtask/addon/first_run.mjs"), &directory.join("first_run.mjs"))?;
    Ok(directory.to_owned())
}

/// Fails unless the profiles in a directory have CPU time of a function.
fn shows_function(directory: &Path, function: &str) -> StepResult {
    let table = ProcessStep::new("read the profiles", artifact::command_line()?)
        .args(["top", "--limit", "0", "--type", "cpu"])
        .arg(directory)
        .capture()?;
    match table.contains(function) {
        true => Ok(()),
        false => Err(StepFailure::new("read the profiles", format!("expected `{function}`, got:\n{table}"))),
    }
}

/// The root of Alpine, with /proc while the second value lives.
fn alpine() -> StepResult<(PathBuf, ProcMount)> {
    let root = workspace::target().join("live/alpine");
    script("fetch Alpine", "alpine.sh").arg(&root).run()?;
    script("fetch Node.js for Alpine", "node.sh").arg(&root).arg("musllinux_1_2_x86_64").run()?;
    let mount = ProcMount::below(&root)?;
    Ok((root, mount))
}

/// The root with Debian's programs for arm64.
fn arm64() -> StepResult<PathBuf> {
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

fn script(name: &str, file: &str) -> ProcessStep {
    let python = interpreters::preferred().map_or_else(|_| "python3".into(), |python| python.program);
    ProcessStep::new(name, "bash").arg(format!("xtask/live/platforms/{file}")).arg(python)
}
