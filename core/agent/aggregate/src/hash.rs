//! Fast hashing of small keys for the tables of this crate. Not resistant to chosen collisions: tables with keys from outside
//! are capped.

use spanprof_signal::RawFrame;
use std::hash::{BuildHasherDefault, Hasher};

/// Mixes `word` into `hash`: multiplies to 128 bits and folds the halves.
#[inline]
pub(crate) fn mixed(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * 0x9E37_79B9_7F4A_7C15;
    (product as u64) ^ (product >> 64) as u64 ^ hash.rotate_left(23)
}

/// Bytes as words, the last one padded with zeroes. Avoids a copy of variable length, which would compile to a call.
#[inline]
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let whole = bytes.chunks_exact(8);
    let rest = whole.remainder();
    let last = (!rest.is_empty()).then(|| short_word(rest));
    whole
        .map(|chunk| {
            u64::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]])
        })
        .chain(last)
}

/// One to seven bytes as a word: overlapping reads instead of a loop.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let read = |from: usize| bytes.get(from).copied().map_or(0, u64::from);
    let len = bytes.len();
    if let (Some(low), Some(high)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u32::from_le_bytes(*low)) | u64::from(u32::from_le_bytes(*high)) << (8 * (len - 4));
    }
    read(0) | read(len / 2) << (8 * (len / 2)) | read(len - 1) << (8 * (len - 1))
}

/// Hash of bytes.
#[inline]
pub fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let start = mixed(seed ^ 0x2545_F491_4F6C_DD1D, bytes.len() as u64);
    let hash = words(bytes).fold(start, mixed);
    mixed(hash, 0xD6E8_FEB8_6659_FD93)
}

const LANES: usize = 4;
const SEEDS: [u64; LANES] =
    [0x243F_6A88_85A3_08D3, 0x1319_8A2E_0370_7344, 0xA409_3822_299F_31D0, 0x082E_FA98_EC4E_6C89];

/// Hash of a raw stack. Four independent lanes, so that a stack of 100 frames takes a tenth of a microsecond.
pub(crate) fn hash_frames(frames: &[RawFrame]) -> u64 {
    let mut lanes = SEEDS;
    let mut pairs = frames.chunks_exact(2);
    for pair in &mut pairs {
        lanes[0] = mixed(lanes[0], pair[0].code);
        lanes[1] = mixed(lanes[1], pair[0].at);
        lanes[2] = mixed(lanes[2], pair[1].code);
        lanes[3] = mixed(lanes[3], pair[1].at);
    }
    for frame in pairs.remainder() {
        lanes[0] = mixed(lanes[0], frame.code);
        lanes[1] = mixed(lanes[1], frame.at);
    }
    lanes.iter().fold(frames.len() as u64, |hash, lane| mixed(hash, *lane))
}

/// Hash of many numbers, in lanes as well.
pub(crate) fn hash_numbers<T>(items: &[T], number: impl Fn(&T) -> u64) -> u64 {
    let mut lanes = SEEDS;
    let mut quads = items.chunks_exact(LANES);
    for quad in &mut quads {
        for (lane, item) in lanes.iter_mut().zip(quad) {
            *lane = mixed(*lane, number(item));
        }
    }
    for item in quads.remainder() {
        lanes[0] = mixed(lanes[0], number(item));
    }
    lanes.iter().fold(items.len() as u64, |hash, lane| mixed(hash, *lane))
}

/// A hasher for keys of few words.
#[derive(Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_bytes(self.0, bytes);
    }

    fn write_u32(&mut self, word: u32) {
        self.0 = mixed(self.0, u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mixed(self.0, word);
    }

    fn write_usize(&mut self, word: usize) {
        self.0 = mixed(self.0, word as u64);
    }

    fn finish(&self) -> u64 {
        mixed(self.0, 0xA076_1D64_78BD_642F)
    }
}

/// A map with [`WordHasher`].
pub type WordMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<WordHasher>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_words_in_order_padded_with_zeroes() {
        let bytes: Vec<u8> = (1..=25).map(|byte| byte * 7).collect();
        for len in 0..=bytes.len() {
            let mut filled = bytes[..len].to_vec();
            filled.resize(len.div_ceil(8) * 8, 0);
            let expected: Vec<_> = filled.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
            assert_eq!(words(&bytes[..len]).collect::<Vec<_>>(), expected, "{len} bytes");
        }
    }

    #[test]
    fn stacks_that_differ_in_one_word_have_different_hashes() {
        let frames: Vec<_> = (0..101).map(|n| RawFrame { code: 0x7f00_0000_0000 + n * 64, at: n }).collect();
        let hash = hash_frames(&frames);
        for changed in 0..frames.len() {
            let mut other = frames.clone();
            other[changed].at ^= 1;
            assert_ne!(hash_frames(&other), hash);
        }
        let mut swapped = frames.clone();
        swapped.swap(3, 4);
        assert_ne!(hash_frames(&swapped), hash);
        assert_ne!(hash_frames(&frames[..100]), hash);
    }

    #[test]
    fn numbers_that_differ_at_one_index_have_different_hashes() {
        let numbers: Vec<u32> = (0..101).collect();
        let hash_of = |numbers: &[u32]| hash_numbers(numbers, |number| u64::from(*number));
        for changed in 0..numbers.len() {
            let mut other = numbers.clone();
            other[changed] ^= 1 << (changed % 32);
            assert_ne!(hash_of(&other), hash_of(&numbers));
        }
        let mut swapped = numbers.clone();
        swapped.swap(3, 4);
        assert_ne!(hash_of(&swapped), hash_of(&numbers));
        assert_ne!(hash_of(&numbers[..100]), hash_of(&numbers));
    }
}
