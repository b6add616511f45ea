//! The crates that a library of this workspace links, from `cargo tree` and `cargo metadata`. Called by the verbs that build or
//! release packages.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::step::{ProcessStep, StepFailure, StepResult};
use crate::target::Target;

/// A linked crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedCrate {
    pub name: String,
    pub version: String,
    /// SPDX expression.
    pub license: String,
    pub repository: String,
    /// Directory with its sources.
    pub directory: PathBuf,
    /// Indices of the crates that it uses.
    pub uses: Vec<usize>,
}

/// The crates that the libraries of `packages` link for the platform of the packages, including themselves. Build scripts and procedural macros run at
/// build time only.
pub fn crates_of(packages: &[&str]) -> StepResult<Vec<LinkedCrate>> {
    // The same crates on each platform.
    let triple = Target::HOST.triple();
    let name = format!("crates of {}", packages.join(" and "));
    let tree = ProcessStep::cargo(&name)
        .args(["tree", "--quiet", "--locked", "--edges", "normal,no-proc-macro"])
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .args(["--target", &triple, "--prefix", "depth", "--format", "{p}"])
        .capture()?;
    let metadata = ProcessStep::cargo("cargo metadata")
        .args(["metadata", "--quiet", "--locked", "--format-version", "1"])
        .args(["--filter-platform", &triple])
        .capture()?;
    let failure = |message: String| StepFailure::new(&name, message);
    let metadata = serde_json::from_str(&metadata).map_err(|error| failure(error.to_string()))?;
    described(&tree, &metadata).map_err(failure)
}

/// Joins the lines of `cargo tree --prefix depth` with the packages of `cargo metadata`.
fn described(tree: &str, metadata: &Value) -> Result<Vec<LinkedCrate>, String> {
    let mut crates: Vec<LinkedCrate> = Vec::new();
    let mut indices: BTreeMap<(String, String), usize> = BTreeMap::new();
    // Indices of the current line and of the lines above it.
    let mut path: Vec<usize> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (depth, name, version) =
            node(line).ok_or_else(|| format!("expected `<depth><name> v<version>`, got `{line}`"))?;
        let key = (name.to_owned(), version.to_owned());
        let index = match indices.get(&key) {
            Some(index) => *index,
            None => {
                crates.push(package(name, version, metadata)?);
                indices.insert(key, crates.len() - 1);
                crates.len() - 1
            }
        };
        path.truncate(depth);
        if let Some(parent) = path.last() {
            let uses = &mut crates[*parent].uses;
            if !uses.contains(&index) {
                uses.push(index);
            }
        }
        path.push(index);
    }
    Ok(crates)
}

/// Depth, name and version of `2libc v0.2.191 (*)`.
fn node(line: &str) -> Option<(usize, &str, &str)> {
    let name_start = line.find(|c: char| !c.is_ascii_digit())?;
    let mut words = line[name_start..].split(' ');
    Some((line[..name_start].parse().ok()?, words.next()?, words.next()?.strip_prefix('v')?))
}

fn package(name: &str, version: &str, metadata: &Value) -> Result<LinkedCrate, String> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let described = packages.iter().find(|package| package["name"] == name && package["version"] == version);
    let package = described.ok_or_else(|| format!("{name} {version} is not in the output of cargo metadata"))?;
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let manifest = PathBuf::from(text("manifest_path"));
    Ok(LinkedCrate {
        name: name.to_owned(),
        version: version.to_owned(),
        // The separator of old manifests is no SPDX operator.
        license: text("license").replace(" / ", " OR ").replace('/', " OR "),
        repository: text("repository"),
        directory: manifest.parent().map(PathBuf::from).unwrap_or_default(),
        uses: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tree_becomes_crates_with_the_crates_that_they_use() {
        let tree = "0top v0.1.0 (/a/top)\n1libc v0.2.1\n1mid v2.0.0\n2libc v0.2.1\n2leaf v3.0.0\n1leaf v3.0.0 (*)\n";
        let package = |name: &str, version: &str, license: &str| json!({"name": name, "version": version, "license": license, "manifest_path": format!("/x/{name}/Cargo.toml")});
        let metadata = json!({"packages": [
            package("top", "0.1.0", "Apache-2.0"),
            package("libc", "0.2.1", "MIT/Apache-2.0"),
            package("libc", "0.1.0", "MIT"),
            package("mid", "2.0.0", "MIT"),
            package("leaf", "3.0.0", "ISC"),
        ]});
        let crates = described(tree, &metadata).unwrap();
        let names: Vec<_> = crates.iter().map(|linked| linked.name.as_str()).collect();
        assert_eq!(names, ["top", "libc", "mid", "leaf"]);
        let uses: Vec<_> = crates.iter().map(|linked| linked.uses.clone()).collect();
        assert_eq!(uses, [vec![1, 2, 3], vec![], vec![1, 3], vec![]]);
        assert_eq!(crates[1].license, "MIT OR Apache-2.0");
        assert_eq!(crates[2].directory, PathBuf::from("/x/mid"));
    }

    #[test]
    fn a_crate_without_metadata_is_named() {
        let message = described("0top v0.1.0\n", &json!({"packages": []})).unwrap_err();
        assert!(message.contains("top 0.1.0"), "{message}");
    }
}
