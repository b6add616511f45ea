//! The top table: flat and cumulative weight per function.

use std::cmp::Reverse;

use spanprof_profile::transform::FunctionTable;
use spanprof_profile::{FrameType, ProfilesData};

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    /// Name.
    pub function: String,
    /// Path of its source file, "" when unknown.
    pub file: String,
    /// Frame type.
    pub frame_type: FrameType,
    /// Weight of samples with the function as leaf.
    pub flat: i64,
    /// Weight of samples with the function anywhere in the stack, each counted once.
    pub cum: i64,
}

/// Functions by descending `flat`, then descending `cum`, then name.
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
    /// One per function and file.
    pub rows: Vec<TopRow>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    flat: i64,
    cum: i64,
    /// Number of the last sample that added to `cum`: recursion counts once.
    seen_in: usize,
}

/// The table of one profile type.
pub fn top(data: &ProfilesData, type_name: &str) -> TopTable {
    let mut functions = FunctionTable::new(&data.dictionary);
    let mut sums: Vec<Sums> = Vec::new();
    let mut table = TopTable { type_name: type_name.to_owned(), ..TopTable::default() };
    for (_, profile) in data.profiles().filter(|(_, profile)| profile.type_name() == type_name) {
        if table.unit.is_empty() {
            profile.unit().clone_into(&mut table.unit);
        }
        for sample in &profile.samples {
            let weight = profile.weight(sample);
            table.samples += 1;
            table.total = table.total.saturating_add(weight);
            let mut is_leaf = true;
            for location in data.dictionary.get_stack(sample.stack) {
                for function in functions.of_location(*location) {
                    let at = function as usize;
                    if at >= sums.len() {
                        sums.resize(at + 1, Sums::default());
                    }
                    let sums = &mut sums[at];
                    if is_leaf {
                        sums.flat = sums.flat.saturating_add(weight);
                        is_leaf = false;
                    }
                    if sums.seen_in != table.samples {
                        sums.seen_in = table.samples;
                        sums.cum = sums.cum.saturating_add(weight);
                    }
                }
            }
        }
    }
    let rows = functions.into_rows().into_iter().zip(sums).skip(1);
    table.rows = rows
        .map(|((function, file, frame_type), Sums { flat, cum, .. })| TopRow { function, file, frame_type, flat, cum })
        .collect();
    table.rows.sort_by(|one, other| {
        let key = |row: &TopRow| Reverse((row.flat, row.cum));
        let names = |row: &TopRow| (row.function.clone(), row.file.clone(), row.frame_type);
        key(one).cmp(&key(other)).then_with(|| names(one).cmp(&names(other)))
    });
    table
}
