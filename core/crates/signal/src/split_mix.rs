//! SplitMix64: the random numbers of all samplers. A state is advanced by [`INCREMENT`], and each state is mixed into one
//! uniform number. Not for secrets.

/// Difference of two consecutive states.
pub const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// The number of a state.
pub const fn mix(state: u64) -> u64 {
    let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}
