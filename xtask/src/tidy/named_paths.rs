//! Rule: each path of the repository that a page for maintainers names exists.

use super::Violation;

/// The pages.
const PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/reference/glossary.md"];

/// `files` are the paths of the work tree.
pub fn check(files: &[String], page: &str, text: &str) -> Vec<Violation> {
    if !PAGES.contains(&page) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let named = lines.flat_map(|(line, text)| text.split('`').skip(1).step_by(2).map(move |name| (line + 1, name)));
    let missing = named.filter(|(_, name)| is_path(name, files) && !exists(name.trim_end_matches('/'), files));
    missing.map(|(line, name)| Violation::new(page, line, format!("`{name}` does not exist"))).collect()
}

/// Whether a name is a path from the root: its first segment is a directory there. Patterns and placeholders are not checked.
fn is_path(name: &str, files: &[String]) -> bool {
    let is_plain = !name.contains(|c: char| c.is_uppercase() && !c.is_ascii_alphabetic() || "*{}<>… ".contains(c));
    let first = name.split_once('/').map(|(first, _)| format!("{first}/"));
    is_plain && !name.contains("NAME") && first.is_some_and(|first| files.iter().any(|file| file.starts_with(&first)))
}

fn exists(name: &str, files: &[String]) -> bool {
    files.iter().any(|file| file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        let files = ["core/src/a.rs".to_owned(), "docs/b.md".to_owned()];
        let text =
            "`core/src/` and `core/src/a.rs`\n`core/sys/`, `GET /pprof/`, `core/*/a.rs`, `core/NAME.rs`, `other/a.rs`";
        let found = check(&files, "ARCHITECTURE.md", text);
        assert_eq!(found.iter().map(|violation| violation.line).collect::<Vec<_>>(), [2]);
        assert!(check(&files, "README.md", text).is_empty());
    }
}
