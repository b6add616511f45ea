//! The part of a stack tree that a flame graph of limited width shows: large trees have millions of nodes.

use super::functions::FunctionKey;
use super::tree::{StackNode, StackTree};

/// Part of a [`StackTree`]. The weight of a node is its self weight, that of its callees, and what was elided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrunedTree {
    /// The nodes that were kept, and their functions.
    pub tree: StackTree,
    /// By node: total weight of the callees that were dropped.
    pub elided: Vec<i64>,
}

impl StackTree {
    /// Approximate memory, to bound a cache.
    pub fn memory_bytes(&self) -> usize {
        let texts: usize = self.functions.iter().map(|function| function.name.len() + function.file.len()).sum();
        std::mem::size_of_val(&*self.nodes) + std::mem::size_of_val(&*self.functions) + texts
    }

    /// The node of a call path, by the [`FunctionKey::path_key`] of each function from the root's callee on; where the path ends
    /// early, its last node.
    pub fn node_at(&self, path: &[u32]) -> u32 {
        let keys: Vec<u32> = self.functions.iter().map(FunctionKey::path_key).collect();
        let (mut at, mut depth) = (0, 0);
        for (number, node) in self.nodes.iter().enumerate().skip(1) {
            // Descendants follow their node.
            if depth == path.len() || node.parent < at {
                break;
            }
            if node.parent == at && keys[node.function as usize] == path[depth] {
                at = number as u32;
                depth += 1;
            }
        }
        at
    }

    /// The numbers of a node and of its descendants.
    pub fn subtree(&self, node: u32) -> std::ops::Range<usize> {
        let first = node as usize;
        let descendants = self.nodes.iter().skip(first + 1).take_while(|other| other.parent >= node).count();
        first..first + 1 + descendants
    }

    /// Total weight of the topmost nodes in the subtree of `node` whose function matches: nested matches count once.
    pub fn matched_weight(&self, node: u32, matches: impl Fn(&FunctionKey) -> bool) -> i64 {
        let is_match: Vec<bool> =
            self.functions.iter().enumerate().map(|(nth, function)| nth > 0 && matches(function)).collect();
        let mut weight: i64 = 0;
        let mut at = node as usize;
        let end = self.subtree(node).end;
        while at < end {
            let StackNode { function, total_weight, .. } = self.nodes[at];
            if is_match[function as usize] {
                weight = weight.saturating_add(total_weight);
                at = self.subtree(at as u32).end;
            } else {
                at += 1;
            }
        }
        weight
    }

    /// The callees of `node` that weigh at least `min_weight`, the heaviest if there are more than `max_nodes`; and the callers of
    /// `node` without their other callees.
    pub fn pruned(&self, node: u32, min_weight: i64, max_nodes: usize) -> PrunedTree {
        let subtree = self.subtree(node);
        let mut min_weight = min_weight.max(1);
        let mut weights: Vec<i64> = self.nodes[subtree.clone()]
            .iter()
            .map(|node| node.total_weight)
            .filter(|weight| *weight >= min_weight)
            .collect();
        if weights.len() > max_nodes {
            let (_, lightest_kept, _) =
                weights.select_nth_unstable_by_key(max_nodes, |weight| std::cmp::Reverse(*weight));
            min_weight = lightest_kept.saturating_add(1);
        }
        let mut path = vec![node];
        while path[path.len() - 1] != 0 {
            path.push(self.nodes[path[path.len() - 1] as usize].parent);
        }
        let mut kept =
            KeptNodes { source: self, functions: vec![None; self.functions.len()], pruned: PrunedTree::default() };
        kept.pruned.tree.type_name.clone_from(&self.type_name);
        kept.pruned.tree.unit.clone_from(&self.unit);
        kept.function(0);
        let mut parent = 0;
        for at in path.into_iter().rev() {
            parent = kept.add(at as usize, parent);
        }
        // New number of each node of the subtree, `None` for a dropped one.
        let mut numbers: Vec<Option<u32>> = vec![None; subtree.len()];
        numbers[0] = Some(parent);
        for at in subtree.clone().skip(1) {
            let source = self.nodes[at];
            let caller = numbers[source.parent as usize - subtree.start];
            if let Some(caller) = caller.filter(|_| source.total_weight >= min_weight) {
                numbers[at - subtree.start] = Some(kept.add(at, caller));
            }
        }
        kept.pruned
    }
}

struct KeptNodes<'t> {
    source: &'t StackTree,
    /// New number of each function.
    functions: Vec<Option<u32>>,
    pruned: PrunedTree,
}

impl KeptNodes<'_> {
    fn function(&mut self, function: u32) -> u32 {
        let functions = &mut self.pruned.tree.functions;
        *self.functions[function as usize].get_or_insert_with(|| {
            functions.push(self.source.functions[function as usize].clone());
            functions.len() as u32 - 1
        })
    }

    /// Adds a node below `parent`, whose elided weight decreases. Returns its new number.
    fn add(&mut self, at: usize, parent: u32) -> u32 {
        let node = self.source.nodes[at];
        let function = self.function(node.function);
        let PrunedTree { tree, elided } = &mut self.pruned;
        if at > 0 {
            let rest = &mut elided[parent as usize];
            *rest = rest.saturating_sub(node.total_weight);
        }
        tree.nodes.push(StackNode { parent, function, ..node });
        elided.push(node.total_weight.saturating_sub(node.self_weight));
        tree.nodes.len() as u32 - 1
    }
}

impl FunctionKey {
    /// A short form for call paths in addresses: the 32-bit FNV-1a hash of the UTF-16 text `name\0file:line`. `flamegraph.js`
    /// computes the same.
    pub fn path_key(&self) -> u32 {
        let text = format!("{}\0{}:{}", self.name, self.file, self.start_line);
        text.encode_utf16().fold(2_166_136_261, |hash, unit| (hash ^ u32::from(unit)).wrapping_mul(16_777_619))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of (parent, function, self weight); totals are computed.
    fn tree(nodes: &[(u32, u32, i64)]) -> StackTree {
        let names = ["root", "main", "a", "b", "c", "d"];
        let key = |name: &&str| FunctionKey { name: (*name).to_owned(), ..FunctionKey::default() };
        let mut nodes: Vec<StackNode> = nodes
            .iter()
            .map(|&(parent, function, self_weight)| StackNode {
                parent,
                function,
                self_weight,
                total_weight: self_weight,
            })
            .collect();
        for at in (1..nodes.len()).rev() {
            let StackNode { parent, total_weight, .. } = nodes[at];
            nodes[parent as usize].total_weight += total_weight;
        }
        let functions = names.iter().map(key).collect();
        StackTree { type_name: "cpu".to_owned(), unit: "nanoseconds".to_owned(), functions, nodes }
    }

    /// main calls a (60: itself 10, b 48, c 2) and d (40: itself 39, b 1).
    fn calls() -> StackTree {
        tree(&[(0, 0, 0), (0, 1, 0), (1, 2, 10), (2, 3, 48), (2, 4, 2), (1, 5, 39), (5, 3, 1)])
    }

    /// (name, total, elided) of each node.
    fn rows(pruned: &PrunedTree) -> Vec<(&str, i64, i64)> {
        let PrunedTree { tree, elided } = pruned;
        let name = |node: &StackNode| tree.functions[node.function as usize].name.as_str();
        tree.nodes.iter().zip(elided).map(|(node, elided)| (name(node), node.total_weight, *elided)).collect()
    }

    #[test]
    fn light_callees_become_elided_weight_of_their_callers() {
        let pruned = calls().pruned(0, 5, 100);
        let expected = [("root", 100, 0), ("main", 100, 0), ("a", 60, 2), ("b", 48, 0), ("d", 40, 1)];
        assert_eq!(rows(&pruned), expected);
        assert_eq!(pruned.tree.functions.len(), 5, "c is not among them");
        assert_eq!(rows(&calls().pruned(0, 1, 100)).iter().map(|row| row.2).sum::<i64>(), 0, "nothing is elided");
    }

    #[test]
    fn a_subtree_keeps_its_callers_as_one_path() {
        let tree = calls();
        let expected = [("root", 100, 0), ("main", 100, 60), ("d", 40, 0), ("b", 1, 0)];
        assert_eq!(rows(&tree.pruned(5, 1, 100)), expected);
    }

    #[test]
    fn the_heaviest_nodes_are_kept_when_there_are_too_many() {
        let pruned = calls().pruned(0, 1, 4);
        assert_eq!(rows(&pruned), [("root", 100, 0), ("main", 100, 40), ("a", 60, 2), ("b", 48, 0)]);
    }

    #[test]
    fn a_path_is_found_as_far_as_it_exists() {
        let tree = calls();
        let keys = |path: &[usize]| path.iter().map(|at| tree.functions[*at].path_key()).collect::<Vec<_>>();
        let found =
            [&[][..], &[1], &[1, 5], &[1, 5, 3], &[1, 2, 3], &[1, 2, 5], &[3]].map(|path| tree.node_at(&keys(path)));
        assert_eq!(found, [0, 1, 5, 6, 3, 2, 0]);
    }

    #[test]
    fn topmost_matches_count_once_within_a_subtree() {
        let tree = calls();
        let weight =
            |node, names: &[&str]| tree.matched_weight(node, |function| names.contains(&function.name.as_str()));
        assert_eq!(
            [weight(0, &["b"]), weight(0, &["a", "b"]), weight(5, &["b"]), weight(0, &["root"])],
            [49, 61, 1, 0]
        );
    }

    #[test]
    fn a_path_key_is_that_of_the_renderer() {
        // Computed by `hash` of flamegraph.js.
        let key = FunctionKey {
            name: "größe 🔥".to_owned(),
            file: "app.py".to_owned(),
            start_line: 7,
            ..FunctionKey::default()
        };
        assert_eq!(key.path_key(), 1_430_761_827);
    }
}
