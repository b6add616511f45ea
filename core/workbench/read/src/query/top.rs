//! The top table: flat, own and cumulative weight per function or line.

use std::cmp::Reverse;

use spanprof_profile::ProfilesData;

use super::weights::{weights, FunctionLine, Granularity, Weight};

/// One function or line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// The function or line.
    pub location: FunctionLine,
    /// Its weight.
    pub weight: Weight,
    /// Weight of samples that are charged to the row: it is the innermost one of own code. 0 for other code.
    pub own: i64,
    /// [`Weight::flat`] with that of the native code that the row called.
    pub with_native: i64,
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
    /// Weight of the samples with a function of own code.
    pub own: i64,
    /// Number of samples.
    pub samples: usize,
    /// One per function and file, and per line if `by` was [`Granularity::Line`].
    pub rows: Vec<TopRow>,
}

impl TopTable {
    /// Approximate memory, to bound a cache.
    pub fn memory_bytes(&self) -> usize {
        let texts: usize = self.rows.iter().map(|row| row.location.function.len() + row.location.file.len()).sum();
        std::mem::size_of_val(&*self.rows) + texts
    }
}

/// The table of one profile type.
pub fn top(data: &ProfilesData, type_name: &str, by: Granularity) -> TopTable {
    let sums = weights(data, type_name, by);
    let charged = sums.own.into_iter().zip(sums.with_native);
    let row = |((location, weight), (own, with_native))| TopRow { location, weight, own, with_native };
    let mut rows: Vec<TopRow> = sums.rows.into_iter().zip(charged).map(row).collect();
    let own = rows.iter().fold(0i64, |sum, row| sum.saturating_add(row.own));
    rows.sort_by(|one, other| {
        let key = |row: &TopRow| Reverse((row.weight.flat, row.weight.cum));
        key(one).cmp(&key(other)).then_with(|| one.location.cmp(&other.location))
    });
    TopTable { type_name: type_name.to_owned(), unit: sums.unit, total: sums.total, own, samples: sums.samples, rows }
}
