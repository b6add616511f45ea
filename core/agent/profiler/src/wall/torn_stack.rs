//! Frames of a thread that ran while the wall sampler walked it. Used by the wall sampler only.

use std::ops::Range;

use spanprof_signal::{DropReason, RawFrame};

/// Number of frames, counted from the root, that two stacks share.
pub(crate) fn common_root(left: &[RawFrame], right: &[RawFrame]) -> usize {
    left.iter().rev().zip(right.iter().rev()).take_while(|(left, right)| left == right).count()
}

/// Puts the reason on the leaf side of the confirmed frames: it replaces the next frame, or is inserted if all frames are
/// confirmed. The buffer has a capacity of the depth plus one.
pub(crate) fn place_reason(buffer: &mut [RawFrame], confirmed: Range<usize>, len: usize) -> Range<usize> {
    let reason = RawFrame::reason(DropReason::MovedDuringWalk);
    match confirmed.start {
        0 => {
            buffer.copy_within(0..len, 1);
            buffer[0] = reason;
            0..len + 1
        }
        start => {
            buffer[start - 1] = reason;
            start - 1..len
        }
    }
}
