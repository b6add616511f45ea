//! The three shapes of a sample in OTLP, and the conversion of samples that have none of them.

use crate::Sample;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleShape<'s> {
    /// No value and no timestamp, or a value of 0: receivers drop or reject it, so it is not written.
    Nothing,
    /// One aggregated value.
    Total(i64),
    /// Each timestamp counts 1.
    Timestamps(&'s [u64]),
    /// A value per timestamp.
    Timed(&'s [i64], &'s [u64]),
}

/// Values whose number differs from that of the timestamps are written as their sum.
pub(super) fn shape(sample: &Sample) -> SampleShape<'_> {
    let (values, times) = (&sample.values[..], &sample.timestamps_unix_nano[..]);
    if values.is_empty() && !times.is_empty() {
        SampleShape::Timestamps(times)
    } else if !times.is_empty() && values.len() == times.len() && values.iter().any(|value| *value != 0) {
        SampleShape::Timed(values, times)
    } else {
        match sample.total() {
            0 => SampleShape::Nothing,
            total => SampleShape::Total(total),
        }
    }
}
