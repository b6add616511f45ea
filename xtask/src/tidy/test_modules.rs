//! Rules: a file that is compiled for tests only has `test` in its name, so that a reader of the directory sees it. A file with tests
//! is a module of the crate: otherwise its tests never run.

use super::{rust_paths, Violation};

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let modules = rust_paths::test_modules(text).into_iter().filter(|module| !module.name.contains("test"));
    let message = |name: &str| format!("`{name}` is compiled for tests only; give it a name with `tests` or `testing`");
    modules.map(|module| Violation::new(path, module.line, message(&module.name))).collect()
}

/// The files of all modules, of which those with tests are declared in the file of their parent, or by their path.
pub fn undeclared(files: &[(String, String)]) -> Vec<Violation> {
    let is_declared = |path: &str, name: &str| {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let parents = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].map(|end| format!("{folder}{end}"));
        let (declaration, file) = (format!("mod {name};"), format!("{name}.rs\""));
        files.iter().any(|(other, text)| text.contains(&file) || parents.contains(other) && text.contains(&declaration))
    };
    let tests = files.iter().filter(|(path, text)| path.contains("/src/") && text.contains("#[test]"));
    let named = tests.filter_map(|(path, _)| Some((path, path.rsplit('/').next()?.strip_suffix(".rs")?)));
    named
        .filter(|(path, name)| !matches!(*name, "lib" | "main" | "mod") && !is_declared(path, name))
        .map(|(path, name)| Violation::new(path, 0, format!("no file declares `mod {name};`, so its tests never run")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_tests_that_no_file_declares_is_found() {
        let files =
            [("a/src/lib.rs", "mod one_tests;"), ("a/src/one_tests.rs", "#[test]"), ("a/src/two_tests.rs", "#[test]")];
        let violations = undeclared(&files.map(|(path, text)| (path.to_owned(), text.to_owned())));
        assert_eq!(
            violations.iter().map(|violation| violation.path.as_str()).collect::<Vec<_>>(),
            ["a/src/two_tests.rs"]
        );
    }

    #[test]
    fn a_module_for_tests_says_so_in_its_name() {
        assert!(check("a.rs", "#[cfg(test)]\nmod model_tests;\nmod other;").is_empty());
        assert_eq!(check("a.rs", "#[cfg(test)]\nmod model;")[0].line, 2);
    }
}
