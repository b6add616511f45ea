//! The stack tree: equal call paths merged from the root, for flame graphs and folded lines.

use hashbrown::HashMap;

use super::functions::{FunctionKey, FunctionTable};
use crate::{Dictionary, Profile, ProfilesData};

/// The last function of a call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// Index of the caller; the root is its own parent.
    pub parent: u32,
    /// Index into [`StackTree::functions`].
    pub function: u32,
    /// Weight of samples whose stack ends here.
    pub self_weight: i64,
    /// Weight of samples whose stack contains this call path.
    pub total_weight: i64,
}

/// Node 0 is the root of all samples. Nodes are in depth-first preorder, siblings by name: a node's descendants follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackTree {
    /// [`crate::Profile::type_name`].
    pub type_name: String,
    /// Unit of all weights.
    pub unit: String,
    /// The functions; entry 0 is the root's.
    pub functions: Vec<FunctionKey>,
    /// The nodes.
    pub nodes: Vec<StackNode>,
}

/// The tree of one profile type. A function called from different lines is one child of its caller.
pub fn tree(data: &ProfilesData, type_name: &str) -> StackTree {
    let of_type = |profile: &&Profile| profile.type_name() == type_name;
    let profiles = data.profiles().map(|(_, profile)| profile).filter(of_type);
    let tree = tree_of(&data.dictionary, profiles, None, false);
    StackTree { type_name: type_name.to_owned(), ..tree }
}

/// The tree of profiles of one type. `fold` as in [`FunctionTable::folded`]; with `folds_recursion`, a function that calls itself directly is one node.
pub fn tree_of<'d>(
    dictionary: &'d Dictionary,
    profiles: impl Iterator<Item = &'d Profile>,
    fold: Option<fn(String) -> String>,
    folds_recursion: bool,
) -> StackTree {
    let mut functions = FunctionTable::with_fold(dictionary, fold);
    let mut nodes = vec![StackNode { parent: 0, function: 0, self_weight: 0, total_weight: 0 }];
    let mut children: HashMap<(u32, u32), u32> = HashMap::new();
    // Last node of each stack, by stack id: a stack is inserted once for samples that differ only in labels.
    let mut ends: HashMap<u32, u32> = HashMap::new();
    let mut type_name = "";
    let mut unit = String::new();
    for profile in profiles {
        type_name = profile.type_name();
        if unit.is_empty() {
            profile.unit().clone_into(&mut unit);
        }
        for sample in &profile.samples {
            let end = *ends.entry(sample.stack.0).or_insert_with(|| {
                let mut at = 0;
                for location in dictionary.get_stack(sample.stack).iter().rev() {
                    for function in functions.of_location(*location).rev() {
                        if folds_recursion && at != 0 && nodes[at as usize].function == function {
                            continue;
                        }
                        at = *children.entry((at, function)).or_insert_with(|| {
                            nodes.push(StackNode { parent: at, function, self_weight: 0, total_weight: 0 });
                            nodes.len() as u32 - 1
                        });
                    }
                }
                at
            });
            let node = &mut nodes[end as usize];
            node.self_weight = node.self_weight.saturating_add(profile.weight(sample));
        }
    }
    for at in (0..nodes.len()).rev() {
        let StackNode { parent, self_weight, .. } = nodes[at];
        nodes[at].total_weight = nodes[at].total_weight.saturating_add(self_weight);
        if at > 0 {
            let total = nodes[at].total_weight;
            let parent = &mut nodes[parent as usize];
            parent.total_weight = parent.total_weight.saturating_add(total);
        }
    }
    let functions = functions.into_rows();
    let parents: Vec<(u32, u32)> = nodes.iter().map(|node| (node.parent, node.function)).collect();
    let order = depth_first(&parents, &functions);
    let nodes = order.into_iter().map(|(at, parent)| StackNode { parent, ..nodes[at as usize] }).collect();
    StackTree { type_name: type_name.to_owned(), unit, nodes, functions }
}

/// Nodes in depth-first order, siblings by name, file, start line and type: the node's old number, and the new number of its parent. `nodes` are
/// parents and functions; node 0 is the root. Iterative, since stacks may be deep.
pub fn depth_first(nodes: &[(u32, u32)], functions: &[FunctionKey]) -> Vec<(u32, u32)> {
    let mut rank = vec![0u32; functions.len()];
    let mut by_name: Vec<u32> = (0..functions.len() as u32).collect();
    by_name.sort_by_key(|at| &functions[*at as usize]);
    by_name.iter().enumerate().for_each(|(nth, at)| rank[*at as usize] = nth as u32);
    let mut order: Vec<u32> = (1..nodes.len() as u32).collect();
    let key = |at: &u32| {
        let (parent, function) = nodes[*at as usize];
        (parent, std::cmp::Reverse(rank[function as usize]))
    };
    order.sort_unstable_by_key(key);
    // `order` now has the children of each parent adjacent, last name first.
    let mut child_ranges = vec![(0usize, 0usize); nodes.len()];
    for (nth, at) in order.iter().enumerate() {
        let range = &mut child_ranges[nodes[*at as usize].0 as usize];
        *range = if range.1 == 0 { (nth, nth + 1) } else { (range.0, nth + 1) };
    }
    let mut sorted = Vec::with_capacity(nodes.len());
    let mut pending = vec![(0u32, 0u32)];
    while let Some((at, parent)) = pending.pop() {
        let new = sorted.len() as u32;
        sorted.push((at, parent));
        let (start, end) = child_ranges[at as usize];
        pending.extend(order[start..end].iter().map(|child| (*child, new)));
    }
    sorted
}
