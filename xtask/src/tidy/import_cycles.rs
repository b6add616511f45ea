//! Rule: the modules of a source directory do not import each other in a cycle, directly or through others. Code of a cycle can
//! only be read, tested and moved as a whole. `counts/import_cycles.txt` lists the groups that remain.
//!
//! A folder is one node among its siblings: what its files import, it imports. A folder contains its files, so its own code
//! (`mod.rs`, `__init__.py`) may use them, and they may use it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::imports::{Import, SourceImports};
use super::{TidyReport, Violation};

/// Modules and folders that import each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportCycle {
    /// The source directory.
    pub source: String,
    /// The modules and folders that reach each other.
    pub modules: BTreeSet<String>,
    /// One shortest cycle among them.
    imports: Vec<Import>,
}

/// The cycles of every source directory.
pub fn find(sources: &[SourceImports]) -> Vec<ImportCycle> {
    sources.iter().flat_map(cycles).collect()
}

/// Compares the cycles with the list in the file `path`: each must be part of a listed group.
pub fn compare(path: &str, list: &str, cycles: &[ImportCycle]) -> TidyReport {
    let mut report = TidyReport::default();
    for cycle in cycles.iter().filter(|cycle| !groups(list).any(|group| cycle.is_within(&group))) {
        let chain = cycle.imports.iter().map(|import| format!("`{}` imports ", import.from));
        let first = &cycle.imports[0];
        let chain = chain.collect::<String>() + &format!("`{}`", first.from);
        let message = format!(
            "import cycle: {chain}; its group: {}; move the shared type or function to a module of its own, or the \
             function to its caller",
            names(&cycle.modules)
        );
        report.violations.push(Violation::new(&first.file, first.line, message));
    }
    for (source, modules) in groups(list) {
        if !cycles.iter().any(|cycle| cycle.source == source && cycle.modules == modules) {
            report.notices.push(format!("{path}: the cycle of {} in {source} shrank", names(&modules)));
        }
    }
    report
}

/// `list`, reduced to the groups that remain.
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

/// The imports among the nodes of one folder: one import for each pair.
type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Import>>;

fn cycles(source: &SourceImports) -> Vec<ImportCycle> {
    let mut cycles = Vec::new();
    for graph in graphs(&source.imports).into_values() {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            graph.keys().map(|node| (*node, reachable(&graph, node))).collect();
        let mut known = BTreeSet::new();
        for (node, from_node) in &reached {
            if known.contains(node) || !from_node.contains(node) {
                continue;
            }
            let returns = |other: &&&str| reached.get(**other).is_some_and(|reached| reached.contains(node));
            let group: BTreeSet<&str> = from_node.iter().filter(returns).copied().collect();
            known.extend(group.iter().copied());
            let modules = group.into_iter().map(str::to_owned).collect();
            let imports = shortest_cycle(&graph, node);
            cycles.push(ImportCycle { source: source.directory.clone(), modules, imports });
        }
    }
    cycles
}

/// The graph of each folder that contains both ends of an import.
fn graphs(imports: &[Import]) -> BTreeMap<&str, Graph<'_>> {
    let mut graphs: BTreeMap<&str, Graph<'_>> = BTreeMap::new();
    for import in imports {
        if let Some((folder, from, to)) = nodes(&import.from, &import.to) {
            graphs.entry(folder).or_default().entry(from).or_default().entry(to).or_insert(import);
        }
    }
    graphs
}

/// The nearest folder around two modules, and the nodes in it that contain them; `None` if one module contains the other.
fn nodes<'a>(from: &'a str, to: &'a str) -> Option<(&'a str, &'a str, &'a str)> {
    let ends = |path: &'a str| path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let (from_end, to_end) = ends(from).zip(ends(to)).find(|&(a, b)| from[..a] != to[..b])?;
    let folder = from[..from_end].rfind('/').map_or("", |at| &from[..at]);
    Some((folder, &from[..from_end], &to[..to_end]))
}

/// The nodes that a node imports, directly or through others.
fn reachable<'a>(graph: &Graph<'a>, node: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        for next in graph.get(node).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(*next) {
                left.push(next);
            }
        }
    }
    reached
}

fn shortest_cycle(graph: &Graph<'_>, start: &str) -> Vec<Import> {
    let mut chains = VecDeque::from([Vec::<(&str, &Import)>::new()]);
    let mut seen = BTreeSet::new();
    while let Some(chain) = chains.pop_front() {
        let last = chain.last().map_or(start, |(node, _)| node);
        for (next, import) in graph.get(last).into_iter().flatten() {
            let longer = [&chain[..], &[(*next, *import)]].concat();
            if *next == start {
                return longer.into_iter().map(|(_, import)| import.clone()).collect();
            }
            if seen.insert(*next) {
                chains.push_back(longer);
            }
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(imports: &[(&str, &str)]) -> Vec<ImportCycle> {
        let import = |&(from, to): &(&str, &str)| Import {
            from: from.to_owned(),
            to: to.to_owned(),
            file: format!("core/src/{from}.rs"),
            line: 2,
        };
        find(&[SourceImports { directory: "core/src".to_owned(), imports: imports.iter().map(import).collect() }])
    }

    fn groups_of(imports: &[(&str, &str)]) -> Vec<String> {
        found(imports).iter().map(|cycle| names(&cycle.modules)).collect()
    }

    const CYCLE: [(&str, &str); 4] = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")];

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
        assert!(groups_of(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    }

    #[test]
    fn a_folder_is_one_node_among_its_siblings() {
        assert_eq!(groups_of(&[("a/one", "b/one"), ("b/two", "a/two")]), ["a, b"]);
        assert_eq!(groups_of(&[("a/one", "b"), ("b", "a/two")]), ["a, b"]);
        assert_eq!(groups_of(&[("a/x/one", "a/y"), ("a/y", "a/x/two")]), ["a/x, a/y"]);
    }

    #[test]
    fn a_folder_and_its_files_may_use_each_other() {
        assert!(groups_of(&[("a", "a/b"), ("a/b", "a"), ("a/b", "a/c")]).is_empty());
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
