//! Rule: every binding has the same modules, so that code is found at the same place in each language. Modules of one language
//! alone may be added.

use std::collections::BTreeSet;

use super::Violation;

const MODULES: [&str; 5] = ["api.rs", "context.rs", "convert.rs", "host_log.rs", "runtime/mod.rs"];

pub fn check(files: &[String]) -> Vec<Violation> {
    let bindings: BTreeSet<&str> = files
        .iter()
        .filter(|path| path.starts_with("bindings-"))
        .filter_map(|path| path.strip_suffix("/src/lib.rs").filter(|binding| !binding.contains('/')))
        .collect();
    let modules = bindings.iter().flat_map(|binding| MODULES.map(|module| format!("{binding}/src/{module}")));
    let missing = modules.filter(|path| !files.contains(path));
    missing.map(|path| Violation::new(&path, 0, "this module of every binding is missing (CONTRIBUTING.md)")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_of_a_binding_is_found() {
        let paths = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
        let mut files = paths(&["bindings-a/src/lib.rs", "bindings-a/opener/src/lib.rs", "core/src/lib.rs"]);
        files.extend(MODULES.map(|module| format!("bindings-a/src/{module}")));
        assert_eq!(check(&files), []);
        files.retain(|path| !path.ends_with("context.rs"));
        assert_eq!(check(&files).len(), 1);
        assert_eq!(check(&files)[0].path, "bindings-a/src/context.rs");
    }
}
