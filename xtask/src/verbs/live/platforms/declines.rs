//! Runtimes that spanprof declines: PyPy, a free-threaded CPython, Bun and Deno. The package is installed by pip or npm as for every
//! runtime. Each program runs as without it, and one line gives the reason.

use std::path::{Path, PathBuf};

use crate::interpreters::Python;
use crate::languages::{node, python};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::venv::Venv;
use crate::{debian_root, workspace};

/// PyPy of Debian, and its minor version of Python.
const PYPY: (&str, u32) = ("/usr/bin/pypy3", 9);
/// Packages of npm, their versions and their programs.
const BUN: (&str, &str) = ("@oven/bun-linux-x64@1.4.5", "@oven/bun-linux-x64/bin/bun");
const DENO: (&str, &str) = ("@deno/linux-x64-glibc@2.9.6", "@deno/linux-x64-glibc/deno");
/// Programs that import the package, and print `complete` at their end.
const PROGRAMS: &str = "xtask/live/platforms/declined";

pub fn pypy() -> StepResult {
    let root = debian_root::with_packages("pypy", ".", "amd64", &["pypy3", "pypy3-venv"])?;
    let python = Python { program: PYPY.0.into(), version: (PYPY.1, 0), root: Some(root) };
    declined_python("declined-pypy", &python, "this is PyPy 7.")
}

pub fn free_threaded() -> StepResult {
    let directory = workspace::target().join("live/python3.13t");
    ProcessStep::new("build a free-threaded CPython", "bash")
        .arg("xtask/live/platforms/free-threaded-python.sh")
        .arg(&directory)
        .run()?;
    let python = Python { program: directory.join("python"), version: (13, 0), root: None };
    declined_python("declined-free-threaded", &python, "CPython 3.13.5 is a free-threaded build")
}

/// Lets pip choose among the wheels of a release, and runs programs that import the package and that `spanprof run` starts.
fn declined_python(environment: &str, python: &Python, reason: &str) -> StepResult {
    let wheel = python::package::build_for_tests()?;
    python::package::without_native_code(&wheel)?;
    let packages = wheel.parent().unwrap_or(Path::new(".")).display().to_string();
    let venv = Venv::with(environment, python, &[])?;
    let words = ["--force-reinstall", "--no-index", "--find-links", &packages, "spanprof"];
    venv.pip("install the package", &words.map(str::to_owned))?;
    let program = format!("{PROGRAMS}/program.py");
    runs_unprofiled(venv.step(environment).arg(&program), reason)?;
    runs_unprofiled(venv.step(environment).args(["-m", "spanprof", "run", &program]), reason)
}

pub fn bun() -> StepResult {
    let (program, directory) = with_package(BUN)?;
    for words in [&["program.mjs"][..], &["program.cjs"], &["--preload", "spanprof/register", "program.mjs"]] {
        let step = ProcessStep::new(format!("bun {}", words.join(" ")), &program);
        runs_unprofiled(step.args(words).in_directory(&directory), "it profiles Node.js, and this is Bun 1.")?;
    }
    Ok(())
}

/// With and without the permission to read files and variables.
pub fn deno() -> StepResult {
    let (program, directory) = with_package(DENO)?;
    for words in [&["program.mjs"][..], &["program.cjs"], &["--allow-all", "program.mjs"]] {
        let step = ProcessStep::new(format!("deno run {}", words.join(" ")), &program);
        let step = step.args(["run", "--node-modules-dir=manual"]).args(words).in_directory(&directory);
        runs_unprofiled(step, "it profiles Node.js, and this is Deno 2.")?;
    }
    Ok(())
}

/// Installs the package and a runtime of npm; the program of the runtime, and the directory of the programs.
fn with_package((runtime, program): (&str, &str)) -> StepResult<(PathBuf, PathBuf)> {
    node::package::build_for_tests()?;
    let package = node::package::pack_for_tests()?;
    let modules = node::runtimes::install(&package, &[runtime], "platforms/declined")?;
    let directory = modules.with_file_name("");
    ProcessStep::new("copy the programs", "cp")
        .args(["program.mjs", "program.cjs"].map(|file| workspace::root().join(PROGRAMS).join(file)))
        .arg(&directory)
        .run()?;
    Ok((modules.join(program), directory))
}

/// Fails unless the program ends normally, and says once why it is not profiled.
fn runs_unprofiled(step: ProcessStep, reason: &str) -> StepResult {
    let (status, output) = step.capture_any()?;
    let of_package: Vec<&str> = output.lines().filter(|line| line.contains("spanprof")).collect();
    let has_reason = matches!(of_package.as_slice(), [line] if line.contains(reason));
    if status.success() && has_reason && output.lines().any(|line| line == "complete") {
        return Ok(());
    }
    let expected = format!("expected exit code 0, `complete` and one line with `{reason}`");
    Err(StepFailure::new("run where nothing is profiled", format!("{expected}, got {status}:\n{output}")))
}
