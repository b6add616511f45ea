//! THIRD-PARTY.txt of a package: the crates that its library links, their licenses, and the texts that these licenses require.
//! `deny.toml` has the licenses that may ship. Called by the modules `package` of the languages and by `cargo xtask release`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use crate::linked::{crates_of, LinkedCrate};
use crate::step::{StepFailure, StepResult};
use crate::{scratch, workspace};

/// Name of the file in each package.
pub const FILE: &str = "THIRD-PARTY.txt";
/// Beginnings of the names of files with a license, in lower case.
const LICENSE_FILES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
/// A part that is linked or embedded, but not a crate of the dependency tree.
pub struct EmbeddedPart {
    name: &'static str,
    /// SPDX expression.
    pub license: &'static str,
    copyright: &'static str,
    /// Package URL with its version; none where the compiler brings it.
    pub purl: Option<&'static str>,
}

pub const OTHER: [EmbeddedPart; 2] = [
    EmbeddedPart {
        name: "the Rust standard library",
        license: "MIT OR Apache-2.0",
        copyright: "The Rust Project contributors",
        purl: None,
    },
    EmbeddedPart {
        name: "Preact, in the pages with flame graphs",
        license: "MIT",
        copyright: "(c) 2015-present Jason Miller",
        purl: Some("pkg:npm/preact@10.29.8"),
    },
];
const MIT: &str = include_str!("../release/MIT.txt");

/// Writes the file for the libraries of `packages`.
pub fn write(packages: &[&str], to: &Path) -> StepResult {
    let text = text(&crates_of(packages)?, &license_files).map_err(|message| StepFailure::new(FILE, message))?;
    scratch::write(to, &text)
}

/// The texts of the license files of a crate: name and content.
fn license_files(linked: &LinkedCrate) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(&linked.directory).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().to_lowercase();
            let is_license = LICENSE_FILES.iter().any(|beginning| name.starts_with(beginning));
            let text = is_license.then(|| std::fs::read(entry.path()).ok()).flatten()?;
            Some((name, String::from_utf8_lossy(&text).into_owned()))
        })
        .collect();
    files.sort();
    files
}

/// `files` returns the license files of a crate.
fn text(crates: &[LinkedCrate], files: &dyn Fn(&LinkedCrate) -> Vec<(String, String)>) -> Result<String, String> {
    let mut list = String::new();
    // Crates by text, since many crates have one text.
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut sorted: Vec<_> = crates.iter().filter(|linked| !is_own(linked)).collect();
    sorted.sort_by_key(|linked| (&linked.name, &linked.version));
    for linked in sorted {
        let name = format!("{} {}", linked.name, linked.version);
        let _ = writeln!(list, "{name}: {}", linked.license);
        let required = required_texts(&linked.license, files(linked));
        if required.is_empty() && !offers_apache(&linked.license) {
            let copyright = format!("The authors of {} ({})", linked.name, linked.repository);
            let text = substitute(&linked.license, &copyright).ok_or_else(|| {
                format!("{name} ({}) has no license file in {}", linked.license, linked.directory.display())
            })?;
            texts.entry(text).or_default().push(name.clone());
        }
        for text in required {
            texts.entry(unix_lines(&text)).or_default().push(name.clone());
        }
    }
    for EmbeddedPart { name, license, copyright, .. } in OTHER {
        let _ = writeln!(list, "{name}: {license}");
        if !offers_apache(license) {
            texts.entry(substitute(license, copyright).unwrap_or_default()).or_default().push(name.to_owned());
        }
    }
    let mut texts: Vec<_> = texts.into_iter().map(|(text, names)| (names.join(", "), text)).collect();
    texts.sort();
    let mut out = format!(
        "spanprof is licensed under the Apache License 2.0 (see LICENSE). Its native library contains the following\n\
         software. Where a license is a choice that includes Apache-2.0, Apache-2.0 is chosen; its text is that of LICENSE.\n\n{list}"
    );
    for (names, text) in texts {
        let _ = write!(out, "\n{}\n{names}\n\n{}\n", "-".repeat(80), text.trim_end());
    }
    Ok(out)
}

fn is_own(linked: &LinkedCrate) -> bool {
    linked.directory.starts_with(workspace::root())
}

/// Whether Apache-2.0 alone satisfies the license.
fn offers_apache(license: &str) -> bool {
    license.split(" OR ").any(|choice| choice == "Apache-2.0")
}

/// Texts that a package has to contain: notices, and where Apache-2.0 is no choice, every license file.
fn required_texts(license: &str, files: Vec<(String, String)>) -> Vec<String> {
    let only_notices = offers_apache(license);
    files.into_iter().filter(|(name, _)| !only_notices || name.starts_with("notice")).map(|(_, text)| text).collect()
}

/// The text of a license for a crate that has no file with it.
fn substitute(license: &str, copyright: &str) -> Option<String> {
    (license == "MIT").then(|| format!("Copyright {copyright}\n\n{MIT}"))
}

fn unix_lines(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(name: &str, license: &str) -> LinkedCrate {
        LinkedCrate {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: license.to_owned(),
            ..Default::default()
        }
    }

    #[test]
    fn texts_are_those_that_the_licenses_require_and_equal_ones_occur_once() {
        let crates = [
            linked("a", "MIT"),
            linked("b", "MIT"),
            linked("c", "MIT OR Apache-2.0"),
            linked("d", "Apache-2.0 AND ISC"),
        ];
        let files = |linked: &LinkedCrate| {
            let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
            match linked.name.as_str() {
                "a" => vec![file("license", "Permission of a and b\n")],
                "b" => vec![file("license", "Permission of a and b\r\n")],
                "c" => vec![file("license-mit", "Permission of c"), file("notice.txt", "Notice of c")],
                _ => vec![file("license", "Apache of d"), file("license-isc", "ISC of d")],
            }
        };
        let text = text(&crates, &files).unwrap();
        assert!(text.contains("\na 1.0.0, b 1.0.0\n\nPermission of a and b\n"), "{text}");
        assert_eq!(text.matches("Permission of a").count(), 1);
        assert!(text.contains("Notice of c") && !text.contains("Permission of c"), "{text}");
        assert!(text.contains("Apache of d") && text.contains("ISC of d"), "{text}");
        assert!(text.contains("c 1.0.0: MIT OR Apache-2.0\n"));
    }

    #[test]
    fn the_version_of_preact_is_that_of_the_page() {
        let page = scratch::read(&workspace::root().join("core/workbench/view/src/page/mod.rs")).unwrap();
        let version = OTHER.iter().find_map(|part| part.purl?.strip_prefix("pkg:npm/preact@")).unwrap();
        assert!(page.contains(&format!("Preact {version} (MIT)")), "expected Preact {version} in the header of PREACT");
    }

    #[test]
    fn the_crates_of_every_package_have_their_texts() {
        let directory = scratch::empty("third-party").unwrap();
        for packages in [&["spanprof-python"][..], &["spanprof-node"], &["spanprof-java", "spanprof-java-opener"]] {
            let file = directory.join(packages[0]);
            write(packages, &file).unwrap();
            let text = scratch::read(&file).unwrap();
            assert!(
                text.contains("\nring ") && text.contains("Jason Miller") && !text.contains("spanprof-signal"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_crate_without_a_text_is_reported_unless_its_license_has_one_form() {
        let none = |_: &LinkedCrate| Vec::new();
        assert!(text(&[linked("a", "MIT")], &none).unwrap().contains("The authors of a"));
        assert!(text(&[linked("a", "Apache-2.0")], &none).is_ok());
        let message = text(&[linked("a", "BSD-3-Clause")], &none).unwrap_err();
        assert!(message.contains("a 1.0.0 (BSD-3-Clause) has no license file"), "{message}");
    }
}
