//! Questions to profiles: filter, merge, which types there are, the top table, the stack tree. Answers are values; the
//! encoders and the command line print them.

mod filter;
mod merge;
mod top;
mod tree;

pub use filter::Filter;
pub use merge::merge;
pub use top::{top, TopRow, TopTable};
pub use tree::{tree, Node, StackTree};

use crate::ProfilesData;

/// One service's profiles of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSummary {
    pub service: String,
    /// [`crate::Profile::type_name`].
    pub type_name: String,
    /// [`crate::Profile::unit`].
    pub unit: String,
    pub samples: usize,
    /// Sum of the weights, in `unit`.
    pub total: i64,
    pub from_unix_nano: u64,
    pub to_unix_nano: u64,
}

/// What is there, sorted by service and type.
pub fn types(data: &ProfilesData) -> Vec<TypeSummary> {
    let _ = data;
    Vec::new()
}
