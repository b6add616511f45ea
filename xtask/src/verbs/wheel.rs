//! `cargo xtask wheel`: the release wheel, its symbol floor, its size, and a first run in a clean environment.

use std::path::{Path, PathBuf};

use super::Verb;
use crate::artefact::{self, Glibc, ZIG};
use crate::pythons::{self, Python};
use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::{scratch, workspace};

pub const VERB: Verb = Verb {
    name: "wheel",
    usage: "wheel",
    about: "builds the release wheel into target/dist, audits it and starts it once\n\n\
        One abi3 wheel for CPython 3.9 and later. Linked by zig against glibc 2.17, audited symbol by symbol, then\n\
        installed and run in a clean environment of the oldest and the newest Python here. Beside it a py3-none-any\n\
        wheel without native code, so that a laptop without a native wheel installs too.",
    options: &[],
    run: |_| run(),
};

/// Pinned, so that a build today and a build next month are the same build.
const MATURIN: &str = "maturin==1.16.0";
/// Oldest glibc the wheel promises to run on.
const GLIBC: Glibc = Glibc(2, 17);

fn run() -> Outcome {
    let wheel = release()?;
    let files = artefact::files_below(&unpack(&wheel)?);
    artefact::audit("wheel", only_library(&files)?, GLIBC)?;
    artefact::sizes("wheel", &wheel, &files)?;
    let fallback = without_native_code(&wheel)?;
    for python in pythons::oldest_and_newest()? {
        first_run(&python, &wheel, true)?;
    }
    first_run(&pythons::preferred()?, &fallback, false)?;
    println!("wheel: {}", wheel.display());
    println!("wheel: {}", fallback.display());
    Ok(())
}

/// The release wheel in `target/dist`.
pub fn release() -> Outcome<PathBuf> {
    let python = pythons::preferred()?;
    let tools = Venv::with("wheel-tools", &python, &[MATURIN.to_owned(), ZIG.to_owned()])?;
    let dist = workspace::target().join("dist");
    // What other packages left there stays.
    wheels_in(&dist).iter().for_each(|wheel| drop(std::fs::remove_file(wheel)));
    maturin(&tools, &python, "build the release wheel", &dist)
        .args(["--release", "--zig", "--compatibility", "manylinux2014"])
        .run()?;
    only_wheel(&dist)
}

/// A wheel of the profile that the workspace's tests use, so that nothing is compiled twice, with the
/// doors that tests need; for this machine only.
pub fn build_for_tests() -> Outcome<PathBuf> {
    let python = pythons::preferred()?;
    let tools = Venv::with("maturin", &python, &[MATURIN.to_owned()])?;
    let dist = scratch::empty("dist-for-tests")?;
    maturin(&tools, &python, "build the wheel for tests", &dist)
        .args(["--compatibility", "linux", "--features", "extension-module,testing"])
        .run()?;
    only_wheel(&dist)
}

/// A wheel as users get it but for link-time optimization and old systems, built within minutes.
pub fn build_for_demo() -> Outcome<PathBuf> {
    let python = pythons::preferred()?;
    let tools = Venv::with("maturin", &python, &[MATURIN.to_owned()])?;
    let dist = scratch::empty("dist-for-demo")?;
    maturin(&tools, &python, "build the wheel", &dist)
        .args(["--compatibility", "linux", "--profile", "optimized"])
        .run()?;
    only_wheel(&dist)
}

fn maturin(tools: &Venv, python: &Python, name: &str, dist: &Path) -> Step {
    Step::new(name, tools.program("maturin"))
        .args(["build", "--locked", "--manifest-path", "bindings-python/Cargo.toml", "--out"])
        .arg(dist)
        .arg("--interpreter")
        .arg(&python.program)
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("PYO3_PYTHON", &python.program)
        // maturin runs `python -m ziglang` by this.
        .env("CARGO_ZIGBUILD_PYTHON_PATH", tools.python())
}

fn wheels_in(dist: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dist).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|name| name == "whl")).collect()
}

fn only_wheel(dist: &Path) -> Outcome<PathBuf> {
    let mut wheels = wheels_in(dist);
    match (wheels.pop(), wheels.is_empty()) {
        (Some(wheel), true) => Ok(wheel),
        (found, _) => {
            Err(Failure::new("find the wheel", format!("expected one in {}, got {:?}", dist.display(), found)))
        }
    }
}

fn unpack(wheel: &Path) -> Outcome<PathBuf> {
    let folder = scratch::empty("wheel-unpacked")?;
    Step::new("unpack the wheel", pythons::preferred()?.program)
        .args(["-m", "zipfile", "-e"])
        .arg(wheel)
        .arg(&folder)
        .run()?;
    Ok(folder)
}

fn only_library(files: &[PathBuf]) -> Outcome<&Path> {
    let is_library = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "so");
    match files.iter().filter(is_library).collect::<Vec<_>>().as_slice() {
        [library] => Ok(library),
        found => Err(Failure::new("symbol audit", format!("expected one library in the wheel, got {}", found.len()))),
    }
}

fn without_native_code(wheel: &Path) -> Outcome<PathBuf> {
    let answer = Step::new("make the wheel without native code", pythons::preferred()?.program)
        .arg("xtask/wheel/without_native_code.py")
        .arg(wheel)
        .capture()?;
    Ok(PathBuf::from(answer.trim()))
}

/// Installs a wheel alone into a clean environment and runs the first minute of a user.
fn first_run(python: &Python, wheel: &Path, native: bool) -> Outcome {
    let name = if native { "first-run" } else { "first-run-without-native-code" };
    let venv = Venv::with(name, python, &[])?;
    venv.install_wheel(wheel)?;
    let profiles = scratch::empty("first-run-profiles")?;
    Step::new(format!("first run on Python {}", python.full()), venv.python())
        .arg("xtask/wheel/first_run.py")
        .arg(&profiles)
        .arg(if native { "native" } else { "without-native-code" })
        .inside(&workspace::root())
        .run()?;
    if native {
        Step::new("the wheel's own command", venv.program("spanprof")).arg("--help").capture()?;
    }
    Ok(())
}
