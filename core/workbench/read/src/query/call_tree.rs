//! The call tree as rows: the most expensive calls first, small ones left out.

use std::cmp::Reverse;

use spanprof_profile::transform::StackTree;

/// A call in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRow {
    /// Distance from the root, whose callees have 1.
    pub depth: u32,
    /// Index into [`StackTree::functions`].
    pub function: u32,
    /// Weight of samples that end here.
    pub flat: i64,
    /// Weight of samples that contain this call path.
    pub cum: i64,
    /// Callees left out, because of their weight or depth.
    pub omitted: u32,
}

/// The calls of at least `min_weight` and at most `max_depth`, in depth-first order, callees by descending weight.
pub fn call_tree(tree: &StackTree, min_weight: i64, max_depth: u32) -> Vec<CallRow> {
    let mut callees: Vec<Vec<u32>> = vec![Vec::new(); tree.nodes.len()];
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        callees[node.parent as usize].push(at as u32);
    }
    let mut rows = Vec::new();
    // Iterative, since stacks may be deep. The root itself is not a row.
    let mut pending = vec![(0u32, 0u32)];
    while let Some((at, depth)) = pending.pop() {
        let all = &mut callees[at as usize];
        let count = all.len();
        all.retain(|callee| depth < max_depth && tree.nodes[*callee as usize].total_weight >= min_weight);
        if depth > 0 {
            let node = &tree.nodes[at as usize];
            rows.push(CallRow {
                depth,
                function: node.function,
                flat: node.self_weight,
                cum: node.total_weight,
                omitted: (count - all.len()) as u32,
            });
        }
        // Nodes are sorted by name already; the sort is stable.
        all.sort_by_key(|callee| Reverse(tree.nodes[*callee as usize].total_weight));
        pending.extend(all.iter().rev().map(|callee| (*callee, depth + 1)));
    }
    rows
}
