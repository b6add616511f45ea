//! Random numbers for ids, intervals and the choice of threads. Not for secrets.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::{monotonic_ns, unix_ns};
use spanprof_signal::{split_mix, Sequence};

/// Fills an array from `/dev/urandom`, or from clocks and addresses where that cannot be read.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        let address = &bytes as *const _ as u64;
        let time = monotonic_ns() ^ unix_ns().rotate_left(32);
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

/// The sequence that all threads share, at its next number. No lock, no allocation; safe in a forked child.
fn shared() -> Sequence {
    static STATE: AtomicU64 = AtomicU64::new(0);
    if STATE.load(Ordering::Relaxed) == 0 {
        let _ = STATE.compare_exchange(0, monotonic_ns(), Ordering::Relaxed, Ordering::Relaxed);
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
    fn a_uuid_has_its_version_and_differs_from_the_next() {
        let uuid = uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert_ne!(uuid, super::uuid());
    }
}
