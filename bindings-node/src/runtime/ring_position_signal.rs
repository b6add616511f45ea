//! Where samples stand: the ring that they enter and its position, by which code is told from what lay at its address before and
//! after; and frames that say by which position they are to be named, since they are handed over later than they were seen. Asked
//! by handlers too.

use spanprof::sys;
use spanprof_signal::RawFrame;

/// A ring, and a position in it. Positions grow from run to run as long as the ring is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPosition {
    pub ring: usize,
    pub head: u64,
}

impl RingPosition {
    /// Before the first run.
    pub const NONE: Self = Self { ring: 0, head: 0 };

    /// Where samples stand now.
    pub fn now() -> Self {
        sys::inbox_in_use().map_or(Self::NONE, |inbox| {
            let ring = inbox.ring();
            Self { ring: std::ptr::from_ref(ring) as usize, head: ring.head() }
        })
    }

    /// All samples of the ring in use that stand below have been named.
    pub fn named_up_to() -> u64 {
        sys::inbox_in_use().map_or(0, |inbox| inbox.ring().tail())
    }
}

/// Set in frames that are to be named by an earlier position; no code lies as high.
const SEEN_EARLIER: u64 = 1 << 63;

/// A frame in code of V8, to be named as what lay at `address` when the ring stood at `position`.
pub fn seen_at(position: u64, address: u64) -> RawFrame {
    RawFrame { code: SEEN_EARLIER | position, at: address }
}

/// Address and position of a frame in code of V8 that stands in the ring at `position`.
pub fn meant(frame: RawFrame, position: u64) -> (u64, u64) {
    match frame.code & SEEN_EARLIER {
        0 => (frame.code + frame.at, position),
        _ => (frame.at, frame.code & !SEEN_EARLIER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_named_by_where_it_was_seen_if_it_says_so() {
        assert_eq!(meant(RawFrame { code: 0x7000, at: 0x12 }, 9), (0x7012, 9));
        assert_eq!(meant(seen_at(5, 0x7012), 9), (0x7012, 5));
    }
}
