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

/// A fast generator (SplitMix64) of uniform numbers.
pub struct Sequence(u64);

impl Sequence {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    #[allow(clippy::should_implement_trait)] // It never ends.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        mix(self.0)
    }

    /// A uniform number in [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A uniform number between half of `mean` and one and a half of it.
    pub fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + ((u128::from(self.next()) * u128::from(mean.max(1))) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_intervals_have_the_given_mean_and_stay_within_their_bounds() {
        let mut sequence = Sequence::new(1);
        let drawn: Vec<_> = (0..100_000).map(|_| sequence.around(10_000_000)).collect();
        let mean = drawn.iter().sum::<u64>() as f64 / 100_000.0;
        assert!((mean - 1e7).abs() < 5e4, "{mean}");
        assert!(drawn.iter().all(|interval| (5_000_000..15_000_000).contains(interval)));
    }
}
