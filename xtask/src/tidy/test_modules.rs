//! Rule: a file that is compiled for tests only has `test` in its name, so that a reader of the directory sees it.

use super::{rust_paths, Violation};

pub fn check(path: &str, text: &str) -> Vec<Violation> {
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let modules = rust_paths::test_modules(text).into_iter().filter(|module| !module.name.contains("test"));
    let message = |name: &str| format!("`{name}` is compiled for tests only; give it a name with `tests` or `testing`");
    modules.map(|module| Violation::new(path, module.line, message(&module.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_for_tests_says_so_in_its_name() {
        assert!(check("a.rs", "#[cfg(test)]\nmod model_tests;\nmod other;").is_empty());
        assert_eq!(check("a.rs", "#[cfg(test)]\nmod model;")[0].line, 2);
    }
}
