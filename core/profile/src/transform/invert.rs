//! The inverted stack tree: from the functions in which samples end to their outermost callers.

use hashbrown::HashMap;

use super::functions::FunctionKey;
use super::tree::{ranks, StackNode, StackTree};

/// Nodes up to which an inverted tree has all of them; a larger one would take more than 50 MB.
const MAX_NODES: usize = 2_000_000;
/// Lightest node of a larger tree, as a part of the total.
const MIN_SHARE: i64 = 50_000;

/// A node of the source tree that the next caller belongs to, and the weight of the samples that it stands for.
type Cursor = (u32, i64);

impl StackTree {
    /// The functions in which samples end, with their callers below them. The self weight of a node is that of the samples whose
    /// outermost function it is. A very large tree lacks its lightest nodes: the total weight of a node is then more than its
    /// self weight and the total weights of its children.
    pub fn inverted(&self) -> StackTree {
        let leaves = self.nodes.iter().enumerate().skip(1).filter(|(_, node)| node.self_weight != 0);
        let leaves = leaves.map(|(at, node)| (at as u32, node.self_weight)).collect();
        self.tree_of_cursors(leaves, self.nodes.first().map_or(0, |root| root.self_weight))
    }

    /// The callers of the functions that match, below them; of recursive calls those of the outermost. The total is the weight of the
    /// samples that contain such a function.
    pub fn callers_of(&self, matches: impl Fn(&FunctionKey) -> bool) -> StackTree {
        let is_match: Vec<bool> =
            self.functions.iter().enumerate().map(|(nth, function)| nth > 0 && matches(function)).collect();
        let mut topmost = Vec::new();
        // Whether the path to a node has a match.
        let mut is_below = vec![false; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().skip(1) {
            let is_nested = is_below[node.parent as usize];
            is_below[at] = is_nested || is_match[node.function as usize];
            if is_below[at] && !is_nested {
                topmost.push((at as u32, node.total_weight));
            }
        }
        self.tree_of_cursors(topmost, 0)
    }

    /// The tree of the paths from each cursor to the root; `rootless` is the weight of samples without a function.
    fn tree_of_cursors(&self, cursors: Vec<Cursor>, rootless: i64) -> StackTree {
        let ranks = ranks(&self.functions);
        let total = cursors.iter().fold(rootless, |sum, (_, weight)| sum.saturating_add(*weight));
        let depths = self.depths();
        let count = cursors.iter().fold(0usize, |sum, (at, _)| sum.saturating_add(depths[*at as usize] as usize));
        let min_weight = if count > MAX_NODES { total / MIN_SHARE } else { 0 };
        let mut nodes = vec![StackNode { parent: 0, function: 0, self_weight: rootless, total_weight: total }];
        // Parent and function of the next nodes, with the cursors that they merge. Iterative, since stacks may be deep.
        let mut pending = self.by_function(cursors, 0, &ranks, min_weight);
        while let Some((parent, function, cursors)) = pending.pop() {
            let number = nodes.len() as u32;
            let total_weight = cursors.iter().fold(0i64, |sum, (_, weight)| sum.saturating_add(*weight));
            let mut self_weight: i64 = 0;
            let mut callers = Vec::with_capacity(cursors.len());
            for (at, weight) in cursors {
                match self.nodes[at as usize].parent {
                    0 => self_weight = self_weight.saturating_add(weight),
                    caller => callers.push((caller, weight)),
                }
            }
            nodes.push(StackNode { parent, function, self_weight, total_weight });
            pending.append(&mut self.by_function(callers, number, &ranks, min_weight));
        }
        let (type_name, unit) = (self.type_name.clone(), self.unit.clone());
        StackTree { type_name, unit, functions: self.functions.clone(), nodes }
    }

    /// Cursors by the function of their node, last name first.
    fn by_function(
        &self,
        cursors: Vec<Cursor>,
        parent: u32,
        ranks: &[u32],
        min_weight: i64,
    ) -> Vec<(u32, u32, Vec<Cursor>)> {
        let mut groups: HashMap<u32, Vec<Cursor>> = HashMap::new();
        for cursor in cursors {
            groups.entry(self.nodes[cursor.0 as usize].function).or_default().push(cursor);
        }
        let is_kept = |cursors: &[Cursor]| {
            cursors.iter().fold(0i64, |sum, (_, weight)| sum.saturating_add(*weight)) >= min_weight
        };
        let mut groups: Vec<_> = groups
            .into_iter()
            .filter(|(_, cursors)| is_kept(cursors))
            .map(|(function, cursors)| (parent, function, cursors))
            .collect();
        groups.sort_unstable_by_key(|(_, function, _)| std::cmp::Reverse(ranks[*function as usize]));
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of stacks, root first, with unit weights.
    fn tree(stacks: &[(&[&str], i64)]) -> StackTree {
        let mut data = crate::ProfilesData::default();
        let mut samples = Vec::new();
        for (stack, weight) in stacks {
            let mut locations = Vec::new();
            for name in stack.iter().rev() {
                let name = data.dictionary.string(name);
                let function = data.dictionary.function(crate::Function { name, ..Default::default() });
                let lines = [crate::Line { function, line: 1, column: 0 }];
                locations.push(data.dictionary.location(crate::Location { lines: &lines, ..Default::default() }));
            }
            let stack = data.dictionary.stack(&locations);
            samples.push(crate::Sample { stack, values: vec![*weight], ..Default::default() });
        }
        let profile = crate::Profile { samples, ..Default::default() };
        let type_name = profile.type_name().to_owned();
        data.resources.push(crate::ResourceProfiles { profiles: vec![profile], ..Default::default() });
        super::super::tree(&data, &type_name)
    }

    /// Level, name, self and total weight of each node.
    fn rows(tree: &StackTree) -> Vec<(u32, &str, i64, i64)> {
        let depths = tree.depths();
        let nodes = tree.nodes.iter().zip(depths);
        nodes
            .map(|(node, depth)| {
                (depth, &*tree.functions[node.function as usize].name, node.self_weight, node.total_weight)
            })
            .collect()
    }

    #[test]
    fn leaves_are_at_the_root_of_an_inverted_tree_and_weights_add_up() {
        let tree =
            tree(&[(&["main", "a", "leaf"], 5), (&["main", "b", "leaf"], 3), (&["main", "a"], 2), (&["leaf"], 1)]);
        let expected = [
            (0, "root", 0, 11),
            (1, "a", 0, 2),
            (2, "main", 2, 2),
            (1, "leaf", 1, 9),
            (2, "a", 0, 5),
            (3, "main", 5, 5),
            (2, "b", 0, 3),
            (3, "main", 3, 3),
        ];
        assert_eq!(rows(&tree.inverted()), expected);
    }

    #[test]
    fn the_callers_of_a_function_have_the_weight_of_its_samples_and_recursion_counts_once() {
        let tree = tree(&[(&["main", "f", "g", "f", "x"], 5), (&["main", "h", "f"], 3), (&["main", "h"], 7)]);
        let expected = [(0, "root", 0, 8), (1, "f", 0, 8), (2, "h", 0, 3), (3, "main", 3, 3), (2, "main", 5, 5)];
        assert_eq!(rows(&tree.callers_of(|function| function.name == "f")), expected);
        assert_eq!(rows(&tree.callers_of(|function| function.name == "absent")), [(0, "root", 0, 0)]);
    }
}
