//! Rules: no name without meaning, no mark of unfinished work, no language named and no binding used in the core, no path of
//! one machine.

use super::{has_extension, source, Violation};

/// Names without meaning. A name is split at underscores and capitals before the comparison.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "manager", "misc", "v2"];
/// Marks of unfinished work, in code and comments.
const UNFINISHED: [&str; 5] = ["TODO", "FIXME", "XXX", "unimplemented!", "todo!"];
/// Names from outside: standard libraries, published crates, terms of a language.
const EXTERNAL: [&str; 21] = [
    "importlib.util",
    "java.util",
    "node:util",
    "io.pyroscope.labels.v2",
    "futures_util",
    "futures-util",
    "hyper_util",
    "hyper-util",
    "http_body_util",
    "http-body-util",
    "tokio_util",
    "ContextManager",
    "context manager",
    "multiprocessing.managers",
    "multiprocessing.util",
    "multiprocessing_util",
    "EventRequestManager",
    "eventRequestManager",
    "virtualMachineManager",
    "extends SecurityManager",
    "qemu-utils",
];
/// Names of languages, which the core must not contain; names of frame types (`cpython`, `v8js`, `jvm`) are allowed.
const LANGUAGES: [&str; 5] = ["Python", "python", "V8", "JVM", "JavaScript"];
/// The command line and its answers name all languages, and folded stacks name the parts of their runtimes.
const MAY_NAME_LANGUAGES: [&str; 3] =
    ["core/workbench/cli/", "core/workbench/answers/", "core/profile/src/code_origin/"];

/// The fuzz target of Node.js's source maps compiles the decoder's file.
const MAY_USE_BINDINGS: [&str; 1] = ["core/fuzz/"];

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = machine_paths(path, text);
    violations.extend(file_name(path));
    violations.extend(binding_in_core(path, text));
    let lines = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs" | "java" | "js" | "mjs" | "ts" | "go") => source::rust(text),
        Some("py" | "toml" | "yaml" | "yml" | "sh") => source::hashed(text),
        _ => return violations,
    };
    let core = super::is_core_crate(path) && !MAY_NAME_LANGUAGES.iter().any(|place| path.starts_with(place));
    for (index, line) in lines.iter().enumerate() {
        for (part, is_code) in [(&line.code, true), (&line.comment, false)] {
            violations.extend(
                empty_name(part)
                    // `k2=v2` in a comment is an example, not a name.
                    .filter(|word| is_code || word != "v2")
                    .map(|word| Violation::new(path, index + 1, format!("`{word}` has no meaning: name the function"))),
            );
            violations.extend(UNFINISHED.into_iter().find(|mark| part.contains(mark)).map(|mark| {
                Violation::new(
                    path,
                    index + 1,
                    format!("`{mark}`: finish the work, or open an issue and remove the mark"),
                )
            }));
        }
        if core && has_extension(path, &["rs"]) {
            let original = text.lines().nth(index).unwrap_or_default();
            violations.extend(LANGUAGES.into_iter().find(|language| has_word(original, language)).map(|language| {
                Violation::new(path, index + 1, format!("`{language}` in the core, which is independent of languages"))
            }));
        }
    }
    violations
}

/// A program of another language below `core`, or the path of a binding.
fn binding_in_core(path: &str, text: &str) -> Option<Violation> {
    let exempt = MAY_USE_BINDINGS.iter().chain(&MAY_NAME_LANGUAGES);
    if !path.starts_with("core/") || exempt.into_iter().any(|place| path.starts_with(place)) {
        return None;
    }
    // Pages of the crates contain JavaScript.
    if has_extension(path, &["py", "java"]) || has_extension(path, &["js", "ts"]) && !super::is_core_crate(path) {
        return Some(Violation::new(path, 0, "a program of one language: it belongs to its binding or to xtask"));
    }
    let bindings = ["bindings-python/", "bindings-node/", "bindings-java/"];
    let line = text.lines().position(|line| bindings.iter().any(|binding| line.contains(binding)))?;
    Some(Violation::new(path, line + 1, "a path of a binding in the core, which is independent of bindings"))
}

fn file_name(path: &str) -> Option<Violation> {
    let names = path.rsplit('/').next().unwrap_or_default().split(['.', '-']);
    names
        .flat_map(segments)
        .find(|name| EMPTY_NAMES.contains(&name.as_str()))
        .map(|name| Violation::new(path, 0, format!("`{name}` in a file's name has no meaning")))
}

fn empty_name(part: &str) -> Option<String> {
    let part = EXTERNAL.iter().fold(part.to_owned(), |part, external| part.replace(external, ""));
    part.split(|c: char| !c.is_alphanumeric() && c != '_')
        .flat_map(segments)
        .find(|segment| EMPTY_NAMES.contains(&segment.as_str()))
}

/// Splits `GuardedRead` and `guarded_read` into the same words.
fn segments(name: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let mut before = '_';
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && before.is_lowercase()) {
            segments.push(String::new());
        }
        if character != '_' {
            segments.last_mut().into_iter().for_each(|segment| segment.extend(character.to_lowercase()));
        }
        before = character;
    }
    segments
}

fn has_word(text: &str, word: &str) -> bool {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(index, _)| !text[..index].ends_with(name) && !text[index + word.len()..].starts_with(name))
}

fn machine_paths(path: &str, text: &str) -> Vec<Violation> {
    // Concatenated, so that this file does not violate its own rule.
    let roots = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let named = roots.into_iter().find(|root| {
            // `…/ro​ot/x` inside a longer path or address is a route, not a path of a machine.
            line.match_indices(root)
                .any(|(start, _)| !line[..start].ends_with(|c: char| c.is_alphanumeric() || "._-}/".contains(c)))
        });
        violations
            .extend(named.map(|root| Violation::new(path, index + 1, format!("`{root}…` is a path of one machine"))));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_names_are_found_in_names_and_comments() {
        assert_eq!(check("a/b.rs", "struct RingHelper;").len(), 1);
        assert_eq!(check("a/b.rs", "fn ring_util() {}").len(), 1);
        assert_eq!(check("a/b.rs", "// the slot manager").len(), 1);
        assert_eq!(check("a/string_utils.rs", "").len(), 1);
    }

    #[test]
    fn external_names_are_allowed() {
        assert!(check("a/b.py", "import importlib.util\n# an async context manager").is_empty());
        assert!(check("a/b.rs", "use hyper_util::rt;").is_empty());
    }

    #[test]
    fn longer_words_are_other_words() {
        assert!(check("a/b.rs", "let utilisation = 1; let v21 = 2; struct Managerial;").is_empty());
    }

    #[test]
    fn unfinished_work_is_found() {
        assert_eq!(check("a/b.rs", concat!("// TO", "DO: later")).len(), 1);
        assert_eq!(check("a/b.rs", concat!("fn f() { to", "do!() }")).len(), 1);
        assert_eq!(check("a/b.py", concat!("# FIX", "ME")).len(), 1);
    }

    #[test]
    fn the_core_names_no_language_but_its_frame_types() {
        assert_eq!(check("core/agent/a.rs", "//! Walks Python frames.").len(), 1);
        assert_eq!(check("core/profile/src/a.rs", "let name = \"JVM\";").len(), 1);
        assert!(check("core/agent/a.rs", "FrameType::Cpython => \"cpython\", // v8js, jvm").is_empty());
        assert!(check("core/workbench/cli/src/a.rs", "/// Python and Node").is_empty());
    }

    #[test]
    fn the_core_uses_no_binding() {
        assert_eq!(check("core/benches/python/cost.py", "import spanprof").len(), 1);
        assert_eq!(check("core/tests/it/a.rs", "include!(\"../../../bindings-node/src/a.rs\");").len(), 1);
        assert!(check("core/fuzz/fuzz_targets/a.rs", "#[path = \"../../bindings-node/src/a.rs\"]").is_empty());
        assert_eq!(check("core/benches/node/cost.js", "").len(), 1);
        assert!(check("core/profile/src/page.js", "").is_empty());
        assert!(check("xtask/bench/python/cost.py", "import spanprof").is_empty());
    }

    #[test]
    fn a_path_of_one_machine_is_found_in_any_file() {
        assert_eq!(check("README.md", concat!("see /ro", "ot/x")).len(), 1);
        assert!(check("README.md", concat!("GET https://host/api/wo", "rk/x")).is_empty());
    }
}
