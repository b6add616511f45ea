//! The tree of a comparison as the input of the flame graph. Called by `diff` and by the HTTP API.

use spanprof_profile::transform::{StackNode, StackTree};
use spanprof_read::query::DiffTree;
use spanprof_view::flamegraph::{self, DiffColumns};

/// The tree as JSON for the page.
pub fn json(tree: &DiffTree) -> String {
    let (tree, columns) = columns(tree);
    flamegraph::diff_json(&tree, &columns)
}

/// The tree with the weights of the comparison, and the columns of both sides.
fn columns(tree: &DiffTree) -> (StackTree, DiffColumns) {
    let mut columns = DiffColumns::default();
    let mut nodes = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let ([baseline, self_weight], [_, total_weight]) = (node.self_weights, node.total_weights);
        nodes.push(StackNode { parent: node.parent, function: node.function, self_weight, total_weight });
        columns.baseline.push(baseline);
        columns.comparison.push(self_weight);
        columns.intervals.push(node.growth.map(|growth| (growth.low, growth.high)));
        columns.significant.push(node.is_significant);
    }
    let (type_name, unit) = (tree.type_name.clone(), tree.unit.clone());
    (StackTree { type_name, unit, functions: tree.functions.clone(), nodes }, columns)
}
