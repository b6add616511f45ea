//! Rule: the modules of a source directory do not import each other in a cycle, directly or through others. Code of a cycle can
//! only be read, tested and moved as a whole.
//!
//! A folder is one node among its siblings: what its files import, it imports. A folder contains its files, so its own code
//! (`mod.rs`) may use them, and they may use it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::rust_imports::{Import, SourceImports};
use super::Violation;

/// Modules and folders that import each other.
struct ImportCycle {
    /// The modules and folders that reach each other.
    modules: Vec<String>,
    /// One shortest cycle among them.
    imports: Vec<Import>,
}

/// The violations of every source directory: one for each group of modules that reach each other.
pub fn check(sources: &[SourceImports]) -> Vec<Violation> {
    let message = |cycle: ImportCycle| {
        let chain = cycle.imports.iter().map(|import| format!("`{}` imports ", import.from));
        let first = &cycle.imports[0];
        let chain = chain.collect::<String>() + &format!("`{}`", first.from);
        let message = format!(
            "import cycle: {chain}; its group: {}; move the shared type or function to a module of its own, or the \
             function to its caller",
            cycle.modules.join(", ")
        );
        Violation::new(&first.file, first.line, message)
    };
    sources.iter().flat_map(cycles).map(message).collect()
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
            cycles.push(ImportCycle { modules, imports });
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
    let ends = |path: &'a str| path.match_indices('/').map(|(position, _)| position).chain([path.len()]);
    let (from_end, to_end) = ends(from).zip(ends(to)).find(|&(a, b)| from[..a] != to[..b])?;
    let folder = from[..from_end].rfind('/').map_or("", |position| &from[..position]);
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

    fn source(imports: &[(&str, &str)]) -> SourceImports {
        let import = |&(from, to): &(&str, &str)| Import {
            from: from.to_owned(),
            to: to.to_owned(),
            file: format!("core/src/{from}.rs"),
            line: 2,
            through_root: false,
        };
        SourceImports { directory: "core/src".to_owned(), imports: imports.iter().map(import).collect() }
    }

    fn groups_of(imports: &[(&str, &str)]) -> Vec<String> {
        cycles(&source(imports)).iter().map(|cycle| cycle.modules.join(", ")).collect()
    }

    #[test]
    fn a_cycle_through_three_modules_names_its_imports() {
        let imports = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")];
        assert_eq!(groups_of(&imports), ["a, b, c"]);
        let violation = &check(&[source(&imports)])[0];
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
}
