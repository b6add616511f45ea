//! Rule: the first sentence of each crate below `core` says what it does and what it must never know. Where the header gives
//! an order of its folders, each folder imports only those before it, and names the module that defines what it imports.

use super::rust_imports::SourceImports;
use super::Violation;

/// Begins the order of folders in a header. Names follow in backquotes; `·` separates steps. Without `·` each name is a step.
const ORDER: &str = "each of which uses only those before it:";

/// `files` are paths and texts of the work tree.
pub fn check(files: &[(String, String)], sources: &[SourceImports]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in files {
        let Some(directory) = path.strip_suffix("/lib.rs").filter(|place| super::is_core_crate(place)) else {
            continue;
        };
        let header: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
        let first = header.iter().take_while(|line| !line.is_empty()).copied().collect::<String>();
        if !first.contains("; never ") {
            let message =
                "the first sentence of a crate says what it does and what it must never know: `Does A; never knows B.`";
            violations.push(Violation::new(path, 1, message));
        }
        let header = header.join("\n");
        let Some((_, order)) = header.split_once(ORDER) else { continue };
        let steps = steps(order.split("\n\n").next().unwrap_or_default());
        let imports = sources.iter().filter(|source| source.directory == directory).flat_map(|source| &source.imports);
        for import in imports {
            if import.through_root {
                let message = format!("name the module that defines it, `crate::{}`", import.to.replace('/', "::"));
                violations.push(Violation::new(&import.file, import.line, message));
            }
            let (from, to) = (folder(&import.from), folder(&import.to));
            let (Some(own), Some(other)) = (step(&steps, from), step(&steps, to)) else { continue };
            if own < other {
                let message =
                    format!("`{from}` imports `{to}`, which stands after it in the order of folders of {path}");
                violations.push(Violation::new(&import.file, import.line, message));
            }
        }
    }
    violations
}

/// The names of each step.
fn steps(order: &str) -> Vec<Vec<&str>> {
    let names = |text: &'_ str| -> Vec<_> {
        let quoted = text.match_indices('`').map(|(position, _)| position).collect::<Vec<_>>();
        quoted.chunks_exact(2).map(|ends| (ends[0] + 1, ends[1])).collect()
    };
    let slices = |text| names(text).into_iter().map(|(from, to)| &text[from..to]).collect::<Vec<&str>>();
    if order.contains('·') {
        order.split('·').map(slices).collect()
    } else {
        slices(order).into_iter().map(|name| vec![name]).collect()
    }
}

fn step(steps: &[Vec<&str>], folder: &str) -> Option<usize> {
    steps.iter().position(|names| names.contains(&folder))
}

fn folder(module: &str) -> &str {
    module.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rust_imports::Import;

    fn messages(header: &str, imports: &[(&str, &str)]) -> Vec<String> {
        let import = |&(from, to): &(&str, &str)| Import {
            from: from.to_owned(),
            to: to.to_owned(),
            file: format!("core/agent/a/src/{from}.rs"),
            line: 1,
            through_root: false,
        };
        let source =
            SourceImports { directory: "core/agent/a/src".to_owned(), imports: imports.iter().map(import).collect() };
        let files = [("core/agent/a/src/lib.rs".to_owned(), header.to_owned())];
        check(&files, &[source]).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn a_crate_says_what_it_must_never_know() {
        assert!(messages("//! Does a;\n//! never knows b.\n", &[]).is_empty());
        assert_eq!(messages("//! Does a.\n//!\n//! It; never knows b.\n", &[]).len(), 1);
    }

    #[test]
    fn a_folder_imports_only_those_before_it() {
        let header = "//! Does a; never knows b.\n//!\n//! The folders, each of which uses only those before it: `wall`\n//! (samples), `http` · `drain`.\n//!\n//! `later`\n";
        assert!(messages(header, &[("drain/a", "wall/b"), ("wall/a", "http"), ("later", "drain")]).is_empty());
        let violations = messages(header, &[("wall/a", "drain/b")]);
        assert!(violations[0].starts_with("`wall` imports `drain`"), "{violations:?}");
        let commas =
            "//! Does a; never knows b. Folders, each of which uses only those before it: `x`, `y` (at `z`).\n";
        assert_eq!(messages(commas, &[("x", "y"), ("y", "x")]).len(), 1);
    }
}
