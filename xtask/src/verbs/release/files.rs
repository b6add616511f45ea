//! Step `files`: a software bill of materials for each package, and the checksums of everything, beside the packages.

use super::packages::{checksums, dist, names};
use super::sbom;
use crate::linked::crates_of;
use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::venv::Venv;
use crate::workspace::VERSION;
use crate::{interpreters, scratch};

/// Validates documents with the schema of CycloneDX.
const VALIDATOR: &str = "cyclonedx-python-lib[json-validation]==11.12.0";
/// Checksums of every file of a release.
pub const CHECKSUMS: &str = "SHA256SUMS";
/// Language, package URL, and crates of its libraries.
const PACKAGES: [(&str, &str, &[&str]); 3] = [
    ("python", "pkg:pypi/spanprof", &["spanprof-python"]),
    ("node", "pkg:npm/spanprof", &["spanprof-node"]),
    ("java", "pkg:maven/io.spanprof/spanprof", &["spanprof-java", "spanprof-java-opener"]),
];

pub fn write() -> StepResult {
    let dist = dist();
    let mut files = names(&dist);
    if files.is_empty() {
        let message = format!("expected packages in {}, got none", dist.display());
        return Err(StepFailure::new("files", message).with_hint("cargo xtask release --dry-run --step packages"));
    }
    let mut documents = Vec::new();
    for (language, purl, crates) in PACKAGES {
        let document = sbom::document(purl, &crates_of(crates)?);
        let name = format!("spanprof-{VERSION}-{language}.cdx.json");
        let text =
            serde_json::to_string_pretty(&document).map_err(|error| StepFailure::new(&name, error.to_string()))?;
        scratch::write(&dist.join(&name), &text)?;
        documents.push(name);
    }
    let venv = Venv::with("cyclonedx", &interpreters::preferred()?, &[VALIDATOR.to_owned()])?;
    ProcessStep::new("validate the SBOMs", venv.python())
        .arg(crate::workspace::root().join("xtask/release/validate_sbom.py"))
        .args(&documents)
        .in_directory(&dist)
        .run()?;
    files.extend(documents);
    scratch::write(&dist.join(CHECKSUMS), &checksums(&dist, &files)?)?;
    println!("{} files in {}, with {CHECKSUMS}", files.len() + 1, dist.display());
    Ok(())
}
