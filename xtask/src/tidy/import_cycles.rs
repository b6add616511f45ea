//! Rule: the modules of a crate do not import each other in a cycle, directly or through others. Code of a cycle can only be
//! read, tested and moved as a whole. `counts/import_cycles.txt` lists the groups that remain.
//!
//! An import is a path to another file's module outside tests, followed through re-exports. A module may use its own children:
//! it contains them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::rust_paths::{self, FilePaths, PlacedPath};
use super::{TidyReport, Violation};

/// Re-exports followed for one path.
const MAX_REEXPORTS: usize = 8;

/// Modules that import each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCycle {
    /// Source directory of the crate.
    pub source: String,
    /// The modules that reach each other.
    pub modules: BTreeSet<String>,
    /// One shortest cycle among them: the file and line of each import, and the module that imports.
    imports: Vec<(String, usize, String)>,
}

/// The cycles of every crate of the work tree. `files` are paths and texts.
pub fn find(files: &[(String, String)]) -> Vec<ImportCycle> {
    let roots: BTreeSet<&str> = files
        .iter()
        .filter_map(|(path, _)| path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/main.rs")))
        .filter(|directory| directory.ends_with("src"))
        .collect();
    roots.into_iter().flat_map(|root| Crate::read(root, files).cycles()).collect()
}

/// Compares the cycles with the list in the file `path`: each must be part of a listed group.
pub fn compare(path: &str, list: &str, cycles: &[ImportCycle]) -> TidyReport {
    let mut report = TidyReport::default();
    for cycle in cycles.iter().filter(|cycle| !groups(list).any(|group| cycle.is_within(&group))) {
        let chain = cycle.imports.iter().map(|(_, _, module)| format!("`{module}` imports "));
        let (file, line, first) = &cycle.imports[0];
        let chain = chain.collect::<String>() + &format!("`{first}`");
        let message = format!(
            "import cycle: {chain}; its group: {}; move the shared type or function to a module of its own, or the \
             function to its caller",
            names(&cycle.modules)
        );
        report.violations.push(Violation::new(file, *line, message));
    }
    for (source, modules) in groups(list) {
        if !cycles.iter().any(|cycle| cycle.source == source && cycle.modules == modules) {
            report.notices.push(format!("{path}: the cycle of {} in {source} shrank", names(&modules)));
        }
    }
    report
}

/// The list with the groups that remain of those in `list`.
pub fn lowered(list: &str, cycles: &[ImportCycle]) -> String {
    let comments = list.lines().filter(|line| line.starts_with('#')).map(str::to_owned);
    let kept = cycles.iter().filter(|cycle| groups(list).any(|group| cycle.is_within(&group)));
    let kept = kept.map(|cycle| format!("{}: {}", cycle.source, names(&cycle.modules)));
    comments.chain(kept).map(|line| line + "\n").collect()
}

/// The groups of a list: `SOURCE: MODULE, MODULE` per line.
fn groups(list: &str) -> impl Iterator<Item = (String, BTreeSet<String>)> + '_ {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).map(|(source, modules)| {
        (source.to_owned(), modules.split(", ").map(|module| module.trim().to_owned()).collect())
    })
}

fn names(modules: &BTreeSet<String>) -> String {
    modules.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

impl ImportCycle {
    fn is_within(&self, (source, modules): &(String, BTreeSet<String>)) -> bool {
        self.source == *source && self.modules.is_subset(modules)
    }
}

/// The modules of one crate, by their path such as `sys::clocks`; the root is empty.
pub(super) struct Crate<'a> {
    source: &'a str,
    pub(super) modules: BTreeMap<String, (&'a str, FilePaths)>,
}

/// The imports of a module: each imported module, with the line.
type Imports = BTreeMap<String, usize>;

impl<'a> Crate<'a> {
    pub(super) fn read(source: &'a str, files: &'a [(String, String)]) -> Self {
        let own = files.iter().filter_map(|(path, text)| {
            let name = path.strip_prefix(source)?.strip_prefix('/')?.strip_suffix(".rs")?;
            let is_test = name.ends_with("tests") || name.starts_with("bin/");
            let name = if matches!(name, "lib" | "main") { "" } else { name.strip_suffix("/mod").unwrap_or(name) };
            (!is_test).then(|| (name.replace('/', "::"), (path.as_str(), rust_paths::read(text))))
        });
        Self { source, modules: own.collect() }
    }

    fn cycles(&self) -> Vec<ImportCycle> {
        let graph: BTreeMap<&str, Imports> =
            self.modules.keys().map(|module| (module.as_str(), self.imports(module))).collect();
        let reached: BTreeMap<&str, BTreeSet<String>> =
            graph.keys().map(|module| (*module, reachable(&graph, module))).collect();
        let mut cycles: Vec<ImportCycle> = Vec::new();
        for (module, from_module) in &reached {
            let is_known = cycles.iter().any(|cycle| cycle.modules.contains(*module));
            if is_known || !from_module.contains(*module) {
                continue;
            }
            let modules = from_module.iter().filter(|other| reached[other.as_str()].contains(*module));
            let imports = self.shortest_cycle(&graph, module);
            cycles.push(ImportCycle { source: self.source.to_owned(), modules: modules.cloned().collect(), imports });
        }
        cycles
    }

    fn imports(&self, module: &str) -> Imports {
        let mut imports = Imports::new();
        let Some((_, file)) = self.modules.get(module).filter(|_| !module.is_empty()) else { return imports };
        for path in &file.paths {
            let Some(target) = self.target(module, path) else { continue };
            let is_child = target.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
            if !target.is_empty() && !is_child {
                imports.entry(target).or_insert(path.line);
            }
        }
        imports
    }

    /// The module of a file that a path of `module` leads to; `None` for another crate.
    pub(super) fn target(&self, module: &str, path: &PlacedPath) -> Option<String> {
        let from = module.split("::").chain(path.inside.iter().map(String::as_str)).collect();
        self.resolve(from, &path.segments, MAX_REEXPORTS)
    }

    /// The module of a file that a path in the module `from` leads to; `None` for another crate.
    fn resolve(&self, from: Vec<&str>, path: &[String], reexports: usize) -> Option<String> {
        let mut rest = path.iter().map(String::as_str).peekable();
        let mut at = from;
        match rest.peek().copied()? {
            "crate" => at.clear(),
            "self" | "super" => {}
            first if self.contains(&at, first) || self.import(&at, first).is_some() => {}
            _ => return None,
        }
        rest.next_if(|first| matches!(*first, "crate" | "self"));
        while rest.next_if_eq(&"super").is_some() {
            at.pop()?;
        }
        while let Some(next) = rest.next() {
            if self.contains(&at, next) {
                at.push(next);
            } else if let Some(import) = self.import(&at, next).filter(|_| reexports > 0) {
                let import: Vec<String> = import.iter().cloned().chain(rest.map(str::to_owned)).collect();
                return self.resolve(at, &import, reexports - 1);
            } else {
                break;
            }
        }
        while !self.modules.contains_key(&at.join("::")) {
            at.pop()?;
        }
        Some(at.join("::"))
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

    fn shortest_cycle(&self, graph: &BTreeMap<&str, Imports>, start: &str) -> Vec<(String, usize, String)> {
        let mut chains = VecDeque::from([vec![start]]);
        let mut seen = BTreeSet::new();
        while let Some(chain) = chains.pop_front() {
            let last = chain[chain.len() - 1];
            for next in graph[last].keys() {
                if next == start {
                    let next = chain.iter().skip(1).copied().chain([start]);
                    return chain
                        .iter()
                        .zip(next)
                        .map(|(module, next)| {
                            (self.modules[*module].0.to_owned(), graph[module][next], (*module).to_owned())
                        })
                        .collect();
                }
                if seen.insert(next) {
                    chains.push_back([&chain[..], &[next.as_str()]].concat());
                }
            }
        }
        Vec::new()
    }
}

/// The modules that a module imports, directly or through others.
fn reachable(graph: &BTreeMap<&str, Imports>, module: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![module];
    while let Some(module) = left.pop() {
        for next in graph.get(module).into_iter().flat_map(Imports::keys) {
            if reached.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<ImportCycle> {
        let files: Vec<_> = files.iter().map(|&(path, text)| (format!("core/src/{path}"), text.to_owned())).collect();
        find(&[&[("core/src/lib.rs".to_owned(), String::new())], &files[..]].concat())
    }

    fn groups_of(files: &[(&str, &str)]) -> Vec<String> {
        found(files).iter().map(|cycle| names(&cycle.modules)).collect()
    }

    const CYCLE: [(&str, &str); 4] = [
        ("a.rs", "use std::fmt;\nuse crate::b::B;"),
        ("b.rs", "fn f() {\n    crate::c::g();\n}"),
        ("c.rs", "use super::{a, d};"),
        ("d.rs", ""),
    ];

    #[test]
    fn a_cycle_through_three_modules_names_its_imports() {
        assert_eq!(groups_of(&CYCLE), ["a, b, c"]);
        let report = compare("list.txt", "", &found(&CYCLE));
        let violation = &report.violations[0];
        assert_eq!((violation.path.as_str(), violation.line), ("core/src/a.rs", 2));
        let expected = "`a` imports `b` imports `c` imports `a`; its group: a, b, c; move the shared";
        assert!(violation.message.contains(expected), "{}", violation.message);
    }

    #[test]
    fn modules_in_one_direction_are_no_cycle() {
        let files = [("a.rs", "use crate::b::B;"), ("b.rs", "use crate::c::C;"), ("c.rs", "")];
        assert!(groups_of(&files).is_empty());
    }

    #[test]
    fn imports_of_tests_and_of_a_modules_own_children_do_not_count() {
        assert!(
            groups_of(&[("a.rs", "use crate::b;"), ("b.rs", "#[cfg(test)]\nmod tests { use crate::a; }")]).is_empty()
        );
        assert!(groups_of(&[("a.rs", "use crate::b;"), ("b.rs", ""), ("a_tests.rs", "use crate::a;")]).is_empty());
        assert!(groups_of(&[("a/mod.rs", "use self::b::B;"), ("a/b.rs", "use super::A;")]).is_empty());
    }

    #[test]
    fn a_cycle_through_a_reexport_or_an_imported_module_is_found() {
        let reexport = [("a/mod.rs", "pub use b::B;"), ("a/b.rs", "use crate::c::C;"), ("c.rs", "use crate::a::B;")];
        assert_eq!(groups_of(&reexport), ["a::b, c"]);
        let module =
            [("a/mod.rs", "pub mod b;"), ("a/b.rs", "use crate::c;"), ("c.rs", "use crate::a;\nfn f(b: a::b::B) {}")];
        assert_eq!(groups_of(&module), ["a::b, c"]);
    }

    #[test]
    fn an_inline_module_imports_from_its_file_and_beyond() {
        let inner = "mod inner {\n    use super::super::b::B;\n    use super::A;\n}";
        assert_eq!(groups_of(&[("a.rs", inner), ("b.rs", "use crate::a::A;")]), ["a, b"]);
    }

    #[test]
    fn a_listed_group_may_shrink_and_not_grow() {
        let listed = |list: &str| compare("list.txt", list, &found(&CYCLE));
        assert!(listed("core/src: a, b, c\n").violations.is_empty());
        assert!(listed("core/src: a, b, c\n").notices.is_empty());
        assert_eq!(listed("core/src: a, b\n").violations.len(), 1);
        assert_eq!(listed("xtask/src: a, b, c\n").violations.len(), 1);
        let larger = listed("core/src: a, b, c, d\n");
        assert_eq!((larger.violations.len(), larger.notices.len()), (0, 1));
        let list = "# Cycles.\ncore/src: a, b, c, d\ncore/src: x, y\n";
        assert_eq!(lowered(list, &found(&CYCLE)), "# Cycles.\ncore/src: a, b, c\n");
        assert_eq!(lowered("", &found(&CYCLE)), "");
    }
}
