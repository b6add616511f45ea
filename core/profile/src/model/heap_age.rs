//! The label `age` of objects in use: a coarse age, in windows, so that a label has three values. Set by the engine's heap
//! estimates and removed by [`crate::transform::Reduction`].

/// Age of the objects of one in-use sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HeapAge {
    /// Allocated since the end of the previous window: in no earlier profile.
    New,
    /// In 1 to 5 earlier profiles.
    Survived,
    /// In at least [`HeapAge::OLD_WINDOWS`] earlier profiles.
    Old,
}

impl HeapAge {
    /// Key of the label.
    pub const LABEL: &'static str = "age";
    /// Number of window ends from which an object is old. One minute with windows of 10 s: longer than requests and most
    /// batches, and short enough to wait for. In windows instead of minutes, so that it follows `upload_interval` and can be
    /// verified in the profiles themselves.
    pub const OLD_WINDOWS: u32 = 6;
    const ALL: [Self; 3] = [Self::New, Self::Survived, Self::Old];

    /// The age of an object that lived at the end of so many earlier windows.
    pub fn of_windows(windows: u32) -> Self {
        match windows {
            0 => Self::New,
            Self::OLD_WINDOWS.. => Self::Old,
            _ => Self::Survived,
        }
    }

    /// Value of the label.
    pub const fn text(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Survived => "survived",
            Self::Old => "old",
        }
    }

    /// The age of a value of the label.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|age| age.text() == text)
    }
}
