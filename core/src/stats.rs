//! The profiler's own health: every counter with its unit and one sentence.

/// One value of `stats()`.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// A counter or a size.
    Count(u64),
    /// Seconds or a ratio.
    Number(f64),
    /// A fact.
    Text(String),
}

/// What `stats()` returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Name and value, in the order of the reference page. Names are dotted, e.g. `dropped.ring_full`.
    pub entries: Vec<(String, StatValue)>,
}
