//! Rule: a type name has one meaning in the workspace. Structs, enums, unions and traits outside tests count; protobuf
//! messages (`wire/`) keep the names of their specification.

use std::collections::BTreeMap;

use super::{source, Violation};

const KEYWORDS: [&str; 4] = ["struct ", "enum ", "union ", "trait "];

/// The type names of the work tree: path and line of each declaration.
pub type TypeNames = BTreeMap<String, Vec<(String, usize)>>;

/// Adds the types that a file declares to `names`.
pub fn collect(path: &str, text: &str, names: &mut TypeNames) {
    if !path.ends_with(".rs") || is_exempt(path) {
        return;
    }
    let lines = source::rust(text);
    for (index, line) in lines.iter().enumerate() {
        let code = line.code.trim();
        if code.starts_with("#[cfg(test)]")
            && lines[index + 1..].iter().find(|next| !next.code.trim().is_empty()).is_some_and(opens_module)
        {
            break;
        }
        if let Some(name) = declared(code) {
            names.entry(name.to_owned()).or_default().push((path.to_owned(), index + 1));
        }
    }
}

/// The names that are declared more than once.
pub fn check(names: &TypeNames) -> Vec<Violation> {
    let repeated = names.iter().filter(|(_, places)| places.len() > 1);
    let violation = |(name, places): (&String, &Vec<(String, usize)>)| {
        let all: Vec<_> = places.iter().map(|(path, line)| format!("{path}:{line}")).collect();
        let message = format!("`{name}` is declared {} times, rename all but one: {}", places.len(), all.join(", "));
        Violation::new(&places[0].0, places[0].1, message)
    };
    repeated.map(violation).collect()
}

fn is_exempt(path: &str) -> bool {
    let directory = ["tests/", "benches/", "wire/", "fuzz/"].iter().any(|part| path.contains(&format!("/{part}")));
    directory || path.ends_with("tests.rs")
}

fn opens_module(line: &source::SourceLine) -> bool {
    line.code.trim().starts_with("mod ") && line.code.contains('{')
}

fn declared(code: &str) -> Option<&str> {
    let (before, rest) = KEYWORDS.iter().find_map(|keyword| {
        let index = code.find(keyword)?;
        Some((&code[..index], &code[index + keyword.len()..]))
    })?;
    let modifiers =
        before.split_whitespace().all(|word| word.starts_with("pub") || word == "unsafe" || word.ends_with(')'));
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (modifiers && name.starts_with(char::is_uppercase)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &str, text: &str) -> Vec<String> {
        let mut types = BTreeMap::new();
        collect(path, text, &mut types);
        types.into_keys().collect()
    }

    #[test]
    fn declarations_of_each_kind_are_found() {
        let text = "pub struct A;\nenum B {}\npub(crate) trait C {}\npub unsafe trait D {}\nunion E { x: u8 }\n";
        assert_eq!(names("a.rs", text), ["A", "B", "C", "D", "E"]);
    }

    #[test]
    fn uses_comments_and_texts_are_no_declarations() {
        assert!(names("a.rs", "// struct A;\nlet b = \"struct B\";\nfn f(c: &C) {}\nimpl D for E {}").is_empty());
    }

    #[test]
    fn tests_and_wire_messages_are_exempt() {
        assert!(names("core/tests/it/a.rs", "struct A;").is_empty());
        assert!(names("core/src/wall_tests.rs", "struct A;").is_empty());
        assert!(names("core/workbench/read/src/wire/otlp.rs", "struct A;").is_empty());
        assert!(names("a.rs", "#[cfg(test)]\nmod tests {\n    struct A;\n}\n").is_empty());
    }

    #[test]
    fn a_name_declared_in_two_files_is_repeated() {
        let mut types = BTreeMap::new();
        collect("a.rs", "struct A;\nstruct B;", &mut types);
        collect("b.rs", "struct A;", &mut types);
        let violations = check(&types);
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.contains("`A`") && violations[0].message.contains("b.rs:1"));
    }
}
