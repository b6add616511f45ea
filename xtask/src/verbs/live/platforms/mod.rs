//! First programs of each language on other platforms, and the unit tests in Rust: musl natively, other languages in the root of Alpine
//! Linux; arm64 in emulation (qemu-user), and in a virtual machine with its own kernel (qemu-system), with the programs of Debian. Runtimes
//! that are declined. The libraries are those of the dev profile. Nothing is installed on the machine.

mod arm64;
mod arm64_system;
mod declines;
pub(super) mod musl;
pub mod table;

use std::path::{Path, PathBuf};

use self::table::PackageLanguage::{Java, Node, Python, Rust};
use self::table::PackageOutcome::{Built, Declines, Runs};
use self::table::Shown;
use crate::arguments::LiveArguments;
use crate::artifact::{self, copy};
use crate::interpreters;
use crate::step::{all_passed, ProcessStep, StepFailure, StepResult};
use crate::target::Target::{self, Arm64, Arm64Musl, X64Musl};
use crate::{git, workspace};

/// A row of the matrix: what its function runs, and what that shows.
pub struct PlatformCell {
    pub name: &'static str,
    pub shows: &'static [Shown],
    run: fn() -> StepResult,
}

/// Every cell.
pub const CELLS: [PlatformCell; 15] = [
    PlatformCell {
        name: "rust-musl",
        run: musl::rust,
        shows: &[(Runs(X64Musl), Rust, "unit tests, a program, delivery")],
    },
    PlatformCell { name: "rust-arm64", run: arm64::rust, shows: &[(Runs(Arm64), Rust, "unit tests, conformance")] },
    PlatformCell { name: "rust-arm64-musl", run: arm64::rust_musl, shows: &[(Runs(Arm64Musl), Rust, "unit tests")] },
    PlatformCell {
        name: "python-musl",
        run: musl::python,
        shows: &[(Runs(X64Musl), Python, "3.13, first program, delivery, small stacks, a part of the tests")],
    },
    PlatformCell {
        name: "node-musl",
        run: musl::node,
        shows: &[(Runs(X64Musl), Node, "22 and 24, first program, delivery, a part of the tests")],
    },
    PlatformCell { name: "java-musl", run: musl::java, shows: &[(Built(X64Musl), Java, "loaded")] },
    PlatformCell {
        name: "python-arm64",
        run: arm64::python,
        shows: &[(Runs(Arm64), Python, "3.11, first program, 30 threads, conformance")],
    },
    PlatformCell {
        name: "node-arm64",
        run: arm64::node,
        shows: &[(Runs(Arm64), Node, "24, first program, 8 worker threads, conformance, recorded stacks")],
    },
    PlatformCell { name: "java-arm64", run: arm64::java, shows: &[(Runs(Arm64), Java, "17 and 21, first program")] },
    PlatformCell { name: "pypy", run: declines::pypy, shows: &[(Declines, Python, "PyPy")] },
    PlatformCell {
        name: "free-threaded",
        run: declines::free_threaded,
        shows: &[(Declines, Python, "free-threaded CPython")],
    },
    PlatformCell { name: "bun", run: declines::bun, shows: &[(Declines, Node, "Bun")] },
    PlatformCell { name: "deno", run: declines::deno, shows: &[(Declines, Node, "Deno")] },
    PlatformCell { name: "arm64-system", run: arm64_system::pages_of_4_kib, shows: ON_A_KERNEL },
    PlatformCell { name: "arm64-system-16k", run: arm64_system::pages_of_16_kib, shows: ON_A_KERNEL },
];

/// In a virtual machine: the unit tests that need the kernel, and the first programs with the perf clock.
const ON_A_KERNEL: &[Shown] = &[
    (Runs(Arm64), Python, "perf clock"),
    (Runs(Arm64), Node, "perf clock"),
    (Runs(Arm64), Java, "perf clock"),
    (Runs(Arm64), Rust, "perf clock"),
];

pub fn run(arguments: &LiveArguments) -> StepResult {
    if arguments.record {
        return arm64::record(arguments);
    }
    let mut failed = Vec::new();
    for PlatformCell { name, run, .. } in CELLS.iter().filter(|cell| arguments.has_cell(cell.name)) {
        println!("── platforms {name}");
        if let Err(failure) = run() {
            eprintln!("platforms {name}: {failure}");
            failed.push(*name);
        }
    }
    all_passed("platforms", &failed)
}

/// A first program for the other processor and one for the other C library. Installs Rust's standard libraries for them, by rustup.
pub fn short() -> StepResult {
    for target in [Arm64, X64Musl] {
        target.add_standard_library()?;
    }
    arm64::python()?;
    musl::node_on_debians_musl()
}

/// `cargo test` of the libraries of crates for a platform.
fn unit_tests(target: Target, crates: &[&str]) -> StepResult<ProcessStep> {
    Ok(tests(&format!("unit tests for {}", target.triple()), target)?
        .arg("--lib")
        .args(crates.iter().flat_map(|name| ["-p".to_owned(), format!("spanprof-{name}")])))
}

/// `cargo test` for a platform.
fn tests(name: &str, target: Target) -> StepResult<ProcessStep> {
    Ok(artifact::cargo_with_zig(name, target)?
        .args(["test", "--locked", "--target", &target.triple()])
        // As for the libraries: cargo would compile the dependencies of both again and again.
        .env("RUSTFLAGS", artifact::without_machine_paths()))
}

/// The profiles of the program that imports the package.
fn profiles_in(directory: &Path) -> StepResult<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut profiles =
        entries.filter(|path| path.to_string_lossy().contains("/profiles-v") && !path.to_string_lossy().contains("--"));
    profiles.next().ok_or_else(|| StepFailure::new("find the profiles", format!("none in {}", directory.display())))
}

/// The package for Python in a directory.
fn python_package(directory: &Path, target: Target) -> StepResult {
    copy(&artifact::dev_library("spanprof-python", target)?, &directory.join("_spanprof.abi3.so"))?;
    git::copy("bindings-python/python/spanprof/", directory)
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

fn script(name: &str, file: &str) -> ProcessStep {
    let python = interpreters::preferred().map_or_else(|_| "python3".into(), |python| python.program);
    ProcessStep::new(name, "bash").arg(format!("xtask/live/platforms/{file}")).arg(python)
}
