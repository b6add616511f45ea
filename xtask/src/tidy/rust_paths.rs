//! Reads the module paths of a Rust file, tests excluded: imports with their names, and paths in code. An approximation for
//! formatted code, not a parser. Called by `rust_imports` and `handler_folders`.

use std::collections::BTreeMap;

use super::source;

/// Segments of a path: `crate::a::B` has three.
pub type Segments = Vec<String>;

/// A path in code, and the inline modules around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPath {
    pub inside: Segments,
    pub segments: Segments,
    /// Line, from 1.
    pub line: usize,
}

/// A module in a file of its own that is declared for tests only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestModule {
    /// The file's name without extension.
    pub name: String,
    /// Whether an attribute `path` names the file: it is then beside the declaring file, not in that module's folder.
    pub has_path: bool,
    /// Line, from 1.
    pub line: usize,
}

/// The paths of one file.
#[derive(Debug, Default)]
pub struct FilePaths {
    pub paths: Vec<PlacedPath>,
    pub test_modules: Vec<TestModule>,
    /// Imported names, by inline module.
    pub imports: BTreeMap<Segments, BTreeMap<String, Segments>>,
}

/// A name, `::`, or one other character of code.
pub struct Token {
    pub text: String,
    /// Line, from 1.
    pub line: usize,
}

/// The paths of a file outside tests.
pub fn read(text: &str) -> FilePaths {
    let tokens = tokens_outside_tests(text);
    let text_at = |position: usize| tokens.get(position).map_or("", |token| token.text.as_str());
    let mut paths = FilePaths { test_modules: test_modules(text), ..FilePaths::default() };
    // Inline modules, each with the depth of braces outside it.
    let mut inside: Vec<(String, usize)> = Vec::new();
    let (mut position, mut depth) = (0, 0);
    while position < tokens.len() {
        let modules = || inside.iter().map(|(name, _)| name.clone()).collect::<Segments>();
        match (text_at(position), text_at(position + 1), text_at(position + 2)) {
            ("mod", name, "{") => {
                inside.push((name.to_owned(), depth));
                depth += 1;
                position += 3;
            }
            ("use", _, _) => {
                let (mut imported, line) = (Vec::new(), tokens[position].line);
                position = read_tree(&tokens, position + 1, &[], &mut imported);
                for (segments, name) in imported {
                    paths.imports.entry(modules()).or_default().insert(name, segments.clone());
                    paths.paths.push(PlacedPath { inside: modules(), segments, line });
                }
            }
            ("{", _, _) => (depth, position) = (depth + 1, position + 1),
            ("}", _, _) => {
                (depth, position) = (depth.saturating_sub(1), position + 1);
                inside.pop_if(|(_, outside)| *outside == depth);
            }
            (_, "::", next)
                if is_name(text_at(position))
                    && is_name(next)
                    && !matches!(position.checked_sub(1).map(text_at), Some("::" | "$")) =>
            {
                let (mut segments, line) = (vec![text_at(position).to_owned()], tokens[position].line);
                while text_at(position + 1) == "::" && is_name(text_at(position + 2)) {
                    segments.push(text_at(position + 2).to_owned());
                    position += 2;
                }
                paths.paths.push(PlacedPath { inside: modules(), segments, line });
                position += 1;
            }
            _ => position += 1,
        }
    }
    paths
}

/// The files that a file declares as modules for tests. Attributes stand on lines of their own, as rustfmt places them.
pub fn test_modules(text: &str) -> Vec<TestModule> {
    let mut modules = Vec::new();
    let mut attributes: Vec<&str> = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let content = content.trim();
        if content.starts_with("#[") {
            attributes.push(content);
            continue;
        }
        let declared = content.rsplit_once("mod ").and_then(|(_, name)| name.strip_suffix(';'));
        if let Some(name) = declared.filter(|_| attributes.iter().any(|attribute| is_for_tests(attribute))) {
            let path = attributes.iter().find_map(|attribute| attribute.strip_prefix("#[path = \""));
            let file = path.and_then(|path| path.strip_suffix(".rs\"]"));
            let (name, has_path) = (file.unwrap_or(name).to_owned(), file.is_some());
            modules.push(TestModule { name, has_path, line: line + 1 });
        }
        attributes.clear();
    }
    modules
}

fn is_for_tests(attribute: &str) -> bool {
    attribute == "#[cfg(test)]" || attribute.starts_with("#[cfg(all(test")
}

/// The tokens of a file without comments, texts and tests.
pub fn tokens_outside_tests(text: &str) -> Vec<Token> {
    let tokens = tokens(text);
    let text_at = |position: usize| tokens.get(position).map_or("", |token| token.text.as_str());
    let mut is_kept = vec![true; tokens.len()];
    let mut position = 0;
    while position < tokens.len() {
        let is_attribute = [text_at(position), text_at(position + 1), text_at(position + 2)] == ["#", "[", "cfg"];
        let after = if is_attribute && is_test(&[text_at(position + 4), text_at(position + 6)]) {
            after_item(&tokens, position)
        } else {
            position + 1
        };
        is_kept[position..after].fill(after == position + 1);
        position = after;
    }
    tokens.into_iter().zip(is_kept).filter_map(|(token, is_kept)| is_kept.then_some(token)).collect()
}

/// Whether `cfg(A` or `cfg(all(B` selects tests only.
fn is_test(conditions: &[&str; 2]) -> bool {
    conditions[0] == "test" || (conditions[0] == "all" && conditions[1] == "test")
}

/// The position after the item with the attribute at `at`.
fn after_item(tokens: &[Token], position: usize) -> usize {
    let mut depth = 0usize;
    for (position, token) in tokens.iter().enumerate().skip(position) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            ";" if depth == 0 => return position + 1,
            // The end of the struct around a field.
            "}" if depth == 0 => return position,
            "}" if depth == 1 => return position + 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Reads the tree of a `use` after `before`; returns the position after it.
fn read_tree(tokens: &[Token], position: usize, before: &[String], out: &mut Vec<(Segments, String)>) -> usize {
    let text_at = |position: usize| tokens.get(position).map_or("", |token| token.text.as_str());
    let (mut segments, mut position) = (before.to_vec(), position);
    loop {
        match text_at(position) {
            "{" => {
                position += 1;
                while !matches!(text_at(position), "}" | "") {
                    position = read_tree(tokens, position, &segments, out);
                    position += usize::from(text_at(position) == ",");
                }
                return position + 1;
            }
            "self" if !segments.is_empty() => position += 1,
            "::" => position += 1,
            "as" => {
                out.push((segments, text_at(position + 1).to_owned()));
                return position + 2;
            }
            name if is_name(name) || name == "*" => {
                segments.push(name.to_owned());
                position += 1;
            }
            _ => {
                let name = segments.last().cloned().unwrap_or_default();
                out.push((segments, name));
                return position;
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (position, line) in source::rust(text).iter().enumerate() {
        let mut rest = line.code.as_str();
        while let Some(first) = rest.chars().next() {
            let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let length = if rest.starts_with("::") { 2 } else { name.max(first.len_utf8()) };
            if !first.is_whitespace() {
                tokens.push(Token { text: rest[..length].to_owned(), line: position + 1 });
            }
            rest = &rest[length..];
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        read(text).paths.iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn nested_imports_are_read_each_with_its_name() {
        let paths = read("use crate::{a::{self, B as C}, d};\n\nuse super::e;");
        let imports = &paths.imports[&Vec::new()];
        let named: Vec<_> = imports.iter().map(|(name, path)| format!("{name}={}", path.join("::"))).collect();
        assert_eq!(named, ["C=crate::a::B", "a=crate::a", "d=crate::d", "e=super::e"]);
        assert_eq!(paths.paths.last().map(|path| path.line), Some(3));
    }

    #[test]
    fn paths_in_code_are_read_and_those_in_comments_and_texts_are_not() {
        assert_eq!(paths("/// [`super::a`]\nfn f() { crate::b::c(\"super::d\"); x.y::<u8>(); }"), ["crate::b::c"]);
    }

    #[test]
    fn tests_are_not_read() {
        let text = "#[cfg(test)]\nuse super::a;\n#[cfg(all(test, not(loom)))]\nmod tests { use super::{b, c}; }\nuse super::d;";
        assert_eq!(paths(text), ["super::d"]);
        assert_eq!(paths("struct A {\n    #[cfg(test)]\n    b: super::b::B,\n}\nuse super::c;"), ["super::c"]);
        assert_eq!(paths("#[cfg(any(test, loom))]\nuse super::a;"), ["super::a"]);
    }

    #[test]
    fn a_module_for_tests_has_the_name_of_its_file() {
        let text = "#[cfg(test)]\nmod model_tests;\n#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\nmod other;";
        let names: Vec<_> = read(text).test_modules.into_iter().map(|test| (test.name, test.has_path)).collect();
        assert_eq!(names, [("model_tests".to_owned(), false), ("a_tests".to_owned(), true)]);
    }

    #[test]
    fn paths_of_an_inline_module_are_relative_to_it() {
        let paths = read("mod inner {\n    use super::A;\n}\nuse super::B;");
        let inside: Vec<_> = paths.paths.iter().map(|path| path.inside.len()).collect();
        assert_eq!(inside, [1, 0]);
    }
}
