//! The JDKs of this machine, and Maven. Called by the verbs `jar` and `test`.

use std::path::{Path, PathBuf};

use crate::step::{Failure, Outcome, Step};
use crate::workspace;

/// Oldest Java that is supported.
const OLDEST: u32 = 17;
const PLACES: [&str; 2] = ["/usr/lib/jvm", "/opt/java"];
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
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    line.trim_matches('"').split(['.', '-', '+']).next()?.parse().ok()
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
}
