//! The imports between the modules of a crate: paths to another file's module outside tests, followed through re-exports.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_paths::{self, FilePaths, PlacedPath};

/// Re-exports followed for one path.
const MAX_REEXPORTS: usize = 8;

/// An import of one module by another. Modules are paths relative to their source directory, such as `clocks/set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// The file that imports.
    pub file: String,
    pub line: usize,
    /// True for `crate::Name` where the root only re-exports `Name`.
    pub through_root: bool,
}

/// The imports between the modules of one source directory.
pub struct SourceImports {
    pub directory: String,
    pub imports: Vec<Import>,
}

/// The imports of every crate of the work tree.
pub fn read(files: &[(String, String)]) -> Vec<SourceImports> {
    let roots: BTreeSet<&str> = files
        .iter()
        .filter_map(|(path, _)| path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/main.rs")))
        .filter(|directory| directory.ends_with("src"))
        .collect();
    let imports =
        |root: &str| SourceImports { directory: root.to_owned(), imports: Crate::read(root, files).imports() };
    roots.into_iter().map(imports).collect()
}

/// The modules of one crate, by their path such as `sys::clocks`; the root is empty.
pub(super) struct Crate<'a> {
    pub(super) modules: BTreeMap<String, (&'a str, FilePaths)>,
}

impl<'a> Crate<'a> {
    /// Reads the crate with the source directory `source`. Modules of tests, those declared under `#[cfg(test)]`, are left out.
    pub(super) fn read(source: &str, files: &'a [(String, String)]) -> Self {
        let own = files.iter().filter_map(|(path, text)| {
            let name = path.strip_prefix(source)?.strip_prefix('/')?.strip_suffix(".rs")?;
            let name = if matches!(name, "lib" | "main") { "" } else { name.strip_suffix("/mod").unwrap_or(name) };
            (!name.starts_with("bin/")).then(|| (name.replace('/', "::"), (path.as_str(), rust_paths::read(text))))
        });
        let mut modules: BTreeMap<_, _> = own.collect();
        let tests = modules.iter().flat_map(|(module, (_, file))| test_modules(module, file)).collect::<Vec<_>>();
        modules.retain(|module, _| {
            !tests.iter().any(|test| module.strip_prefix(test.as_str()).is_some_and(is_empty_or_child))
        });
        Self { modules }
    }

    fn imports(&self) -> Vec<Import> {
        let mut imports = Vec::new();
        for (module, (path, file)) in self.modules.iter().filter(|(module, _)| !module.is_empty()) {
            let targets = file.paths.iter().filter_map(|path| Some((self.target(module, path)?, path)));
            for (target, import) in targets.filter(|(target, _)| !target.is_empty()) {
                let (from, to) = (module.replace("::", "/"), target.replace("::", "/"));
                let through_root = self.is_through_root(&import.segments);
                imports.push(Import { from, to, file: (*path).to_owned(), line: import.line, through_root });
            }
        }
        imports
    }

    fn is_through_root(&self, path: &[String]) -> bool {
        let name = path.get(1).filter(|_| path[0] == "crate");
        name.is_some_and(|name| !self.contains(&[], name) && self.import(&[], name).is_some())
    }

    /// The module of a file that a path of `module` leads to; `None` for another crate.
    pub(super) fn target(&self, module: &str, path: &PlacedPath) -> Option<String> {
        let from = module.split("::").chain(path.inside.iter().map(String::as_str)).collect();
        self.resolve(from, &path.segments, MAX_REEXPORTS)
    }

    /// The module of a file that a path in the module `from` leads to; `None` for another crate.
    fn resolve(&self, from: Vec<&str>, path: &[String], reexports: usize) -> Option<String> {
        let mut rest = path.iter().map(String::as_str).peekable();
        let mut module = from;
        match rest.peek().copied()? {
            "crate" => module.clear(),
            "self" | "super" => {}
            first if self.contains(&module, first) || self.import(&module, first).is_some() => {}
            _ => return None,
        }
        rest.next_if(|first| matches!(*first, "crate" | "self"));
        while rest.next_if_eq(&"super").is_some() {
            module.pop()?;
        }
        while let Some(next) = rest.next() {
            if self.contains(&module, next) {
                module.push(next);
            } else if let Some(import) = self.import(&module, next).filter(|_| reexports > 0) {
                let import: Vec<String> = import.iter().cloned().chain(rest.map(str::to_owned)).collect();
                return self.resolve(module, &import, reexports - 1);
            } else {
                break;
            }
        }
        while !self.modules.contains_key(&module.join("::")) {
            module.pop()?;
        }
        Some(module.join("::"))
    }

    fn contains(&self, module: &[&str], child: &str) -> bool {
        let path = [module, &[child]].concat().join("::");
        self.modules.contains_key(&path)
    }

    /// The path that a name of a module imports; the module may be inline.
    fn import(&self, module: &[&str], name: &str) -> Option<&Vec<String>> {
        (0..=module.len()).rev().find_map(|length| {
            let (_, file) = self.modules.get(&module[..length].join("::"))?;
            let inside: Vec<String> = module[length..].iter().map(|&name| name.to_owned()).collect();
            file.imports.get(&inside)?.get(name)
        })
    }
}

/// The modules that `module` declares for tests only, by path.
fn test_modules<'a>(module: &'a str, file: &'a FilePaths) -> impl Iterator<Item = String> + 'a {
    let folder = module.rsplit_once("::").map_or("", |(folder, _)| folder);
    file.test_modules.iter().map(move |test| {
        // `#[path]` is relative to the directory of the file.
        let around = if test.has_path { folder } else { module };
        if around.is_empty() {
            test.name.clone()
        } else {
            format!("{around}::{}", test.name)
        }
    })
}

fn is_empty_or_child(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports as `FROM TO`.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|&(path, text)| (format!("core/src/{path}"), text.to_owned())).collect();
        let files = [&[("core/src/lib.rs".to_owned(), String::new())], &files[..]].concat();
        let sources = read(&files);
        let imports = sources.iter().flat_map(|source| &source.imports);
        imports.map(|import| format!("{} {}", import.from, import.to)).collect()
    }

    #[test]
    fn an_import_leads_to_the_module_of_a_file() {
        let files =
            [("a.rs", "use std::fmt;\nuse crate::b::B;"), ("b.rs", "fn f() {\n    crate::c::g();\n}"), ("c.rs", "")];
        assert_eq!(imports(&files), ["a b", "b c"]);
    }

    #[test]
    fn tests_import_nothing_in_any_file() {
        assert!(imports(&[("a.rs", ""), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a; }")]).is_empty());
        let declared = [("a.rs", "#[cfg(test)]\nmod run;"), ("a/run.rs", "use crate::b;"), ("b.rs", "")];
        assert!(imports(&declared).is_empty());
        let path = "#[cfg(test)]\n#[path = \"b_model.rs\"]\nmod model;";
        let declared = [("a/b.rs", path), ("a/b_model.rs", "use crate::c;"), ("c.rs", ""), ("a/mod.rs", "")];
        assert!(imports(&declared).is_empty());
    }

    #[test]
    fn a_reexport_and_an_imported_module_are_followed() {
        let reexport = [("a/mod.rs", "pub use b::B;"), ("a/b.rs", ""), ("c.rs", "use crate::a::B;")];
        assert!(imports(&reexport).contains(&"c a/b".to_owned()));
        let module = [("a/mod.rs", "pub mod b;"), ("a/b.rs", ""), ("c.rs", "use crate::a;\nfn f(b: a::b::B) {}")];
        assert!(imports(&module).contains(&"c a/b".to_owned()));
    }

    #[test]
    fn an_import_through_the_root_is_one_of_a_reexport() {
        let text = "pub use a::A;\nmod a;\n";
        let files =
            [("core/src/lib.rs", text), ("core/src/a.rs", ""), ("core/src/b.rs", "use crate::A;\nuse crate::a::A;")];
        let files: Vec<_> = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        let through_root: Vec<bool> = read(&files)[0].imports.iter().map(|import| import.through_root).collect();
        assert_eq!(through_root, [true, false]);
    }

    #[test]
    fn an_inline_module_imports_from_its_file_and_beyond() {
        let inner = "mod inner {\n    use super::super::b::B;\n    use super::A;\n}";
        assert_eq!(imports(&[("a.rs", inner), ("b.rs", "")]), ["a b", "a a"]);
    }
}
