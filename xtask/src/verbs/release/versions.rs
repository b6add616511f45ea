//! Step `versions`: every version outside the workspace's manifest equals it, and the changelog has an entry.
//! Python's package and the crates derive their version from the workspace's; the others are compared here.

use serde_json::Value;

use super::OpenPoints;
use crate::step::{all_passed, StepFailure, StepResult};
use crate::workspace::{self, VERSION};
use crate::{git, scratch};

/// What stands before a version of spanprof in documents, examples and manifests.
const BEFORE: [&str; 6] = [
    "spanprof-",
    "\"spanprof\": \"^",
    "<spanprof.version>",
    "spanprof==",
    "spanprof@",
    "-DartifactId=spanprof -Dversion=",
];
/// History, which keeps its versions.
const HISTORY: [&str; 3] = ["CHANGELOG.md", "docs/decisions/", "xtask/"];

/// A version in a file.
#[derive(Debug, PartialEq, Eq)]
struct FoundVersion {
    place: String,
    version: String,
}

pub fn check(open: &mut OpenPoints) -> StepResult {
    let root = workspace::root();
    let mut places = manifests()?;
    for path in git::files()? {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        places.extend(mentioned(&path, &text));
    }
    let wrong: Vec<String> = differences(&places, VERSION);
    for difference in &wrong {
        println!("{difference}");
    }
    all_passed("versions", &wrong)?;
    println!("{} places have the version {VERSION} of Cargo.toml", places.len());
    let changelog = scratch::read(&root.join("CHANGELOG.md"))?;
    match entry(&changelog, VERSION) {
        ChangelogEntry::Dated => Ok(()),
        ChangelogEntry::Unreleased => {
            open.add(format!("CHANGELOG.md: rename `## Unreleased` to `## {VERSION} (YYYY-MM-DD)`"));
            Ok(())
        }
        ChangelogEntry::Missing => {
            let message =
                format!("expected a section `## {VERSION} (YYYY-MM-DD)` or `## Unreleased` with entries, got none");
            Err(StepFailure::new("CHANGELOG.md", message))
        }
    }
}

fn differences(places: &[FoundVersion], expected: &str) -> Vec<String> {
    let wrong = places.iter().filter(|place| place.version != expected);
    wrong
        .map(|FoundVersion { place, version }| format!("{place}: expected version {expected}, got {version}"))
        .collect()
}

/// The versions of the manifests; one that lacks its version has an empty one.
fn manifests() -> StepResult<Vec<FoundVersion>> {
    let root = workspace::root();
    let mut places = Vec::new();
    let mut add = |place: &str, version: &str| {
        places.push(FoundVersion { place: place.to_owned(), version: version.to_owned() });
    };
    let json = |path: &str| -> StepResult<Value> {
        let text = scratch::read(&root.join(path))?;
        serde_json::from_str(&text).map_err(|error| StepFailure::new(path, error.to_string()))
    };
    let package = json("bindings-node/package.json")?;
    add("bindings-node/package.json", package["version"].as_str().unwrap_or_default());
    let lock = json("bindings-node/package-lock.json")?;
    add("bindings-node/package-lock.json", lock["version"].as_str().unwrap_or_default());
    add("bindings-node/package-lock.json (packages)", lock["packages"][""]["version"].as_str().unwrap_or_default());
    let pom = scratch::read(&root.join("bindings-java/pom.xml"))?;
    add("bindings-java/pom.xml", between(&pom, "<version>", "</version>"));
    let manifest = scratch::read(&root.join("Cargo.toml"))?;
    for line in manifest.lines().filter(|line| line.contains("{ version = \"") && line.contains("path = \"")) {
        let name = line.split(' ').next().unwrap_or_default();
        add(&format!("Cargo.toml ({name})"), between(line, "version = \"", "\""));
    }
    Ok(places)
}

/// The text between the first `begin` and the next `end`; empty if there is none.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).map_or("", |(inner, _)| inner)
}

/// Versions of spanprof in a document, an example or the source of a program.
fn mentioned(path: &str, text: &str) -> Vec<FoundVersion> {
    if HISTORY.iter().any(|history| path.starts_with(history)) {
        return Vec::new();
    }
    let mut places = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for before in BEFORE {
            for (start, _) in line.match_indices(before) {
                let rest = &line[start + before.len()..];
                let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
                let version = rest[..end].trim_end_matches('.');
                if version.split('.').count() == 3 && version.split('.').all(|part| !part.is_empty()) {
                    places.push(FoundVersion { place: format!("{path}:{}", index + 1), version: version.to_owned() });
                }
            }
        }
    }
    places
}

#[derive(Debug, PartialEq, Eq)]
enum ChangelogEntry {
    /// `## 0.1.0 (2026-01-31)`.
    Dated,
    /// `## Unreleased` with entries.
    Unreleased,
    Missing,
}

fn entry(changelog: &str, version: &str) -> ChangelogEntry {
    let mut sections = changelog.split("\n## ").skip(1).map(|section| {
        let (heading, body) = section.split_once('\n').unwrap_or((section, ""));
        (heading.trim(), body.lines().any(|line| line.starts_with("- ")))
    });
    let is_dated = |heading: &str| {
        let date = heading.strip_prefix(version).and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
        date.is_some_and(|date| date.len() == 10 && date.chars().all(|c| c.is_ascii_digit() || c == '-'))
    };
    sections
        .find_map(|section| match section {
            (heading, true) if is_dated(heading) => Some(ChangelogEntry::Dated),
            ("Unreleased", true) => Some(ChangelogEntry::Unreleased),
            _ => None,
        })
        .unwrap_or(ChangelogEntry::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_this_repository_has_the_version_of_the_workspace() {
        check(&mut OpenPoints::default()).unwrap();
    }

    #[test]
    fn a_difference_names_file_expected_and_actual_version() {
        let places = mentioned("README.md", "x\nuse `spanprof-1.2.3.jar` or spanprof-1-2.otlp, spanprof==1.2.4.\n");
        let versions: Vec<_> = places.iter().map(|place| (place.place.as_str(), place.version.as_str())).collect();
        assert_eq!(versions, [("README.md:2", "1.2.3"), ("README.md:2", "1.2.4")]);
        assert_eq!(differences(&places, "1.2.3"), ["README.md:2: expected version 1.2.3, got 1.2.4"]);
        assert_eq!(mentioned("docs/decisions/0001-x.md", "spanprof-1.2.3.jar"), []);
    }

    #[test]
    fn a_changelog_needs_entries_of_the_version() {
        let changelog =
            |heading: &str| format!("# Changelog\n\n## {heading}\n\n### Added\n- x\n\n## 0.0.9 (2025-01-01)\n- y\n");
        assert_eq!(entry(&changelog("0.1.0 (2026-01-31)"), "0.1.0"), ChangelogEntry::Dated);
        assert_eq!(entry(&changelog("Unreleased"), "0.1.0"), ChangelogEntry::Unreleased);
        for heading in ["0.1.0", "0.1.0 (soon)", "0.1.1 (2026-01-31)"] {
            assert_eq!(entry(&changelog(heading), "0.1.0"), ChangelogEntry::Missing, "{heading}");
        }
        assert_eq!(entry("# Changelog\n\n## Unreleased\n", "0.1.0"), ChangelogEntry::Missing);
    }
}
