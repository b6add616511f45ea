//! Callers and callees of functions in a stack tree.

use std::cmp::Reverse;

use hashbrown::HashMap;

use super::weights::{FunctionLine, Weight};
use spanprof_profile::transform::StackTree;

/// A function with the functions that call it and that it calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbors {
    /// The function.
    pub location: FunctionLine,
    /// Its weight.
    pub weight: Weight,
    /// Its callers, each with the weight of samples that contain the call; by descending weight. The root of the tree is
    /// the caller `root` of functions without one.
    pub callers: Vec<(FunctionLine, i64)>,
    /// Its callees, likewise.
    pub callees: Vec<(FunctionLine, i64)>,
}

/// The neighbors of the functions for which `matches` is true, by descending cumulative weight. A call that a stack contains
/// several times (recursion) counts once.
pub fn neighbors(tree: &StackTree, matches: impl Fn(&FunctionLine) -> bool) -> Vec<Neighbors> {
    let mut matched: HashMap<u32, CallSums> = HashMap::new();
    for (function, row) in tree.functions.iter().enumerate().skip(1) {
        if matches(&row.clone().into()) {
            matched.insert(function as u32, CallSums::default());
        }
    }
    // Functions on the path from the root to the current node.
    let mut path: Vec<(u32, u32)> = Vec::new();
    for (index, node) in tree.nodes.iter().enumerate().skip(1) {
        while path.last().is_some_and(|(last, _)| *last != node.parent) {
            path.pop();
        }
        let caller = path.last().map_or(0, |(_, function)| *function);
        let is_on_path = || path.windows(2).any(|pair| (pair[0].1, pair[1].1) == (caller, node.function));
        if let Some(sums) = matched.get_mut(&node.function) {
            sums.weight.flat = sums.weight.flat.saturating_add(node.self_weight);
            if !path.iter().any(|(_, function)| *function == node.function) {
                sums.weight.cum = sums.weight.cum.saturating_add(node.total_weight);
            }
            if !is_on_path() {
                add(&mut sums.callers, caller, node.total_weight);
            }
        }
        if caller != 0 && matched.contains_key(&caller) && !is_on_path() {
            if let Some(sums) = matched.get_mut(&caller) {
                add(&mut sums.callees, node.function, node.total_weight);
            }
        }
        path.push((index as u32, node.function));
    }
    let mut rows: Vec<Neighbors> = matched.into_iter().map(|(function, sums)| sums.into_row(tree, function)).collect();
    rows.sort_by(|one, other| {
        let key = |row: &Neighbors| Reverse((row.weight.cum, row.weight.flat));
        key(one).cmp(&key(other)).then_with(|| one.location.cmp(&other.location))
    });
    rows
}

#[derive(Default)]
struct CallSums {
    weight: Weight,
    callers: HashMap<u32, i64>,
    callees: HashMap<u32, i64>,
}

impl CallSums {
    fn into_row(self, tree: &StackTree, function: u32) -> Neighbors {
        let sorted = |weights: HashMap<u32, i64>| {
            let of = |(function, weight): (u32, i64)| (tree.functions[function as usize].clone().into(), weight);
            let mut rows: Vec<(FunctionLine, i64)> = weights.into_iter().map(of).collect();
            rows.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
            rows
        };
        Neighbors {
            location: tree.functions[function as usize].clone().into(),
            weight: self.weight,
            callers: sorted(self.callers),
            callees: sorted(self.callees),
        }
    }
}

fn add(sums: &mut HashMap<u32, i64>, function: u32, weight: i64) {
    let sum = sums.entry(function).or_default();
    *sum = sum.saturating_add(weight);
}
