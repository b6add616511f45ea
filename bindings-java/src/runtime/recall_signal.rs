//! What a thread's last walk touched, so that its next one can ask for all of it at once. Between two samples the program
//! has the caches for itself, and the stack of a thread is mostly what it was: one miss after the other, each waiting for
//! the one before, is most of what a walk costs. Hints only: nothing here is believed.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::prefetch;

use super::cache_signal;

/// Threads whose ids meet share what is recalled.
const THREADS: usize = 4096;
/// Compiled frames recalled of one walk.
const FRAMES: usize = 64;
const ADDRESS_BITS: u32 = 48;
const LINES_AT: u32 = ADDRESS_BITS + cache_signal::NUMBER_BITS;
/// What is read of code that a walk comes by.
const HEADER_BYTES: usize = 8;

/// One thread's. A word per compiled frame, then 0: the entry of its program counter, the lines of that, and where the
/// code's number lies.
#[repr(C, align(64))]
pub struct Recalled([AtomicU64; FRAMES]);

const _: () = assert!(LINES_AT + 2 <= u64::BITS);

/// Pages of threads that are never walked cost nothing.
static TABLE: [Recalled; THREADS] = [const { Recalled([const { AtomicU64::new(0) }; FRAMES]) }; THREADS];

/// What was kept of a thread.
#[inline]
pub fn of(thread_id: u32) -> Option<&'static Recalled> {
    TABLE.get(thread_id as usize % THREADS)
}

/// One frame's word.
#[inline]
fn word(pc: usize, frames: usize, header: usize) -> u64 {
    let (number, lines) = (cache_signal::number_of(pc) as u64, cache_signal::lines_of(frames) as u64);
    header as u64 & ((1 << ADDRESS_BITS) - 1) | number << ADDRESS_BITS | lines << LINES_AT
}

impl Recalled {
    /// Has what is read of it brought near.
    #[inline]
    pub fn fetch_ahead(&self) {
        prefetch::range(std::ptr::from_ref(self).cast(), size_of::<Self>() / 2);
    }

    /// Has what the last walk touched brought near.
    #[inline]
    pub fn fetch_all(&self) {
        for word in &self.0 {
            let word = word.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let number = word >> ADDRESS_BITS & ((1 << cache_signal::NUMBER_BITS) - 1);
            cache_signal::fetch_ahead(number as usize, (word >> LINES_AT) as usize);
            let header = word & ((1 << ADDRESS_BITS) - 1);
            prefetch::range(header as *const u8, HEADER_BYTES);
        }
    }

    /// Keeps that the `index`th compiled frame is at `pc`, with so many frames; its code's number lies at `header`.
    #[inline]
    pub fn keep(&self, index: usize, pc: usize, frames: usize, header: usize) {
        if let Some(place) = self.0.get(index) {
            place.store(word(pc, frames, header), Ordering::Relaxed);
        }
    }

    /// A walk came by so many compiled frames.
    #[inline]
    pub fn end(&self, len: usize) {
        if let Some(place) = self.0.get(len) {
            place.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_recalled_by_its_entry_its_lines_and_its_code() {
        let recalled = of(4_000_007).unwrap();
        recalled.keep(0, 0x7f12_3456_7890, 5, 0x7f12_3456_7008);
        recalled.keep(1, 0x7f12_3456_8000, 1, 0x7f12_3456_9008);
        recalled.keep(FRAMES, 1, 1, 1);
        recalled.end(1);
        let words: Vec<u64> = recalled.0.iter().map(|word| word.load(Ordering::Relaxed)).take(2).collect();
        assert_eq!(words[0] & ((1 << ADDRESS_BITS) - 1), 0x7f12_3456_7008);
        let number = words[0] >> ADDRESS_BITS & ((1 << cache_signal::NUMBER_BITS) - 1);
        assert_eq!(number as usize, cache_signal::number_of(0x7f12_3456_7890));
        assert_eq!((words[0] >> LINES_AT) as usize, cache_signal::lines_of(5));
        assert_eq!(words[1], 0, "the walk ended there");
        recalled.fetch_ahead();
        recalled.fetch_all();
    }
}
