//! Distances between the samples of a Poisson process over allocated bytes. An allocation of S bytes that exceeds the distance
//! is selected: its probability is 1 − e^(−S/R), where R is the mean interval. Not here: who counts the bytes
//! (`thread_sampler`), weights (`spanprof-aggregate`).

/// Upper bound of a distance, bytes.
const MAX_DISTANCE: f64 = (1u64 << 60) as f64;

/// Bytes until the next sample, for a mean interval of `interval` bytes. `random` has 64 random bits.
pub fn exponential_distance(random: u64, interval: u64) -> i64 {
    // Truncation is exact: S bytes exceed the truncated distance if and only if they exceed the distance.
    (unit_distance(random) * interval as f64).min(MAX_DISTANCE) as i64
}

/// An exponential distance with mean 1.
fn unit_distance(random: u64) -> f64 {
    // In (0, 1].
    let uniform = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -ln(uniform)
}

/// The natural logarithm of a positive normal number, to 12 digits. `core` has none, and the mathematics library is not
/// part of this crate.
fn ln(x: f64) -> f64 {
    const TERMS: [f64; 11] = [
        1.0 / 21.0,
        1.0 / 19.0,
        1.0 / 17.0,
        1.0 / 15.0,
        1.0 / 13.0,
        1.0 / 11.0,
        1.0 / 9.0,
        1.0 / 7.0,
        1.0 / 5.0,
        1.0 / 3.0,
        1.0,
    ];
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // ln m = 2 artanh((m − 1) / (m + 1)), a series in odd powers of at most 1/3.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let series = TERMS.iter().fold(0.0, |sum, term| sum * ratio * ratio + term);
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * ratio * series
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::split_mix;

    #[test]
    fn the_logarithm_equals_that_of_the_mathematics_library() {
        for x in [f64::MIN_POSITIVE, 1e-16, 1e-9, 0.1, 0.499_999, 0.5, 0.75, 0.999_999_999, 1.0, 1.5, 3.0] {
            assert!((ln(x) - x.ln()).abs() <= 1e-11 * x.ln().abs().max(1.0), "{x}: {} {}", ln(x), x.ln());
        }
    }

    #[test]
    fn sizes_exceed_a_distance_with_their_probability() {
        const ROUNDS: u64 = if cfg!(miri) { 200 } else { 200_000 };
        for size in [1i64, 10, 100, 1000, 5000] {
            let distance = |number| exponential_distance(split_mix::mix(number), 1000);
            let selected = (0..ROUNDS).filter(|number| distance(*number) < size).count() as f64;
            let expected = 1.0 - (-(size as f64) / 1000.0).exp();
            let (rate, error) = (selected / ROUNDS as f64, (expected * (1.0 - expected) / ROUNDS as f64).sqrt());
            assert!((rate - expected).abs() < 5.0 * error, "{size}: {rate} instead of {expected} ± {error}");
        }
    }
}
