//! Random numbers for ids, intervals and the choice of threads. Not for secrets.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::split_mix;

/// Fills an array from `/dev/urandom`, or from clocks and addresses where that cannot be read.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        let address = &bytes as *const _ as u64;
        let time = crate::monotonic_ns() ^ crate::unix_ns().rotate_left(32);
        let mut sequence = Sequence::new(time ^ address ^ u64::from(std::process::id()));
        for chunk in bytes.chunks_mut(8) {
            let word = sequence.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
    bytes
}

/// A random UUID (version 4) as text.
pub fn uuid() -> String {
    let mut bytes: [u8; 16] = bytes();
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let hex = hex::encode(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A fast generator (SplitMix64) of uniform numbers.
pub struct Sequence(u64);

impl Sequence {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(split_mix::INCREMENT);
        split_mix::mix(self.0)
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

/// The sequence that all threads share, at its next number. No lock, no allocation; safe in a forked child.
fn shared() -> Sequence {
    static STATE: AtomicU64 = AtomicU64::new(0);
    if STATE.load(Ordering::Relaxed) == 0 {
        let _ = STATE.compare_exchange(0, crate::monotonic_ns(), Ordering::Relaxed, Ordering::Relaxed);
    }
    Sequence::new(STATE.fetch_add(split_mix::INCREMENT, Ordering::Relaxed))
}

/// A uniform number, on any thread.
pub fn number() -> u64 {
    shared().next()
}

/// A uniform number in [0, 1), on any thread. No lock, no allocation.
pub fn fraction() -> f64 {
    shared().fraction()
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

    #[test]
    fn a_uuid_has_its_version_and_differs_from_the_next() {
        let uuid = uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert_ne!(uuid, super::uuid());
    }
}
