//! The three shapes a sample may have on the wire, and what becomes of values that fit none.

use crate::Sample;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape<'s> {
    /// No value and no timestamp, or a value of 0: receivers drop it or refuse it, so it is not written.
    Nothing,
    /// One aggregated value.
    Total(i64),
    /// Each timestamp counts 1.
    Timestamps(&'s [u64]),
    /// A value per timestamp.
    Timed(&'s [i64], &'s [u64]),
}

/// Values that do not pair with the timestamps are written as their sum.
pub(super) fn shape(sample: &Sample) -> Shape<'_> {
    let (values, times) = (&sample.values[..], &sample.timestamps_unix_nano[..]);
    if values.is_empty() && !times.is_empty() {
        Shape::Timestamps(times)
    } else if !times.is_empty() && values.len() == times.len() {
        Shape::Timed(values, times)
    } else {
        match sample.total() {
            0 => Shape::Nothing,
            total => Shape::Total(total),
        }
    }
}
