//! Rules: allowed dependencies among the crates of the workspace, and a reason beside each external dependency.

use serde_json::Value;

use super::Violation;

/// What a binding for another language uses. Recorded stacks are an optional dependency of builds that record.
const OF_BINDINGS: [&str; 7] = [
    "spanprof-signal",
    "spanprof-os",
    "spanprof-unwind",
    "spanprof-aggregate",
    "spanprof-config",
    "spanprof-profiler",
    "spanprof-recorded-stack",
];

/// A crate of the workspace, and the workspace crates that it may use outside its tests.
const MAY_USE: [(&str, &[&str]); 22] = [
    ("spanprof-signal", &[]),
    ("spanprof-profile", &[]),
    ("spanprof-read", &["spanprof-profile"]),
    ("spanprof-view", &["spanprof-profile"]),
    ("spanprof-answers", &["spanprof-profile", "spanprof-read", "spanprof-view"]),
    ("spanprof-serve", &["spanprof-profile", "spanprof-read", "spanprof-view", "spanprof-answers"]),
    ("spanprof-export", &[]),
    ("spanprof-os", &["spanprof-signal"]),
    ("spanprof-unwind", &["spanprof-signal", "spanprof-os"]),
    ("spanprof-aggregate", &["spanprof-signal", "spanprof-profile"]),
    ("spanprof-config", &["spanprof-signal", "spanprof-profile", "spanprof-export"]),
    (
        "spanprof-profiler",
        &[
            "spanprof-signal",
            "spanprof-profile",
            "spanprof-os",
            "spanprof-unwind",
            "spanprof-aggregate",
            "spanprof-config",
            "spanprof-export",
            "spanprof-read",
            "spanprof-view",
        ],
    ),
    // The bindings use the profiler and what it is made of; for Rust also the profiles and secrets that its names show.
    (
        "spanprof",
        &[
            "spanprof-signal",
            "spanprof-profile",
            "spanprof-os",
            "spanprof-unwind",
            "spanprof-aggregate",
            "spanprof-config",
            "spanprof-export",
            "spanprof-profiler",
            "spanprof-view",
        ],
    ),
    (
        "spanprof-python",
        &[
            "spanprof-signal",
            "spanprof-os",
            "spanprof-unwind",
            "spanprof-aggregate",
            "spanprof-config",
            "spanprof-profiler",
            "spanprof-cli",
            "spanprof-recorded-stack",
        ],
    ),
    ("spanprof-java", &OF_BINDINGS),
    ("spanprof-java-opener", &["spanprof-signal"]),
    ("spanprof-node", &OF_BINDINGS),
    // `doctor` reports the profiler's own decision about the clock, and the receivers of its own configuration.
    (
        "spanprof-cli",
        &[
            "spanprof-profile",
            "spanprof-read",
            "spanprof-view",
            "spanprof-answers",
            "spanprof-serve",
            "spanprof-export",
            "spanprof-os",
            "spanprof-config",
        ],
    ),
    ("spanprof-recorded-stack", &["spanprof-signal"]),
    ("spanprof-live", &["spanprof", "spanprof-os", "spanprof-profile", "spanprof-read", "spanprof-export"]),
    ("spanprof-documents", &[]),
    ("xtask", &[]),
];

/// What the agent may use of the workbench: a view that it writes as a file, and the command in Python's wheel.
const OF_WORKBENCH: [(&str, &str); 2] = [("*", "spanprof-view"), ("spanprof-python", "spanprof-cli")];

/// External crates that the crate of the signal handler may use.
const SIGNAL_MAY_USE: [&str; 1] = ["libc"];

/// Checks the output of `cargo metadata --no-deps`.
pub fn directions(metadata: &Value) -> Vec<Violation> {
    let mut violations = Vec::new();
    let packages = || metadata["packages"].as_array().into_iter().flatten();
    let is_inside = |package: &Value, directories: &[&str]| {
        let manifest = text(package, "manifest_path");
        directories.iter().any(|directory| manifest.contains(directory))
    };
    let workbench: Vec<_> = packages().filter(|package| is_inside(package, &["/core/workbench/"])).collect();
    for package in packages() {
        let name = text(package, "name");
        let is_agent = !is_inside(package, &["/core/workbench/", "/xtask/", "/core/fuzz/"]);
        let Some((_, may_use)) = MAY_USE.iter().find(|(member, _)| *member == name) else {
            violations.push(Violation::new(
                "xtask/src/tidy/dependencies.rs",
                0,
                format!("crate `{name}` has no row in MAY_USE"),
            ));
            continue;
        };
        let path = format!("{name}/Cargo.toml");
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = text(dependency, "name");
            let member = MAY_USE.iter().any(|(member, _)| *member == used);
            // Models are built only with `--cfg loom`; no package contains them.
            if text(dependency, "kind") == "dev" || text(dependency, "target") == "cfg(loom)" {
                continue;
            }
            if member && !may_use.contains(&used) {
                let message = format!("`{name}` must not depend on `{used}`; allowed: {}", may_use.join(", "));
                violations.push(Violation::new(&path, 0, message));
            }
            let is_allowed =
                || OF_WORKBENCH.iter().any(|(user, allowed)| ["*", name].contains(user) && *allowed == used);
            if is_agent
                && workbench.iter().any(|package| text(package, "name") == used)
                && dependency["optional"] != true
                && !is_allowed()
            {
                let message = format!("`{name}` of the agent must not depend on `{used}` of the workbench");
                violations.push(Violation::new(&path, 0, message));
            }
            if name == "spanprof-signal" && !member && !SIGNAL_MAY_USE.contains(&used) {
                violations.push(Violation::new(
                    &path,
                    0,
                    format!("`{used}` would run in a signal handler; only libc may"),
                ));
            }
        }
    }
    violations
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Checks that a comment with its reason precedes each dependency of a Cargo.toml. Lines with `.workspace = true` or `path`
/// need none: the reason stands in the workspace's manifest.
pub fn reasons(path: &str, manifest: &str) -> Vec<Violation> {
    if path != "Cargo.toml" && !path.ends_with("/Cargo.toml") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut inside = false;
    let mut explained = false;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            let table = line.trim_matches(['[', ']']);
            inside = table.ends_with("dependencies");
            let single = table.split_once("dependencies.").is_some();
            if single && !explained {
                violations.push(Violation::new(
                    path,
                    index + 1,
                    "a dependency without a comment line that states its reason",
                ));
            }
        } else if inside
            && is_entry(line)
            && !explained
            && !line.contains("workspace = true")
            && !line.contains("path = ")
        {
            let name = line.split([' ', '=', '.']).next().unwrap_or_default();
            violations.push(Violation::new(
                path,
                index + 1,
                format!("`{name}` has no comment line that states its reason"),
            ));
        }
        explained = line.starts_with('#') || (line.contains(" # ") && !is_entry(line));
    }
    violations
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
    fn the_three_inner_crates_do_not_depend_on_each_other() {
        assert_eq!(directions(&workspace("spanprof-export", &[("spanprof-profile", None)])).len(), 1);
        assert_eq!(directions(&workspace("spanprof-profile", &[("spanprof-signal", None)])).len(), 1);
    }

    #[test]
    fn no_crate_below_depends_on_a_binding() {
        assert_eq!(directions(&workspace("spanprof", &[("spanprof-python", None)])).len(), 1);
        assert_eq!(directions(&workspace("spanprof-cli", &[("xtask", None)])).len(), 1);
    }

    #[test]
    fn a_test_may_depend_on_more() {
        assert!(directions(&workspace("spanprof-export", &[("spanprof-profile", Some("dev"))])).is_empty());
    }

    #[test]
    fn the_agent_uses_the_workbench_only_as_an_option() {
        let mut metadata = workspace("spanprof-profiler", &[("spanprof-read", None)]);
        let read = json!({"name": "spanprof-read", "manifest_path": "/s/core/workbench/read/Cargo.toml"});
        metadata["packages"].as_array_mut().unwrap().push(read);
        assert_eq!(directions(&metadata).len(), 1);
        metadata["packages"][0]["dependencies"][0]["optional"] = json!(true);
        assert!(directions(&metadata).is_empty());
    }

    #[test]
    fn the_handler_uses_libc_and_nothing_else() {
        assert!(directions(&workspace("spanprof-signal", &[("libc", None)])).is_empty());
        assert_eq!(directions(&workspace("spanprof-signal", &[("log", None)])).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert_eq!(directions(&workspace("spanprof-new", &[])).len(), 1);
    }

    #[test]
    fn each_external_dependency_has_its_reason() {
        let manifest = "[dependencies]\nspanprof.workspace = true\n# Wire types.\nprost = \"0.14\"\nbytes = \"1\"\n\n[features]\nx = []\n";
        let violations = reasons("core/Cargo.toml", manifest);
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.contains("`bytes`") && violations[0].line == 5);
    }

    #[test]
    fn a_reason_may_end_the_line_and_other_files_are_not_read() {
        assert!(reasons("Cargo.toml", "[dev-dependencies]\nloom = \"0.7\" # interleavings\n").is_empty());
        assert!(reasons("other.toml", "[dependencies]\nx = \"1\"\n").is_empty());
    }
}
