//! The functions of which [`SpanTotals`](super::SpanTotals) sums the weights by span. Pure.

use hashbrown::HashMap;

use super::weights::{FunctionLine, Granularity};

/// The functions of the spans: of one type, for the comparison of spans.
#[derive(Clone, Debug)]
pub(super) struct TrackedFunctions {
    pub type_name: String,
    pub by: Granularity,
    pub rows: Vec<FunctionLine>,
    /// By function: its smallest distance from the root of a stack.
    pub depths: Vec<usize>,
    known: HashMap<FunctionLine, u32>,
    /// Whether the number of samples is known in every window.
    pub has_counts: bool,
}

impl TrackedFunctions {
    pub fn new(type_name: &str, by: Granularity) -> Self {
        Self {
            type_name: type_name.to_owned(),
            by,
            rows: Vec::new(),
            depths: Vec::new(),
            known: HashMap::new(),
            has_counts: true,
        }
    }

    /// Index of a function. `depth`: its smallest distance from the root of a stack in a profile.
    pub fn number(&mut self, row: FunctionLine, depth: usize) -> u32 {
        let Self { rows, depths, .. } = self;
        let number = *self.known.entry(row).or_insert_with_key(|row| {
            rows.push(row.clone());
            depths.push(depth);
            rows.len() as u32 - 1
        });
        let smallest = &mut depths[number as usize];
        *smallest = depth.min(*smallest);
        number
    }
}
