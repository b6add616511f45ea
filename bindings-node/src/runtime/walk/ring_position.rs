//! Positions in the sample ring. An address is resolved to the code that lay there at a sample's position. A frame that is
//! submitted later than it was captured carries the position of its capture. Used in handlers too.

use spanprof_signal::RawFrame;

/// A ring, and a position in it. Positions grow across runs as long as the ring is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPosition {
    pub ring: usize,
    pub head: u64,
}

impl RingPosition {
    /// Before the first run.
    pub const NONE: Self = Self { ring: 0, head: 0 };

    /// The current head of the ring in use.
    pub fn now() -> Self {
        spanprof_os::inbox_in_use().map_or(Self::NONE, |inbox| {
            let ring = inbox.ring();
            Self { ring: std::ptr::from_ref(ring) as usize, head: ring.head() }
        })
    }

    /// The tail of the ring in use: every sample below it is resolved.
    pub fn resolved_up_to() -> u64 {
        spanprof_os::inbox_in_use().map_or(0, |inbox| inbox.ring().tail())
    }
}

/// Set in frames that carry their own position; no code has such an address.
const HAS_OWN_POSITION: u64 = 1 << 63;

/// A frame in V8's code that is resolved to the code at `address` when the ring's head was at `position`.
pub fn frame_at_position(position: u64, address: u64) -> RawFrame {
    RawFrame { code: HAS_OWN_POSITION | position, at: address }
}

/// Address and position of a frame in V8's code; `position` is that of its sample in the ring.
pub fn address_and_position(frame: RawFrame, position: u64) -> (u64, u64) {
    match frame.code & HAS_OWN_POSITION {
        0 => (frame.code + frame.at, position),
        _ => (frame.at, frame.code & !HAS_OWN_POSITION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_resolved_at_its_own_position_if_it_carries_one() {
        assert_eq!(address_and_position(RawFrame { code: 0x7000, at: 0x12 }, 9), (0x7012, 9));
        assert_eq!(address_and_position(frame_at_position(5, 0x7012), 9), (0x7012, 5));
    }
}
