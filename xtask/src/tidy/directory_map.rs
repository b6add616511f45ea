//! Rule: each directory with sources has a line in ARCHITECTURE.md's code map, and each directory of the map exists.

use std::collections::BTreeSet;

use super::{has_extension, Violation};

const SOURCES: [&str; 9] = ["rs", "py", "ts", "js", "mjs", "java", "go", "html", "css"];

pub fn check(files: &[String], map: &str) -> Vec<Violation> {
    let named: BTreeSet<&str> = map
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- `")?.split_once('`'))
        .map(|(path, _)| path.trim_end_matches('/'))
        .collect();
    let directories: BTreeSet<&str> = files
        .iter()
        .filter(|path| has_extension(path, &SOURCES))
        .filter_map(|path| path.rsplit_once('/').map(|(directory, _)| directory))
        .collect();
    let missing = directories
        .iter()
        .filter(|directory| !named.contains(*directory))
        .map(|directory| Violation::new("ARCHITECTURE.md", 0, format!("the code map has no line for `{directory}/`")));
    let removed =
        named.iter().filter(|name| name.contains('/') && !files.iter().any(|file| lies_in(file, name))).map(|name| {
            Violation::new("ARCHITECTURE.md", 0, format!("the code map names `{name}/`, which does not exist"))
        });
    missing.chain(removed).collect()
}

fn lies_in(file: &str, directory: &str) -> bool {
    file.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|&path| path.to_owned()).collect()
    }

    #[test]
    fn a_directory_without_a_line_is_found() {
        let violations =
            check(&files(&["core/src/a.rs", "core/src/sys/b.rs"]), "## Code map\n- `core/src/`: the engine\n");
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.contains("`core/src/sys/`"));
    }

    #[test]
    fn a_line_without_a_directory_is_found() {
        let violations = check(&files(&["core/src/a.rs"]), "- `core/src/`: x\n- `core/old/`: y\n");
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.contains("`core/old/`"));
    }

    #[test]
    fn directories_without_sources_need_no_line() {
        assert!(check(&files(&["docs/a.md", "README.md"]), "").is_empty());
    }
}
