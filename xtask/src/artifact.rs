//! What several verbs build: the command line; and for packages the native library built by zig against an old glibc, its symbol
//! audit, and the size budgets. Packing and the first run are in the modules `package` of `languages`.

use std::path::{Path, PathBuf};

use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::Target;
use crate::venv::Venv;
use crate::{elf, interpreters, workspace};

/// Pinned for reproducible builds.
pub const ZIG: &str = "ziglang==0.17.0";
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
/// Libraries of the system that a package may require.
const GLIBC_LIBRARIES: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];
const MUSL_LIBRARIES: [&str; 1] = ["libc.so"];
/// Size budgets, in bytes.
const LARGEST_PACKED: u64 = 6_000_000;
const LARGEST_INSTALLED: u64 = 11_000_000;

/// The oldest glibc that a package supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glibc(pub u32, pub u32);

impl std::fmt::Display for Glibc {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

/// Features of the tests: the bindings' entry points for tests.
pub const TEST_FEATURES: &str = "spanprof-python/testing,spanprof-node/testing,spanprof-java/testing";

/// Builds what the tests run, in the dev profile: the command line, the libraries of the packages, the Rust programs of the live
/// suites. Returns the directory with the results. One cargo call for all of them, with the features of `cargo test --workspace`:
/// separate ones would compile the dependencies again with other features. The example makes cargo include those of the
/// `[dev-dependencies]`.
pub fn for_tests() -> StepResult<PathBuf> {
    let programs = ["spanprof", "spanprof-live", "rust-phases", "rust-stress"];
    ProcessStep::cargo("build the libraries and programs for tests")
        .args(["build", "--quiet", "--locked", "--workspace", "--lib", "--example", "rust-leak"])
        .args(programs.iter().flat_map(|name| ["--bin", name]))
        // As maturin does: the library of Python is not linked to an interpreter.
        .args(["--features", TEST_FEATURES, "--features", "spanprof-python/extension-module"])
        .env("PYO3_PYTHON", interpreters::preferred()?.program)
        .run()?;
    Ok(workspace::target().join("debug"))
}

/// The `spanprof` command of [`for_tests`].
pub fn command_line() -> StepResult<PathBuf> {
    Ok(for_tests()?.join("spanprof"))
}

/// Sets the profile and the target directory of builds from source. In the target directory of the workspace, cargo would take the
/// results of an unpacked package or of a clone for those of the work tree.
pub fn outside_the_workspace(step: ProcessStep) -> ProcessStep {
    step.env("CARGO_TARGET_DIR", workspace::target().join("source-packages"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
}

/// Compiler flags that replace the path of the registry's sources in messages of panics. Those of this workspace are relative.
pub fn without_machine_paths() -> String {
    let home = std::env::home_dir().unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    format!("--remap-path-prefix={}=/cargo", cargo_home.display())
}

/// A package's release library for a platform, built with `flags` of the compiler and linked against the oldest supported glibc. A build
/// with flags has a target directory of its own: where a flag is `--remap-path-prefix`, cargo leaves the flags out of the names of its
/// results, and the builds of two packages would replace each other's dependencies.
pub fn release_library(package: &str, target: Target, oldest: Glibc, flags: &str) -> StepResult<PathBuf> {
    let triple = target.triple();
    let with_oldest = if target.is_musl() { triple.clone() } else { format!("{triple}.{oldest}") };
    let directory = workspace::target().join(if flags.is_empty() { "" } else { "release-with-flags" });
    zigbuild(package, target, &with_oldest, &directory, flags)?.arg("--release").run()?;
    let file = format!("release/lib{}.so", package.replace('-', "_"));
    Ok(directory.join(triple).join(file))
}

/// A package's library for a platform in the dev profile, with the entry points for tests.
pub fn dev_library(package: &str, target: Target) -> StepResult<PathBuf> {
    let (features, name) = match package {
        "spanprof-python" => ("testing,extension-module", "_spanprof".to_owned()),
        _ => ("testing", package.replace('-', "_")),
    };
    zigbuild(package, target, &target.triple(), &workspace::target(), "")?.args(["--features", features]).run()?;
    Ok(workspace::target().join(target.triple()).join(format!("debug/lib{name}.so")))
}

/// The library for Node.js that records stacks, as [`dev_library`].
pub fn recording_library(target: Target) -> StepResult<PathBuf> {
    let step = zigbuild("spanprof-node", target, &target.triple(), &workspace::target(), "")?;
    step.args(["--features", "record-stacks"]).run()?;
    Ok(workspace::target().join(target.triple()).join("debug/libspanprof_node.so"))
}

/// A build of a package's library by zig for a platform, named with the oldest glibc that it is linked against.
fn zigbuild(package: &str, target: Target, with_oldest: &str, into: &Path, flags: &str) -> StepResult<ProcessStep> {
    let name = format!("build the library of {package} for {}", target.triple());
    Ok(cargo_with_zig(name, target)?
        .args(["zigbuild", "--locked", "--lib", "-p", package, "--target", with_oldest])
        .env("CARGO_TARGET_DIR", into)
        .env("RUSTFLAGS", format!("{flags} {} {}", target.flags(), without_machine_paths())))
}

/// Cargo with zig as the compiler of C and the linker; lacks the command and the target.
pub fn cargo_with_zig(name: impl Into<String>, target: Target) -> StepResult<ProcessStep> {
    target.require_standard_library()?;
    let tools = Venv::with("zigbuild", &interpreters::preferred()?, &[ZIGBUILD.to_owned(), ZIG.to_owned()])?;
    Ok(ProcessStep::new(name, tools.program("cargo-zigbuild")).env("CARGO_ZIGBUILD_PYTHON_PATH", tools.python()))
}

/// Fails when a library requires what its platform may lack: symbol versions newer than the glibc that its package supports, or any in
/// musl; other libraries than those of the system; code that the loader changes.
pub fn audit(package: &str, library: &Path, target: Target, oldest: Glibc) -> StepResult {
    let system = if target.is_musl() { "musl".to_owned() } else { format!("glibc {oldest}") };
    println!("── symbol audit, {}", target.triple());
    let failure = |message: String| StepFailure::new("symbol audit", message);
    let bytes = std::fs::read(library).map_err(|error| failure(error.to_string()))?;
    let required = elf::requirements(&bytes)?;
    let above = match target.is_musl() {
        true => required.versions.iter().collect(),
        false => elf::above_glibc(&required.versions, (oldest.0, oldest.1)),
    };
    let allowed = if target.is_musl() { &MUSL_LIBRARIES[..] } else { &GLIBC_LIBRARIES };
    let versions = above.iter().map(|required| format!("{} of {}", required.version, required.library));
    let others = required.libraries.iter().filter(|name| !allowed.contains(&name.as_str())).cloned();
    let relocations = required.text_relocations.then(|| "text relocations".to_owned());
    let beyond: Vec<String> = versions.chain(others).chain(relocations).collect();
    if !beyond.is_empty() {
        return Err(failure(format!("the {package} supports {system} but requires {}", beyond.join(", "))));
    }
    let versions = required.versions.iter().map(|required| required.version.as_str());
    let list: Vec<&str> = required.libraries.iter().map(String::as_str).chain(versions).collect();
    println!("requires {}: all within {system}", list.join(", "));
    Ok(())
}

/// Prints the packed and the installed size of a package, and fails beyond the budgets of its number of platforms.
pub fn sizes(package: &str, packed: &Path, installed: &[PathBuf], platforms: usize) -> StepResult {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    let (packed, installed) = (length(packed), installed.iter().map(|path| length(path)).sum::<u64>());
    println!("size: {:.2} MB packed, {:.2} MB installed", packed as f64 / 1e6, installed as f64 / 1e6);
    let platforms = platforms as u64;
    within_budget(packed / platforms, installed / platforms)
        .map_err(|message| StepFailure::new(format!("size of the {package}"), message))
}

fn within_budget(packed: u64, installed: u64) -> Result<(), String> {
    if (1..=LARGEST_PACKED).contains(&packed) && (1..=LARGEST_INSTALLED).contains(&installed) {
        return Ok(());
    }
    let budget = format!("{} MB packed, {} MB installed", LARGEST_PACKED / 1_000_000, LARGEST_INSTALLED / 1_000_000);
    Err(format!("empty or above the budget of {budget} per platform"))
}

/// Copies a file and creates its directory. An existing file is unlinked first, not overwritten: a running program may have
/// it mapped.
pub fn copy(from: &Path, to: &Path) -> StepResult {
    let copied = to.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
        let _ = std::fs::remove_file(to);
        std::fs::copy(from, to).map(drop)
    });
    copied.map_err(|error| StepFailure::new("copy", format!("{} to {}: {error}", from.display(), to.display())))
}

/// Every file below a directory.
pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(files_below(&entry.path())),
            _ => files.push(entry.path()),
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_too_large_package_is_refused() {
        assert_eq!(within_budget(LARGEST_PACKED, LARGEST_INSTALLED), Ok(()));
        for (packed, installed) in [(0, 1), (1, 0), (LARGEST_PACKED + 1, 1), (1, LARGEST_INSTALLED + 1)] {
            let message = within_budget(packed, installed).unwrap_err();
            assert!(message.contains("6 MB packed, 11 MB installed"), "{message}");
        }
    }

    #[test]
    fn copies_create_directories_and_replace_files() {
        let directory = std::env::temp_dir().join(format!("artifact-{}", std::process::id()));
        let (from, to) = (directory.join("from"), directory.join("a/b/to"));
        std::fs::create_dir_all(&directory).unwrap();
        for text in ["first", "second"] {
            std::fs::write(&from, text).unwrap();
            copy(&from, &to).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), text);
        }
        let mut files = files_below(&directory);
        files.sort();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(files, [to, from]);
        assert!(copy(&directory.join("nothing"), &directory.join("x")).is_err());
        let _ = std::fs::remove_dir_all(&directory);
    }
}
