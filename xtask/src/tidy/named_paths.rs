//! Rule: what pages for maintainers and headers of files point to exists. On the pages that is each path of the repository; in
//! headers of Rust files each Rust file, each path of modules, and each module after "Not here:" and "Called by"; in files of
//! Python, JavaScript and Java each path of a Rust file.

use std::collections::HashSet;

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

/// Beginnings of a sentence in a header whose names are modules or functions.
const POINTERS: [&str; 3] = ["Not here:", "Called by", "Called only by"];

/// Checks the headers of Rust files, and paths of Rust files in the other languages; `files` are paths and texts of the work tree.
pub fn headers(files: &[(String, String)]) -> Vec<Violation> {
    let names = HeaderNames::read(files);
    let mut violations = Vec::new();
    let is_of_binding = |path: &str| [".py", ".js", ".java"].iter().any(|extension| path.ends_with(extension));
    for (path, text) in files.iter().filter(|(path, _)| is_of_binding(path)) {
        for (index, line) in text.lines().enumerate() {
            let named = line.split('`').filter(|name| name.contains('/') && name.ends_with(".rs"));
            let missing = named.filter(|name| names.lack(name, false));
            violations.extend(missing.map(|name| Violation::new(path, index + 1, format!("`{name}` does not exist"))));
        }
    }
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let mut is_pointer = false;
        for (index, line) in text.lines().map_while(|line| line.strip_prefix("//!")).enumerate() {
            // A list names what the API of another crate has.
            let is_list = line.starts_with(" - ");
            for pair in line.split('`').collect::<Vec<_>>().chunks(2) {
                let sentence = POINTERS.iter().filter_map(|pointer| pair[0].rfind(pointer)).max();
                let rest = &pair[0][sentence.unwrap_or(0)..];
                let ends = rest.contains(". ") || rest.contains(';') || rest.ends_with('.');
                is_pointer = (is_pointer || sentence.is_some()) && !ends && !is_list;
                // Links in brackets are checked by rustdoc.
                let name = pair.get(1).filter(|_| !rest.ends_with('['));
                if let Some(name) = name.filter(|name| names.lack(name, is_pointer)) {
                    violations.push(Violation::new(path, index + 1, format!("`{name}` does not exist")));
                }
            }
        }
    }
    violations
}

/// What a header can name.
struct HeaderNames<'a> {
    files: &'a [(String, String)],
    /// Directories, files without extension, declarations, and crates of others.
    all: HashSet<&'a str>,
    /// A directory or file, and what is in it at any depth.
    inside: HashSet<(&'a str, &'a str)>,
    external: HashSet<String>,
}

impl<'a> HeaderNames<'a> {
    fn read(files: &'a [(String, String)]) -> Self {
        const DECLARE: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "macro_rules"];
        let lock = files.iter().filter(|(path, _)| path == "Cargo.lock").flat_map(|(_, text)| text.lines());
        let locked =
            lock.filter_map(|line| Some(line.strip_prefix("name = \"")?.trim_end_matches('"').replace('-', "_")));
        let standard = ["std", "core", "alloc"].map(str::to_owned);
        let external = locked.filter(|name| !name.starts_with("spanprof_")).chain(standard).collect();
        let mut names = Self { files, all: HashSet::new(), inside: HashSet::new(), external };
        for (path, text) in files {
            let stem = path.rsplit_once('.').map_or(path.as_str(), |(stem, _)| stem);
            let places: Vec<&str> = stem.split('/').filter(|place| *place != "src").collect();
            let is_rust = path.ends_with(".rs");
            let words =
                text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| is_rust && !word.is_empty());
            let words: Vec<&str> = words.collect();
            let declared = words.windows(2).filter(|pair| DECLARE.contains(&pair[0])).map(|pair| pair[1]);
            let declared: Vec<&str> = declared.collect();
            for (index, place) in places.iter().enumerate() {
                names.inside.extend(places[index + 1..].iter().chain(&declared).map(|name| (*place, *name)));
            }
            names.all.extend(places.iter().chain(&declared));
        }
        names
    }

    /// Whether a name between backquotes points to nothing.
    fn lack(&self, name: &str, is_pointer: bool) -> bool {
        if name.ends_with(".rs") && !name.contains('*') {
            let is_named =
                |path: &str| path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
            return !self.files.iter().any(|(path, _)| is_named(path));
        }
        let plain = name.strip_suffix("()").unwrap_or(name);
        let is_module = plain.starts_with(|c: char| c.is_ascii_lowercase())
            && plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let segments = plain.split("::").filter(|segment| !["crate", "super", "self"].contains(segment));
        let segments: Vec<&str> = segments.map(|name| name.strip_prefix("spanprof_").unwrap_or(name)).collect();
        if !is_module || segments.first().is_none_or(|first| self.external.contains(*first)) {
            return false;
        }
        let missing =
            |pair: &[&str]| pair[0].starts_with(char::is_lowercase) && !self.inside.contains(&(pair[0], pair[1]));
        segments.windows(2).any(missing) || is_pointer && segments.len() == 1 && !self.all.contains(segments[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_header_that_leads_nowhere_is_found() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let header = "//! `sys`, `drain::wall`, `std::fs`. Not here: `ring`, `drain`; `free`. Called by\n\
                      //! `gone` and `start()`: `drain::Wall`, `drain::gone`, `drain/wall.rs`, `sys/wall.rs`.\n";
        let files =
            [file("core/a/src/drain/wall.rs", "struct Wall;\nfn start() {}"), file("core/a/src/lib.rs", header)];
        let python = file("a/labels.py", "\"\"\"``src/drain/wall.rs`` and\n``src/drain/gone.rs``.\"\"\"\n");
        let of_python = headers(&[files[0].clone(), file("core/a/src/lib.rs", ""), python]);
        assert_eq!(of_python.iter().map(|violation| violation.line).collect::<Vec<_>>(), [2]);
        let messages: Vec<_> = headers(&files).iter().map(ToString::to_string).collect();
        let expected = [(1, "ring"), (2, "gone"), (2, "drain::gone"), (2, "sys/wall.rs")];
        assert_eq!(messages, expected.map(|(line, name)| format!("core/a/src/lib.rs:{line}: `{name}` does not exist")));
    }

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        let files = ["core/src/a.rs".to_owned(), "docs/b.md".to_owned()];
        let text =
            "`core/src/` and `core/src/a.rs`\n`core/sys/`, `GET /pprof/`, `core/*/a.rs`, `core/NAME.rs`, `other/a.rs`";
        let violations = check(&files, "ARCHITECTURE.md", text);
        assert_eq!(violations.iter().map(|violation| violation.line).collect::<Vec<_>>(), [2]);
        assert!(check(&files, "README.md", text).is_empty());
    }
}
