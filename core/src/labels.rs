//! Label sets of the process: key/value pairs interned to one small id. Label sets live as long as the process.

/// Id of an interned label set; 0 is the empty set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSetId(pub u32);

impl LabelSetId {
    /// The empty label set.
    pub const EMPTY: Self = Self(0);
}
