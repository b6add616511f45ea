//! The comparison of two profiles by call path: the tree of both sides, which paths grew or shrank significantly, and which are
//! new or vanished.
//!
//! A path of both sides is significant if its last function is in the table of functions, and its own interval agrees, so that the tree
//! has the changes of the table. A path on one side only is tested without a smallest share, since code that runs in one version only
//! may be a small part; the table lists it. Its callees are as significant as itself. How far native stacks reach depends on the version
//! of the profiler: beside managed code, no path is new or vanished because of a native function.

use std::cmp::Reverse;

use hashbrown::HashMap;
use spanprof_profile::code_origin::ExecutionKind;
use spanprof_profile::transform::{self, FunctionKey};

use super::diff::{DiffRow, DiffTable};
use super::growth::{self, Basis, Growth, TestedSide, MIN_SHARE};
use super::stack_sums::{PathSums, PathTrees, Summed, SummedStacks};
use super::summed_row::SummedRow;
use super::weights::FunctionLine;
use super::window_sums::{TypeSums, WindowSums};

/// The last function of a call path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiffNode {
    /// Index of the caller; the root is its own parent.
    pub parent: u32,
    /// Index into [`DiffTree::functions`].
    pub function: u32,
    /// Weight of stacks that end here, in the baseline and the comparison.
    pub self_weights: [i64; 2],
    /// Weight of stacks that contain this path.
    pub total_weights: [i64; 2],
    /// Growth of the total weight; `None` if nothing can be concluded, and below the first node of a path on one side only.
    pub growth: Option<Growth>,
    /// Whether the growth differs from 0 by more than chance, among all functions and paths.
    pub is_significant: bool,
}

/// Nodes in depth-first preorder, siblings by name, as in [`transform::StackTree`]. Recursion is folded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffTree {
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: String,
    /// Unit of all weights.
    pub unit: String,
    /// The functions; entry 0 is the root's.
    pub functions: Vec<FunctionKey>,
    /// The nodes.
    pub nodes: Vec<DiffNode>,
    /// Paths on one side only whose callers are on both, heaviest first.
    pub one_sided: Vec<OneSidedPath>,
}

/// A call path on one side only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneSidedPath {
    /// Index of its last node.
    pub node: u32,
    /// Whether it is absent from the baseline; otherwise it vanished.
    pub is_new: bool,
    /// Number of its samples; `None` where the sampling interval is unknown.
    pub samples: Option<f64>,
}

impl DiffTree {
    /// Functions of a path, root first, as indices into [`Self::functions`].
    pub fn path(&self, node: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut index = node;
        while index != 0 {
            path.push(self.nodes[index as usize].function);
            index = self.nodes[index as usize].parent;
        }
        path.reverse();
        path
    }
}

/// The call paths of a compared profile type; the sides are of [`WindowSums::with_paths`]. `normalize` as in [`super::diff()`].
pub fn diff_tree(sides: [&WindowSums; 2], table: &DiffTable, normalize: bool) -> DiffTree {
    let (mut tree, tested) = compared(sides, table, normalize, |stacks, paths| (&stacks.functions, &paths.whole));
    let changed = ChangedFunctions::of(&table.rows);
    let p_values: Vec<(usize, f64)> =
        tested.topmost.iter().filter_map(|index| Some((*index, tree.nodes[*index].growth?.p_value))).collect();
    let significant = growth::significant(&p_values.iter().map(|(_, p_value)| *p_value).collect::<Vec<_>>());
    for ((index, _), is_significant) in p_values.iter().zip(significant) {
        tree.nodes[*index].is_significant = is_significant;
    }
    changed.mark(&mut tree, &tested.of_both);
    tree.inherit_significance();
    tree
}

/// As [`diff_tree()`], with folded libraries and runtimes ([`spanprof_profile::transform::StackTree::folded`]); the sides are of
/// [`WindowSums::and_folded_paths`]. `whole` is the tree without them: a folded path changes with its functions.
pub fn folded_diff_tree(sides: [&WindowSums; 2], table: &DiffTable, whole: &DiffTree, normalize: bool) -> DiffTree {
    let paths_of: PathsOf = |stacks, paths| (stacks.folded_functions(), &paths.folded);
    let (mut tree, tested) = compared(sides, table, normalize, paths_of);
    let mut changed = ChangedFunctions::of(&table.rows);
    for path in &whole.one_sided {
        let node = &whole.nodes[path.node as usize];
        if node.is_significant {
            changed.add(&whole.functions[node.function as usize], path.is_new);
        }
    }
    changed.mark(&mut tree, &tested.of_both);
    changed.mark(&mut tree, &tested.topmost);
    tree.inherit_significance();
    tree
}

/// By name and file: whether a function shrank, and whether it grew. With the names of folded libraries and runtimes.
#[derive(Default)]
struct ChangedFunctions(HashMap<(String, String), [bool; 2]>);

impl ChangedFunctions {
    fn of(rows: &[DiffRow]) -> Self {
        let mut changed = Self::default();
        for row in rows.iter().filter(|row| row.is_significant) {
            let FunctionLine { function, file, frame_type, recorded, .. } = row.location.clone();
            let function = FunctionKey { name: function, file, start_line: 0, frame_type, recorded };
            changed.add(&function, row.growth.is_some_and(|growth| growth.estimate > 0.0));
        }
        changed
    }

    fn add(&mut self, function: &FunctionKey, grew: bool) {
        for function in [Some(function.clone()), transform::folded_function(function)].into_iter().flatten() {
            self.0.entry((function.name, function.file)).or_default()[usize::from(grew)] = true;
        }
    }

    /// Marks the nodes whose function changed in the direction of the node, and whose own interval does not contain 0.
    fn mark(&self, tree: &mut DiffTree, nodes: &[usize]) {
        for index in nodes {
            let node = &mut tree.nodes[*index];
            let FunctionKey { name, file, .. } = &tree.functions[node.function as usize];
            let changed = self.0.get(&(name.clone(), file.clone())).copied().unwrap_or_default();
            node.is_significant =
                node.growth.is_some_and(|growth| changed[0] && growth.high < 0.0 || changed[1] && growth.low > 0.0);
        }
    }
}

/// Nodes that are tested.
#[derive(Default)]
struct TestedNodes {
    of_both: Vec<usize>,
    /// Those of one side whose callers are on both.
    topmost: Vec<usize>,
}

/// The functions and the call paths of one side.
type PathsOf = for<'s> fn(&'s SummedStacks, &'s PathTrees) -> (&'s [FunctionKey], &'s PathSums);

fn compared(sides: [&WindowSums; 2], table: &DiffTable, normalize: bool, paths_of: PathsOf) -> (DiffTree, TestedNodes) {
    let none = TypeSums::new(Summed::default());
    let type_name = &table.type_name;
    let sums = sides.map(|side| side.of_type(type_name).unwrap_or(&none));
    let of_sides = sums.map(|sums| paths_of(&sums.stacks, sums.stacks.paths(table.compares_native())));
    let totals = sums.map(|sums| sums.weight);
    let scale = if normalize && totals[1] != 0 { totals[0] as f64 / totals[1] as f64 } else { 1.0 };
    let mut functions: Vec<FunctionKey> = Vec::new();
    let mut function_numbers: HashMap<FunctionKey, u32> = HashMap::new();
    let mut children: HashMap<(u32, u32), u32> = HashMap::new();
    let mut nodes: Vec<DiffNode> = Vec::new();
    let mut rows: Vec<[Option<&SummedRow>; 2]> = Vec::new();
    for (side, (functions_of_side, paths)) in of_sides.into_iter().enumerate() {
        let scaled = |weight: i64| if side == 1 { (weight as f64 * scale).round() as i64 } else { weight };
        let numbers: Vec<u32> = functions_of_side
            .iter()
            .map(|function| {
                *function_numbers.entry(function.clone()).or_insert_with_key(|function| {
                    functions.push(function.clone());
                    functions.len() as u32 - 1
                })
            })
            .collect();
        // Node of both for each node of the side.
        let mut merged: Vec<u32> = Vec::with_capacity(paths.nodes.len());
        for (index, (node, row)) in paths.nodes.iter().zip(paths.sums()).enumerate() {
            let parent = if index == 0 { 0 } else { merged[node.parent as usize] };
            let function = numbers[node.function as usize];
            // The root has no caller: no other node is its own parent.
            let key = if index == 0 { (u32::MAX, 0) } else { (parent, function) };
            let both = *children.entry(key).or_insert_with(|| {
                let weights = [0; 2];
                let node = DiffNode {
                    parent,
                    function,
                    self_weights: weights,
                    total_weights: weights,
                    growth: None,
                    is_significant: false,
                };
                nodes.push(node);
                rows.push([None; 2]);
                nodes.len() as u32 - 1
            });
            rows[both as usize][side] = Some(row);
            nodes[both as usize].self_weights[side] = scaled(node.self_weight);
            nodes[both as usize].total_weights[side] = scaled(row.weight);
            merged.push(both);
        }
    }
    let edges: Vec<(u32, u32)> = nodes.iter().map(|node| (node.parent, node.function)).collect();
    let order = transform::depth_first(&edges, &functions);
    let rows: Vec<_> = order.iter().map(|(index, _)| rows[*index as usize]).collect();
    let nodes = order.into_iter().map(|(index, parent)| DiffNode { parent, ..nodes[index as usize] }).collect();
    let unit = sums.iter().map(|sums| &sums.unit).find(|unit| !unit.is_empty()).cloned().unwrap_or_default();
    let mut tree = DiffTree { type_name: type_name.clone(), unit, functions, nodes, one_sided: Vec::new() };
    let basis = if normalize { Basis::Total } else { Basis::Duration };
    let by_process = growth::compares_processes(sums);
    let tested_sides = [0, 1].map(|side| TestedSide::new(sums[side], of_sides[side].1.sums(), basis, by_process));
    let tested = estimate(&mut tree, sums, tested_sides, &rows);
    (tree, tested)
}

impl DiffNode {
    fn is_one_sided(&self) -> bool {
        (self.total_weights[0] == 0) != (self.total_weights[1] == 0)
    }
}

impl DiffTree {
    /// Callees of a path on one side are as significant as the path.
    fn inherit_significance(&mut self) {
        // Preorder: a caller precedes its callees.
        for index in 1..self.nodes.len() {
            let caller = self.nodes[self.nodes[index].parent as usize];
            if self.nodes[index].is_one_sided() && caller.is_one_sided() {
                self.nodes[index].is_significant = caller.is_significant;
            }
        }
    }
}

/// Estimates the growth of the paths of both sides, and of the topmost of those on one side. `rows`: the sums of each node on both
/// sides.
fn estimate(
    tree: &mut DiffTree,
    sums: [&TypeSums; 2],
    sides: [TestedSide; 2],
    rows: &[[Option<&SummedRow>; 2]],
) -> TestedNodes {
    let rows = |index: usize| [0, 1].map(|side| sides[side].row_of(rows[index][side]));
    let has_managed = sums.iter().any(|sums| sums.stacks.has_managed());
    let mut tested = TestedNodes::default();
    for index in 1..tree.nodes.len() {
        let (node, caller) = (&tree.nodes[index], &tree.nodes[tree.nodes[index].parent as usize]);
        if node.is_one_sided() && has_managed && tree.functions[node.function as usize].kind() == ExecutionKind::Native
        {
            continue;
        }
        let (family, min_share) = if !node.is_one_sided() {
            (&mut tested.of_both, MIN_SHARE)
        } else if !caller.is_one_sided() {
            // Without a sampling interval, the share is the only measure of what is small.
            let min_share = if sums.iter().all(|sums| sums.samples.is_some()) { 0.0 } else { MIN_SHARE };
            (&mut tested.topmost, min_share)
        } else {
            continue;
        };
        tree.nodes[index].growth = growth::growth(sides, rows(index), min_share);
        family.push(index);
    }
    tree.one_sided = tested
        .topmost
        .iter()
        .map(|&index| {
            let is_new = tree.nodes[index].total_weights[0] == 0;
            let side = usize::from(is_new);
            let samples = sums[side].samples.map(|_| rows(index)[side].samples);
            OneSidedPath { node: index as u32, is_new, samples }
        })
        .collect();
    let nodes = &tree.nodes;
    tree.one_sided.sort_by_key(|path| Reverse(nodes[path.node as usize].total_weights.iter().sum::<i64>()));
    tested
}
