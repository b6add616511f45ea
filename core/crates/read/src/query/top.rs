//! The top table: flat and cumulative weight per function or line.

use std::cmp::Reverse;

use spanprof_profile::ProfilesData;

use super::weights::{weights, FunctionLine, Granularity, Weight};

/// One function or line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The function or line.
    pub at: FunctionLine,
    /// Its weight.
    pub weight: Weight,
}

/// Rows by descending `flat`, then descending `cum`, then name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopTable {
    /// [`spanprof_profile::Profile::type_name`].
    pub type_name: String,
    /// Unit of all weights.
    pub unit: String,
    /// Weight of all samples, the base of shares.
    pub total: i64,
    /// Number of samples.
    pub samples: usize,
    /// One per function and file, and per line if `by` was [`Granularity::Line`].
    pub rows: Vec<TopRow>,
}

impl TopTable {
    /// Approximate memory, to bound a cache.
    pub fn memory_bytes(&self) -> usize {
        let texts: usize = self.rows.iter().map(|row| row.at.function.len() + row.at.file.len()).sum();
        std::mem::size_of_val(&*self.rows) + texts
    }
}

/// The table of one profile type.
pub fn top(data: &ProfilesData, type_name: &str, by: Granularity) -> TopTable {
    let sums = weights(data, type_name, by);
    let mut rows: Vec<TopRow> = sums.rows.into_iter().map(|(at, weight)| TopRow { at, weight }).collect();
    rows.sort_by(|one, other| {
        let key = |row: &TopRow| Reverse((row.weight.flat, row.weight.cum));
        key(one).cmp(&key(other)).then_with(|| one.at.cmp(&other.at))
    });
    TopTable { type_name: type_name.to_owned(), unit: sums.unit, total: sums.total, samples: sums.samples, rows }
}
