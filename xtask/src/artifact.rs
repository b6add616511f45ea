//! What the verbs that make packages share: the native library by zig against an old glibc, the audit of its symbols, the
//! budgets of size. Not here: how a package is packed, and its first run. Called by `addon`, `jar` and `wheel`.

use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::{elf, pythons, workspace};

/// Pinned, so that a build today and a build next month are the same build.
pub const ZIG: &str = "ziglang==0.17.0";
const ZIGBUILD: &str = "cargo-zigbuild==0.24.0";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Budgets of the design, in bytes.
const LARGEST_PACKED: u64 = 4_000_000;
const LARGEST_INSTALLED: u64 = 10_000_000;

/// The oldest glibc that a package promises to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glibc(pub u32, pub u32);

impl std::fmt::Display for Glibc {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.0, self.1)
    }
}

/// A package's release library, linked against the glibc it promises.
pub fn release_library(package: &str, floor: Glibc, variables: &[(&str, &str)]) -> Outcome<PathBuf> {
    let tools = Venv::with("zigbuild", &pythons::preferred()?, &[ZIGBUILD.to_owned(), ZIG.to_owned()])?;
    let target = format!("{TARGET}.{floor}");
    let step = Step::new(format!("build the release library of {package}"), tools.program("cargo-zigbuild"))
        .args(["zigbuild", "--release", "--locked", "-p", package, "--target", &target])
        .env("CARGO_TARGET_DIR", workspace::target())
        .env("CARGO_ZIGBUILD_PYTHON_PATH", tools.python());
    variables.iter().fold(step, |step, (name, value)| step.env(name, value)).run()?;
    let file = format!("release/lib{}.so", package.replace('-', "_"));
    Ok(workspace::target().join(TARGET).join(file))
}

/// A library asks for nothing newer than the glibc that its package promises.
pub fn audit(what: &str, library: &Path, floor: Glibc) -> Outcome {
    println!("── symbol audit");
    let bytes = std::fs::read(library).map_err(|error| Failure::new("symbol audit", error.to_string()))?;
    let needed = elf::needed_versions(&bytes)?;
    let above = elf::above_glibc(&needed, (floor.0, floor.1));
    if !above.is_empty() {
        let list: Vec<_> = above.iter().map(|needed| format!("{} of {}", needed.version, needed.library)).collect();
        let message = format!("the {what} promises glibc {floor} but needs {}", list.join(", "));
        return Err(Failure::new("symbol audit", message));
    }
    let list: Vec<_> = needed.iter().map(|needed| needed.version.as_str()).collect();
    println!("needs {}: all within glibc {floor}", list.join(", "));
    Ok(())
}

/// Says how large a package is, packed and as the files it becomes, and refuses one beyond the budgets.
pub fn sizes(what: &str, packed: &Path, installed: &[PathBuf]) -> Outcome {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    let (packed, installed) = (length(packed), installed.iter().map(|path| length(path)).sum());
    println!("size: {:.2} MB packed, {:.2} MB installed", packed as f64 / 1e6, installed as f64 / 1e6);
    within_budget(packed, installed).map_err(|message| Failure::new(format!("size of the {what}"), message))
}

fn within_budget(packed: u64, installed: u64) -> Result<(), String> {
    if (1..=LARGEST_PACKED).contains(&packed) && (1..=LARGEST_INSTALLED).contains(&installed) {
        return Ok(());
    }
    let budget = format!("{} MB packed, {} MB installed", LARGEST_PACKED / 1_000_000, LARGEST_INSTALLED / 1_000_000);
    Err(format!("empty or above the budget of {budget}"))
}

/// Copies a file into a folder that may not be there yet. What lay there is replaced, not written over: a running program
/// may have it mapped.
pub fn copy(from: &Path, to: &Path) -> Outcome {
    let copied = to.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
        let _ = std::fs::remove_file(to);
        std::fs::copy(from, to).map(drop)
    });
    copied.map_err(|error| Failure::new("copy", format!("{} to {}: {error}", from.display(), to.display())))
}

/// Every file in a folder and the folders inside it.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
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
    fn a_package_that_is_empty_or_too_large_is_refused() {
        assert_eq!(within_budget(LARGEST_PACKED, LARGEST_INSTALLED), Ok(()));
        for (packed, installed) in [(0, 1), (1, 0), (LARGEST_PACKED + 1, 1), (1, LARGEST_INSTALLED + 1)] {
            let message = within_budget(packed, installed).unwrap_err();
            assert!(message.contains("4 MB packed, 10 MB installed"), "{message}");
        }
    }

    #[test]
    fn copies_arrive_in_new_folders_replace_what_was_there_and_are_found_again() {
        let folder = std::env::temp_dir().join(format!("artefact-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("a/b/to"));
        std::fs::create_dir_all(&folder).unwrap();
        for text in ["first", "second"] {
            std::fs::write(&from, text).unwrap();
            copy(&from, &to).unwrap();
            assert_eq!(std::fs::read_to_string(&to).unwrap(), text);
        }
        let mut found = files_below(&folder);
        found.sort();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [to, from]);
        assert!(copy(&folder.join("nothing"), &folder.join("x")).is_err());
        let _ = std::fs::remove_dir_all(&folder);
    }
}
