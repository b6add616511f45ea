//! The software bill of materials of a package: the crates that its library links, in CycloneDX 1.6. Called by the step `files`.
//!
//! `cargo cyclonedx` writes the time, a random serial number and paths of the machine: two builds would differ.

use serde_json::{json, Value};

use crate::linked::LinkedCrate;
use crate::third_party::OTHER;
use crate::workspace::VERSION;

/// `purl` is the package URL without its version. The first of `crates` is the package's own.
pub fn document(purl: &str, crates: &[LinkedCrate]) -> Value {
    let package = format!("{purl}@{VERSION}");
    let used = |linked: &LinkedCrate| linked.uses.iter().map(|index| reference(&crates[*index])).collect::<Vec<_>>();
    let linked: Vec<_> = crates.iter().map(reference).collect();
    let mut components: Vec<_> = crates.iter().map(component).collect();
    components.extend(OTHER.iter().filter_map(|part| {
        let (name, version) = part.purl?.rsplit('/').next()?.split_once('@')?;
        Some(json!({"type": "library", "bom-ref": part.purl, "name": name, "version": version, "purl": part.purl,
            "licenses": [{"expression": part.license}]}))
    }));
    let mut dependencies = vec![json!({"ref": package, "dependsOn": linked})];
    dependencies.extend(crates.iter().map(|linked| json!({"ref": reference(linked), "dependsOn": used(linked)})));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "library", "bom-ref": package, "name": "spanprof", "version": VERSION, "purl": package,
            "licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
        "dependencies": dependencies,
    })
}

fn reference(linked: &LinkedCrate) -> String {
    format!("pkg:cargo/{}@{}", linked.name, linked.version.replace('+', "%2B"))
}

fn component(linked: &LinkedCrate) -> Value {
    json!({"type": "library", "bom-ref": reference(linked), "name": linked.name, "version": linked.version,
        "purl": reference(linked), "licenses": [{"expression": linked.license}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_dependencies_refer_to_each_other_by_package_url() {
        let linked = |name: &str, uses: &[usize]| LinkedCrate {
            name: name.to_owned(),
            version: "1.0.0+a".to_owned(),
            license: "MIT".to_owned(),
            uses: uses.to_vec(),
            ..Default::default()
        };
        let document = document("pkg:pypi/spanprof", &[linked("a", &[1]), linked("b", &[])]);
        assert_eq!(document["metadata"]["component"]["purl"], format!("pkg:pypi/spanprof@{VERSION}"));
        assert_eq!(document["components"][1]["purl"], "pkg:cargo/b@1.0.0%2Ba");
        assert_eq!(document["dependencies"][1]["dependsOn"], json!(["pkg:cargo/b@1.0.0%2Ba"]));
        let names =
            document["components"].as_array().unwrap().iter().map(|component| component["name"].as_str().unwrap());
        assert!(names.into_iter().any(|name| name == "preact"));
    }
}
