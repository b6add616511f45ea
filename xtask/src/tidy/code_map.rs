//! Rule: every room, a folder with sources, has its line in ARCHITECTURE.md's code map, and the map names no room that
//! is gone.

use std::collections::BTreeSet;

use super::{has_extension, Finding};

const SOURCES: [&str; 9] = ["rs", "py", "ts", "js", "mjs", "java", "go", "html", "css"];

pub fn check(files: &[String], map: &str) -> Vec<Finding> {
    let named: BTreeSet<&str> = map
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- `")?.split_once('`'))
        .map(|(path, _)| path.trim_end_matches('/'))
        .collect();
    let rooms: BTreeSet<&str> = files
        .iter()
        .filter(|path| has_extension(path, &SOURCES))
        .filter_map(|path| path.rsplit_once('/').map(|(folder, _)| folder))
        .collect();
    let missing = rooms
        .iter()
        .filter(|room| !named.contains(*room))
        .map(|room| Finding::new("ARCHITECTURE.md", 0, format!("the code map has no line for `{room}/`")));
    let gone = named
        .iter()
        .filter(|name| name.contains('/') && !files.iter().any(|file| lies_in(file, name)))
        .map(|name| Finding::new("ARCHITECTURE.md", 0, format!("the code map names `{name}/`, which is not there")));
    missing.chain(gone).collect()
}

fn lies_in(file: &str, room: &str) -> bool {
    file.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|&path| path.to_owned()).collect()
    }

    #[test]
    fn a_room_without_a_line_is_found() {
        let findings =
            check(&files(&["core/src/a.rs", "core/src/sys/b.rs"]), "## Code map\n- `core/src/`: the engine\n");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`core/src/sys/`"));
    }

    #[test]
    fn a_line_without_a_room_is_found() {
        let findings = check(&files(&["core/src/a.rs"]), "- `core/src/`: x\n- `core/old/`: y\n");
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("`core/old/`"));
    }

    #[test]
    fn folders_without_sources_need_no_line() {
        assert!(check(&files(&["docs/a.md", "README.md"]), "").is_empty());
    }
}
