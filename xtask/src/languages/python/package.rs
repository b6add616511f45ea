//! `cargo xtask wheel`: builds the release wheel, audits its symbol versions, checks its size, and runs it once in a clean
//! environment. The suites use another wheel, in the dev profile, whose compilation is that of the tests in Rust.

use std::path::{Path, PathBuf};

use super::runtimes::{self, Python};
use super::Venv;
use crate::artifact::{self, Glibc, ZIG};
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::{Target, TargetArguments};
use crate::workspace::{self, VERSION};
use crate::{scratch, third_party};

/// Pinned for reproducible builds.
const MATURIN: &str = "maturin==1.16.0";
/// The library that cargo builds.
const LIBRARY: &str = "lib_spanprof.so";
/// Oldest supported glibc.
const GLIBC: Glibc = Glibc(2, 17);

/// Builds the release packages into `target/dist` and audits them. Those for this machine are run once.
pub fn run(arguments: &TargetArguments) -> StepResult {
    for target in arguments.targets() {
        let wheel = release(target)?;
        let files = artifact::files_below(&unpack(&wheel)?);
        artifact::audit("wheel", only_library(&files)?, target, GLIBC)?;
        artifact::sizes("wheel", &wheel, &files, 1)?;
        println!("wheel: {}", wheel.display());
        if target == Target::HOST {
            let fallback = without_native_code(&wheel)?;
            for python in runtimes::oldest_and_newest()? {
                first_run(&python, &wheel, true)?;
            }
            first_run(&runtimes::preferred()?, &fallback, false)?;
            println!("wheel: {}", fallback.display());
        }
    }
    Ok(())
}

/// The release wheel of a platform in `target/dist`.
pub fn release(target: Target) -> StepResult<PathBuf> {
    target.require_standard_library()?;
    third_party::write(&["spanprof-python"], &workspace::root().join("bindings-python").join(third_party::FILE))?;
    let python = runtimes::preferred()?;
    let tools = Venv::with("wheel-tools", &python, &[MATURIN.to_owned(), ZIG.to_owned()])?;
    let dist = workspace::target().join("dist");
    let (compatibility, end) = target.wheel();
    let is_of_target = |wheel: &PathBuf| wheel.to_string_lossy().ends_with(&end);
    // Files of other packages stay.
    wheels_in(&dist).iter().filter(|wheel| is_of_target(wheel)).for_each(|wheel| drop(std::fs::remove_file(wheel)));
    maturin(&tools, &python, &format!("build the release wheel for {}", target.triple()), &dist)
        .args(["--release", "--zig", "--compatibility", compatibility, "--compression-level", "9"])
        .args(["--target", &target.triple()])
        .env("RUSTFLAGS", format!("{} {}", target.flags(), artifact::without_machine_paths()))
        .run()?;
    only(&dist, wheels_in(&dist).into_iter().filter(is_of_target).collect())
}

/// Packs the library of [`artifact::for_tests`]; for this machine only.
pub fn build_for_tests() -> StepResult<PathBuf> {
    pack(&artifact::for_tests()?.join(LIBRARY), None, &scratch::empty("dist-for-tests")?)
}

/// Packs a library in the dev profile for a platform into `dist`.
pub fn build_for_platform(target: Target, dist: &Path) -> StepResult<PathBuf> {
    pack(&artifact::dev_library("spanprof-python", target)?, Some(target), dist)
}

/// Packs the library that the demo built; for this machine only.
pub fn pack_for_demo() -> StepResult<PathBuf> {
    pack(&workspace::target().join("optimized").join(LIBRARY), None, &scratch::empty("dist-for-demo")?)
}

/// A wheel in the dev profile with the feature `record-stacks`, for this machine only.
pub fn build_for_recording() -> StepResult<PathBuf> {
    let python = runtimes::preferred()?;
    let tools = Venv::with("maturin", &python, &[MATURIN.to_owned()])?;
    let dist = scratch::empty("dist-for-recording")?;
    maturin(&tools, &python, "build the wheel that records", &dist)
        .args(["--compatibility", "linux", "--features", "extension-module,record-stacks"])
        .run()?;
    only_wheel(&dist)
}

/// Makes a wheel of a library for this machine, or for `target`.
fn pack(library: &Path, target: Option<Target>, dist: &Path) -> StepResult<PathBuf> {
    let path = ProcessStep::new("pack the wheel", runtimes::preferred()?.program)
        .arg("xtask/wheel/of_library.py")
        .arg(library)
        .arg(VERSION)
        .arg(dist)
        .args(target.map(|target| target.wheel().1.trim_end_matches(".whl").to_owned()))
        .capture()?;
    Ok(PathBuf::from(path.trim()))
}

fn maturin(tools: &Venv, python: &Python, name: &str, dist: &Path) -> ProcessStep {
    ProcessStep::new(name, tools.program("maturin"))
        .args(["build", "--locked", "--manifest-path", "bindings-python/Cargo.toml", "--out"])
        .arg(dist)
        .arg("--interpreter")
        .arg(&python.program)
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("PYO3_PYTHON", &python.program)
        // maturin runs `python -m ziglang` with this interpreter.
        .env("CARGO_ZIGBUILD_PYTHON_PATH", tools.python())
}

fn wheels_in(dist: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dist).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|name| name == "whl")).collect()
}

fn only_wheel(dist: &Path) -> StepResult<PathBuf> {
    only(dist, wheels_in(dist))
}

fn only(dist: &Path, mut wheels: Vec<PathBuf>) -> StepResult<PathBuf> {
    match (wheels.pop(), wheels.is_empty()) {
        (Some(wheel), true) => Ok(wheel),
        (files, _) => {
            Err(StepFailure::new("find the wheel", format!("expected one in {}, got {:?}", dist.display(), files)))
        }
    }
}

fn unpack(wheel: &Path) -> StepResult<PathBuf> {
    let directory = scratch::empty("wheel-unpacked")?;
    ProcessStep::new("unpack the wheel", runtimes::preferred()?.program)
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(&directory)
        .run()?;
    Ok(directory)
}

fn only_library(files: &[PathBuf]) -> StepResult<&Path> {
    let is_library = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "so");
    match files.iter().filter(is_library).collect::<Vec<_>>().as_slice() {
        [library] => Ok(library),
        files => {
            Err(StepFailure::new("symbol audit", format!("expected one library in the wheel, got {}", files.len())))
        }
    }
}

/// The wheel of other interpreters and platforms, made from a native one beside it.
pub fn without_native_code(wheel: &Path) -> StepResult<PathBuf> {
    let output = ProcessStep::new("make the wheel without native code", runtimes::preferred()?.program)
        .arg("xtask/wheel/without_native_code.py")
        .arg(wheel)
        .capture()?;
    Ok(PathBuf::from(output.trim()))
}

/// The sdist, in `directory`.
pub fn source_distribution(directory: &Path) -> StepResult<PathBuf> {
    let tools = Venv::with("maturin", &runtimes::preferred()?, &[MATURIN.to_owned()])?;
    ProcessStep::new("maturin sdist", tools.program("maturin"))
        .args(["sdist", "--manifest-path", "bindings-python/Cargo.toml", "--out"])
        .arg(directory)
        .run()?;
    Ok(directory.join(format!("spanprof-{VERSION}.tar.gz")))
}

/// Installs the package from source by pip into a clean environment, in the dev profile, and runs it once: from the work tree, from its
/// last commit by git, and from the sdist.
pub fn from_source() -> StepResult {
    let root = workspace::root();
    installed_run(artifact::outside_the_workspace(pip_install("./bindings-python")?))?;
    let address = format!("git+file://{}#subdirectory=bindings-python", root.display());
    installed_run(artifact::outside_the_workspace(pip_install(&address)?))?;
    let directory = scratch::empty("sdist")?;
    let sdist = source_distribution(&directory)?;
    // Without the times in the sdist: cargo would take a build of older sources for current.
    ProcessStep::new("unpack the sdist", "tar")
        .args(["--extract", "--touch", "--file"])
        .arg(&sdist)
        .in_directory(&directory)
        .run()?;
    let unpacked = directory.join(format!("spanprof-{VERSION}"));
    installed_run(artifact::outside_the_workspace(pip_install(&unpacked.display().to_string())?))
}

fn pip_install(source: &str) -> StepResult<ProcessStep> {
    let venv = Venv::with("from-source", &runtimes::preferred()?, &[])?;
    Ok(ProcessStep::new(format!("pip install {source}"), venv.python())
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir"])
        .args(["--force-reinstall", source])
        .env("MATURIN_PEP517_ARGS", "--profile dev"))
}

fn installed_run(installation: ProcessStep) -> StepResult {
    installation.run()?;
    let python = runtimes::preferred()?;
    run_once(&python, &Venv::with("from-source", &python, &[])?, true)
}

/// Installs a wheel into a clean environment and runs it once.
fn first_run(python: &Python, wheel: &Path, native: bool) -> StepResult {
    let name = if native { "first-run" } else { "first-run-without-native-code" };
    let venv = Venv::with(name, python, &[])?;
    venv.install_wheel(wheel)?;
    run_once(python, &venv, native)
}

/// Runs `first_run.py`, and the command of the package.
fn run_once(python: &Python, venv: &Venv, native: bool) -> StepResult {
    let profiles = scratch::empty("first-run-profiles")?;
    ProcessStep::new(format!("first run on Python {}", python.full()), venv.python())
        .arg("xtask/wheel/first_run.py")
        .arg(&profiles)
        .arg(if native { "native" } else { "without-native-code" })
        .in_directory(&workspace::root())
        .run()?;
    if native {
        ProcessStep::new("the command of the wheel", venv.program("spanprof")).arg("--help").capture()?;
    }
    Ok(())
}
