//! Rules: who may know whom among our crates, and one reason beside each foreign dependency.

use serde_json::Value;

use super::Finding;

/// A crate of ours, and the crates of ours that it may use outside its tests.
const MAY_USE: [(&str, &[&str]); 11] = [
    ("spanprof-signal", &[]),
    ("spanprof-profile", &[]),
    ("spanprof-export", &[]),
    ("spanprof", &["spanprof-signal", "spanprof-profile", "spanprof-export"]),
    ("spanprof-cli", &["spanprof", "spanprof-profile"]),
    ("spanprof-python", &["spanprof", "spanprof-signal", "spanprof-cli"]),
    ("spanprof-java", &["spanprof", "spanprof-signal"]),
    ("spanprof-java-opener", &["spanprof-signal"]),
    ("spanprof-node", &["spanprof", "spanprof-signal"]),
    ("spanprof-live", &["spanprof", "spanprof-profile", "spanprof-export"]),
    ("xtask", &[]),
];

/// Foreign crates that the handler's crate may use at all.
const SIGNAL_MAY_USE: [&str; 1] = ["libc"];

/// Checks what `cargo metadata --no-deps` says of the workspace.
pub fn directions(metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = text(package, "name");
        let Some((_, may_use)) = MAY_USE.iter().find(|(known, _)| *known == name) else {
            findings.push(Finding::new(
                "xtask/src/tidy/dependencies.rs",
                0,
                format!("crate `{name}` has no row in MAY_USE"),
            ));
            continue;
        };
        let path = format!("{name}/Cargo.toml");
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = text(dependency, "name");
            let ours = MAY_USE.iter().any(|(known, _)| *known == used);
            // Models are built only when asked for, never into what ships.
            if text(dependency, "kind") == "dev" || text(dependency, "target") == "cfg(loom)" {
                continue;
            }
            if ours && !may_use.contains(&used) {
                let message = format!("`{name}` must not know `{used}`; it may know: {}", may_use.join(", "));
                findings.push(Finding::new(&path, 0, message));
            }
            if name == "spanprof-signal" && !ours && !SIGNAL_MAY_USE.contains(&used) {
                findings.push(Finding::new(&path, 0, format!("`{used}` would run in a signal handler; only libc may")));
            }
        }
    }
    findings
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Checks that each dependency line of a Cargo.toml is preceded by its reason. A line that points to the workspace
/// (`.workspace = true`) or to a crate of ours has it there.
pub fn reasons(path: &str, manifest: &str) -> Vec<Finding> {
    if path != "Cargo.toml" && !path.ends_with("/Cargo.toml") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut inside = false;
    let mut explained = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            let table = line.trim_matches(['[', ']']);
            inside = table.ends_with("dependencies");
            let single = table.split_once("dependencies.").is_some();
            if single && !explained {
                findings.push(Finding::new(
                    path,
                    at + 1,
                    "a dependency without a comment line that says why it is there",
                ));
            }
        } else if inside
            && is_entry(line)
            && !explained
            && !line.contains("workspace = true")
            && !line.contains("path = ")
        {
            let name = line.split([' ', '=', '.']).next().unwrap_or_default();
            findings.push(Finding::new(
                path,
                at + 1,
                format!("`{name}` has no comment line that says why it is there"),
            ));
        }
        explained = line.starts_with('#') || (line.contains(" # ") && !is_entry(line));
    }
    findings
}

fn is_entry(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_alphabetic()) && line.contains('=') && !line.contains(" # ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace(name: &str, uses: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<_> = uses.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
        json!({"packages": [{"name": name, "dependencies": dependencies}]})
    }

    #[test]
    fn the_three_inner_crates_do_not_know_each_other() {
        assert_eq!(directions(&workspace("spanprof-export", &[("spanprof-profile", None)])).len(), 1);
        assert_eq!(directions(&workspace("spanprof-profile", &[("spanprof-signal", None)])).len(), 1);
    }

    #[test]
    fn nothing_below_knows_a_binding() {
        assert_eq!(directions(&workspace("spanprof", &[("spanprof-python", None)])).len(), 1);
        assert_eq!(directions(&workspace("spanprof-cli", &[("xtask", None)])).len(), 1);
    }

    #[test]
    fn a_test_may_know_more() {
        assert!(directions(&workspace("spanprof-export", &[("spanprof-profile", Some("dev"))])).is_empty());
    }

    #[test]
    fn the_handler_uses_libc_and_nothing_else() {
        assert!(directions(&workspace("spanprof-signal", &[("libc", None)])).is_empty());
        assert_eq!(directions(&workspace("spanprof-signal", &[("log", None)])).len(), 1);
    }

    #[test]
    fn a_new_crate_must_be_placed() {
        assert_eq!(directions(&workspace("spanprof-new", &[])).len(), 1);
    }

    #[test]
    fn each_foreign_dependency_has_its_reason() {
        let manifest = "[dependencies]\nspanprof.workspace = true\n# Wire types.\nprost = \"0.14\"\nbytes = \"1\"\n\n[features]\nx = []\n";
        let findings = reasons("core/Cargo.toml", manifest);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`bytes`") && findings[0].line == 5);
    }

    #[test]
    fn a_reason_may_end_the_line_and_other_files_are_not_read() {
        assert!(reasons("Cargo.toml", "[dev-dependencies]\nloom = \"0.7\" # interleavings\n").is_empty());
        assert!(reasons("other.toml", "[dependencies]\nx = \"1\"\n").is_empty());
    }
}
