//! The top table: per function, how much it spent itself and with what it called.

use crate::{FrameType, ProfilesData};

/// One function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRow {
    pub function: String,
    pub file: String,
    pub frame_type: FrameType,
    /// Weight of samples whose leaf it is.
    pub flat: i64,
    /// Weight of samples it is anywhere in, each counted once.
    pub cum: i64,
}

/// Functions by falling `flat`, then falling `cum`, then name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopTable {
    pub type_name: String,
    pub unit: String,
    /// Weight of all samples; shares are of this.
    pub total: i64,
    pub samples: usize,
    pub rows: Vec<TopRow>,
}

/// The table of one profile type.
pub fn top(data: &ProfilesData, type_name: &str) -> TopTable {
    let _ = data;
    TopTable { type_name: type_name.to_owned(), ..TopTable::default() }
}
