//! The stack tree: equal call paths merged from the root, for flame graphs and folded lines.

use std::num::NonZeroU32;

use hashbrown::HashMap;

use super::functions::{FunctionKey, FunctionTable};
use crate::{Dictionary, Profile, ProfilesData, StackId};

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

impl StackTree {
    /// Calls from the root to each node; 0 of the root.
    pub fn depths(&self) -> Vec<u32> {
        let mut depths: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for (at, node) in self.nodes.iter().enumerate() {
            depths.push(if at == 0 { 0 } else { depths[node.parent as usize] + 1 });
        }
        depths
    }
}

/// The call paths of samples, without weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPaths {
    /// The functions; entry 0 is the root's.
    pub functions: Vec<FunctionKey>,
    /// Level and function of each path's last call, in the order of [`StackTree::nodes`].
    pub nodes: Vec<(u32, u32)>,
    /// The node of each stack, by its id.
    pub of_stack: HashMap<StackId, u32>,
}

/// The call paths of all profiles.
pub fn call_paths(data: &ProfilesData) -> CallPaths {
    let profiles = data.profiles().map(|(_, profile)| profile);
    let (tree, of_stack) = tree_with_leaves(&data.dictionary, profiles, false);
    let nodes = tree.depths().into_iter().zip(tree.nodes.iter().map(|node| node.function)).collect();
    CallPaths { functions: tree.functions, nodes, of_stack: of_stack.into_iter().collect() }
}

/// The tree of one profile type. A function called from different lines is one child of its caller.
pub fn tree(data: &ProfilesData, type_name: &str) -> StackTree {
    let of_type = |profile: &&Profile| profile.type_name() == type_name;
    let profiles = data.profiles().map(|(_, profile)| profile).filter(of_type);
    let tree = tree_of(&data.dictionary, profiles, false);
    StackTree { type_name: type_name.to_owned(), ..tree }
}

/// The tree of profiles of one type. With `folds_recursion`, a function that calls itself directly is one node.
pub fn tree_of<'d>(
    dictionary: &'d Dictionary,
    profiles: impl Iterator<Item = &'d Profile>,
    folds_recursion: bool,
) -> StackTree {
    tree_with_leaves(dictionary, profiles, folds_recursion).0
}

/// The tree, and the node of each stack.
fn tree_with_leaves<'d>(
    dictionary: &'d Dictionary,
    profiles: impl Iterator<Item = &'d Profile>,
    folds_recursion: bool,
) -> (StackTree, Vec<(StackId, u32)>) {
    let mut functions = FunctionTable::new(dictionary);
    // Functions of all stacks, root first, one stack after the other.
    let mut calls: Vec<u32> = Vec::new();
    let mut stacks: Vec<StackCalls> = Vec::new();
    // Position in `stacks` by stack id: samples that differ only in labels have one. An unassigned id reads as the empty stack.
    let mut known: Vec<Option<NonZeroU32>> = vec![None; dictionary.lens().stacks];
    let mut type_name = "";
    let mut unit = String::new();
    for profile in profiles {
        type_name = profile.type_name();
        if unit.is_empty() {
            profile.unit().clone_into(&mut unit);
        }
        for sample in &profile.samples {
            let id = if sample.stack.index() < known.len() { sample.stack } else { StackId::EMPTY };
            let number = *known[id.index()].get_or_insert_with(|| {
                let start = calls.len();
                for location in dictionary.get_stack(id).iter().rev() {
                    for function in functions.of_location(*location).rev() {
                        if !folds_recursion || calls[start..].last() != Some(&function) {
                            calls.push(function);
                        }
                    }
                }
                stacks.push(StackCalls { id, start, end: calls.len(), weight: 0 });
                NonZeroU32::new(stacks.len() as u32).unwrap_or(NonZeroU32::MAX)
            });
            let stack = &mut stacks[number.get() as usize - 1];
            stack.weight = stack.weight.saturating_add(profile.weight(sample));
        }
    }
    drop(known);
    assembled(type_name.to_owned(), unit, functions.into_rows(), calls, stacks)
}

/// The tree of stacks whose functions are `calls`, and the node of each stack.
pub(super) fn assembled(
    type_name: String,
    unit: String,
    functions: Vec<FunctionKey>,
    mut calls: Vec<u32>,
    stacks: Vec<StackCalls>,
) -> (StackTree, Vec<(StackId, u32)>) {
    let ranks = ranks(&functions);
    calls.iter_mut().for_each(|function| *function = ranks[*function as usize]);
    let (mut nodes, leaves) = nodes_of(&stacks, &calls);
    let mut of_rank = vec![0; ranks.len()];
    ranks.iter().enumerate().for_each(|(function, rank)| of_rank[*rank as usize] = function as u32);
    for at in (0..nodes.len()).rev() {
        let StackNode { parent, function, self_weight, .. } = nodes[at];
        let total = nodes[at].total_weight.saturating_add(self_weight);
        nodes[at].total_weight = total;
        if at > 0 {
            nodes[at].function = of_rank[function as usize];
            let parent = &mut nodes[parent as usize];
            parent.total_weight = parent.total_weight.saturating_add(total);
        }
    }
    (StackTree { type_name, unit, nodes, functions }, leaves)
}

/// The functions of one stack as a range of all, and its weight.
pub(super) struct StackCalls {
    pub id: StackId,
    pub start: usize,
    pub end: usize,
    pub weight: i64,
}

/// The nodes of all stacks, with the ranks of their functions, and the node of each stack. In sorted order a stack shares its
/// first nodes with the one before it: no node is looked up, which would be a cache miss each in a tree of millions.
fn nodes_of(stacks: &[StackCalls], calls: &[u32]) -> (Vec<StackNode>, Vec<(StackId, u32)>) {
    let path_of = |stack: &StackCalls| &calls[stack.start..stack.end];
    // The first calls that differ decide most comparisons. As numbers they are beside each other, not a cache miss away.
    let first = stacks.first().map_or(&[][..], path_of);
    let root = stacks.iter().fold(first.len(), |depth, stack| {
        first[..depth].iter().zip(path_of(stack)).take_while(|(one, other)| one == other).count()
    });
    let bits = u32::BITS - calls.iter().max().map_or(1, |rank| rank.saturating_add(1)).leading_zeros();
    let prefix = |path: &[u32]| {
        let ranks = (root..root + (u64::BITS / bits) as usize)
            .map(|depth| path.get(depth).map_or(0, |rank| u64::from(*rank) + 1));
        ranks.fold(0, |prefix, rank| prefix << bits | rank)
    };
    let mut order: Vec<(u64, u32)> = (0..).zip(stacks).map(|(at, stack)| (prefix(path_of(stack)), at)).collect();
    order.sort_unstable_by(|(one_prefix, one), (other_prefix, other)| {
        let path = |at: &u32| path_of(&stacks[*at as usize]);
        one_prefix.cmp(other_prefix).then_with(|| path(one).cmp(path(other)))
    });
    let mut nodes = vec![StackNode { parent: 0, function: 0, self_weight: 0, total_weight: 0 }];
    // The nodes below the root of the last stack.
    let mut path: Vec<u32> = Vec::new();
    let mut leaves = Vec::with_capacity(stacks.len());
    for (_, at) in order {
        let stack = &stacks[at as usize];
        let functions = path_of(stack);
        let is_same = |(node, function): &(&u32, &u32)| nodes[**node as usize].function == **function;
        let shared = path.iter().zip(functions).take_while(is_same).count();
        path.truncate(shared);
        for function in &functions[shared..] {
            let parent = path.last().copied().unwrap_or(0);
            path.push(nodes.len() as u32);
            nodes.push(StackNode { parent, function: *function, self_weight: 0, total_weight: 0 });
        }
        let leaf = path.last().copied().unwrap_or(0);
        leaves.push((stack.id, leaf));
        let last = &mut nodes[leaf as usize];
        last.self_weight = last.self_weight.saturating_add(stack.weight);
    }
    (nodes, leaves)
}

/// The position of each function by name, file, start line and type.
pub(super) fn ranks(functions: &[FunctionKey]) -> Vec<u32> {
    let mut ranks = vec![0u32; functions.len()];
    let mut by_name: Vec<u32> = (0..functions.len() as u32).collect();
    by_name.sort_by_key(|at| &functions[*at as usize]);
    by_name.iter().enumerate().for_each(|(nth, at)| ranks[*at as usize] = nth as u32);
    ranks
}

/// Nodes in depth-first order, siblings by name, file, start line and type: the node's old number, and the new number of its parent. `nodes` are
/// parents and functions; node 0 is the root. Iterative, since stacks may be deep.
pub fn depth_first(nodes: &[(u32, u32)], functions: &[FunctionKey]) -> Vec<(u32, u32)> {
    let rank = ranks(functions);
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
