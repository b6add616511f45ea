//! The CPython interpreters of this machine, found on PATH and, where pyenv is on PATH, among its versions. Only the
//! versions that spanprof supports. Called by `test`, `wheel`, `live`, `bench`, `demo`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{ProcessStep, StepFailure, StepResult};

/// Oldest minor version of CPython 3 with a wheel.
const OLDEST_MINOR: u32 = 9;
/// Newest minor version with a supported frame layout.
const NEWEST_MINOR: u32 = 15;

/// An interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Python {
    /// Path of the binary.
    pub program: PathBuf,
    /// Minor and patch version of CPython 3.
    pub version: (u32, u32),
    /// The root directory that it runs in, unless it is installed on this machine.
    pub root: Option<PathBuf>,
}

impl Python {
    /// `3.11`
    pub fn minor(&self) -> String {
        format!("3.{}", self.version.0)
    }

    /// `3.11.7`
    pub fn full(&self) -> String {
        format!("3.{}.{}", self.version.0, self.version.1)
    }

    /// The interpreter of a root directory; an error if it does not run.
    pub fn in_root(root: &Path, program: &str) -> StepResult<Self> {
        let name = format!("run {program} in {}", root.display());
        let output = ProcessStep::in_root(&name, Some(root), program).args(["-c", QUERY]).capture()?;
        let found = parse(&output).ok_or_else(|| StepFailure::new(name, format!("unsupported: {}", output.trim())))?;
        Ok(Self { root: Some(root.to_owned()), ..found })
    }
}

/// Every supported interpreter, one per minor version, oldest first.
pub fn all() -> StepResult<Vec<Python>> {
    let installed = newest_patches(candidates().iter().filter_map(|program| query(program)));
    if installed.is_empty() {
        return Err(StepFailure::new(
            "find Python",
            format!("no CPython 3.{OLDEST_MINOR} to 3.{NEWEST_MINOR} on PATH or among pyenv's versions"),
        )
        .with_hint("install one, e.g. `apt-get install python3 python3-venv` or `pyenv install 3.11`"));
    }
    Ok(installed)
}

/// The oldest and the newest of [`all`]; one when there is one.
pub fn oldest_and_newest() -> StepResult<Vec<Python>> {
    let mut installed = all()?;
    if installed.len() > 2 {
        installed.drain(1..installed.len() - 1);
    }
    Ok(installed)
}

/// The interpreter for single runs: CPython 3.11 where present, else the newest.
pub fn preferred() -> StepResult<Python> {
    let installed = all()?;
    let chosen = installed.iter().find(|python| python.version.0 == 11).or(installed.last());
    chosen.cloned().ok_or_else(|| StepFailure::new("find Python", "none"))
}

/// The interpreters of these versions, as `3.9`, or all if there are none.
pub fn chosen(versions: &[String]) -> StepResult<Vec<Python>> {
    let (installed, missing) = chosen_or_missing(versions)?;
    match missing.first() {
        None => Ok(installed),
        Some(minor) => {
            let present: Vec<_> = all()?.iter().map(Python::minor).collect();
            Err(StepFailure::new(
                "find Python",
                format!("CPython {minor} is not installed; installed: {}", present.join(", ")),
            ))
        }
    }
}

/// As [`chosen`], with the versions that are not installed.
pub fn chosen_or_missing(versions: &[String]) -> StepResult<(Vec<Python>, Vec<String>)> {
    let mut installed = all()?;
    installed.retain(|python| versions.is_empty() || versions.contains(&python.minor()));
    let missing = versions.iter().filter(|minor| installed.iter().all(|python| python.minor() != **minor));
    let missing = missing.cloned().collect();
    Ok((installed, missing))
}

fn candidates() -> Vec<PathBuf> {
    let mut programs = Vec::new();
    if let Ok(output) = Command::new("pyenv").arg("root").output() {
        let root = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let versions = std::fs::read_dir(Path::new(&root).join("versions"));
        programs.extend(versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python")));
    }
    for directory in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        programs.push(directory.join("python3"));
        programs.extend((OLDEST_MINOR..=NEWEST_MINOR).map(|minor| directory.join(format!("python3.{minor}"))));
    }
    programs.retain(|program| program.is_file());
    programs
}

/// Prints the words that [`parse`] reads.
const QUERY: &str = "import sys, sysconfig; print(sys.implementation.name, sys.version_info[0], sys.version_info[1], \
                     sys.version_info[2], sysconfig.get_config_var('Py_GIL_DISABLED') or 0, sys.executable)";

fn query(program: &Path) -> Option<Python> {
    let output = Command::new(program).args(["-c", QUERY]).output().ok().filter(|output| output.status.success())?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

fn parse(output: &str) -> Option<Python> {
    let words: Vec<&str> = output.trim().splitn(6, ' ').collect();
    let &[name, major, minor, patch, free_threaded, executable] = words.as_slice() else { return None };
    let version = (minor.parse().ok()?, patch.parse().ok()?);
    let supported = (OLDEST_MINOR..=NEWEST_MINOR).contains(&version.0);
    (name == "cpython" && major == "3" && supported && free_threaded == "0").then(|| Python {
        program: PathBuf::from(executable),
        version,
        root: None,
    })
}

fn newest_patches(installed: impl Iterator<Item = Python>) -> Vec<Python> {
    let mut by_minor: BTreeMap<u32, Python> = BTreeMap::new();
    for python in installed {
        let place = by_minor.entry(python.version.0).or_insert_with(|| python.clone());
        if python.version > place.version {
            *place = python;
        }
    }
    by_minor.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(minor: u32, patch: u32) -> Python {
        Python { program: PathBuf::from(format!("p{minor}.{patch}")), version: (minor, patch), root: None }
    }

    #[test]
    fn the_readme_names_the_oldest_and_the_newest_version() {
        let readme = crate::scratch::read(&crate::workspace::root().join("docs/start/README.md")).unwrap();
        assert!(readme.contains(&format!("| Python 3.{OLDEST_MINOR}–3.{NEWEST_MINOR} |")));
    }

    #[test]
    fn the_newest_patch_of_each_minor_version_is_kept() {
        let kept = newest_patches([python(12, 1), python(9, 18), python(12, 4), python(12, 2)].into_iter());
        assert_eq!(kept, [python(9, 18), python(12, 4)]);
    }

    #[test]
    fn other_implementations_and_versions_are_left_out() {
        assert!(parse("pypy 3 10 1 0 x/python").is_none());
        assert!(parse("cpython 3 8 18 0 x/python").is_none());
        assert!(parse("cpython 3 13 0 1 x/python").is_none(), "a free-threaded build is not supported");
        assert!(parse("garbage").is_none());
    }

    #[test]
    fn a_path_may_contain_spaces() {
        let python = parse("cpython 3 11 7 0 a directory/python\n").unwrap();
        assert_eq!((python.full(), python.program), ("3.11.7".to_owned(), PathBuf::from("a directory/python")));
    }
}
