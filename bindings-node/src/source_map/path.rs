//! Paths of sources: a name in a map, resolved against the map's location. Pure.

use percent_encoding::percent_decode_str;

/// The path of a `file:` URL or of an absolute path; `None` for other URLs and names.
pub fn path_of(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("file://") {
        let path = rest.split(['?', '#']).next().unwrap_or("");
        let path = path.strip_prefix("localhost").unwrap_or(path);
        return path.starts_with('/').then(|| decoded(path));
    }
    name.starts_with('/').then(|| name.to_owned())
}

fn decoded(path: &str) -> String {
    percent_decode_str(path).decode_utf8().map_or_else(|_| path.to_owned(), |path| path.into_owned())
}

/// Whether a name has a URL scheme, as in `webpack://`. A drive letter is not one.
fn has_scheme(name: &str) -> bool {
    let Some((scheme, _)) = name.split_once(':') else { return false };
    scheme.len() > 1
        && scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
}

/// Resolves `name` against `base`: an absolute path, a URL, or `name` itself when `base` is not a path.
pub fn resolve(base: &str, name: &str) -> String {
    if has_scheme(name) {
        return path_of(name).unwrap_or_else(|| name.to_owned());
    }
    if name.starts_with('/') {
        return normal(name);
    }
    match path_of(base) {
        Some(base) => {
            let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
            normal(&format!("{folder}/{name}"))
        }
        None => name.to_owned(),
    }
}

/// A source as named by its map, with the map's `sourceRoot`.
pub fn source(base: &str, root: &str, name: &str) -> String {
    if root.is_empty() || has_scheme(name) || name.starts_with('/') {
        return resolve(base, name);
    }
    let slash = if root.ends_with('/') { "" } else { "/" };
    resolve(base, &format!("{root}{slash}{name}"))
}

/// An absolute path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_resolved_against_its_map() {
        assert_eq!(source("/srv/dist/a.js.map", "", "../src/a.ts"), "/srv/src/a.ts");
        assert_eq!(source("/srv/dist/a.js.map", "..", "src/./a.ts"), "/srv/src/a.ts");
        assert_eq!(source("/srv/dist/a.js.map", "/other/", "a.ts"), "/other/a.ts");
        assert_eq!(source("/srv/dist/a.js.map", "x", "/src/a.ts"), "/src/a.ts");
        assert_eq!(source("file:///srv/my%20app/a.mjs", "", "a.ts"), "/srv/my app/a.ts");
        assert_eq!(source("/a.map", "", "../../../b.ts"), "/b.ts");
    }

    #[test]
    fn a_source_with_a_scheme_other_than_file_is_unchanged() {
        assert_eq!(source("/srv/a.map", "", "webpack://app/./src/a.ts"), "webpack://app/./src/a.ts");
        assert_eq!(source("/srv/a.map", "webpack:///", "src/a.ts"), "webpack:///src/a.ts");
        assert_eq!(source("/srv/a.map", "", "file:///x/a%23b.ts"), "/x/a#b.ts");
    }

    #[test]
    fn without_a_base_path_a_source_keeps_its_name() {
        assert_eq!(source("evalmachine.<anonymous>", "", "a.ts"), "a.ts");
        assert_eq!(path_of("node:internal/timers"), None);
        assert_eq!(path_of("file:///srv/a.mjs?v=1"), Some("/srv/a.mjs".to_owned()));
    }
}
