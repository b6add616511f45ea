//! Prefetches the memory that the thread's previous walk read. Between two samples the program evicts that memory from the
//! caches, and consecutive stacks of a thread are mostly equal. Serial cache misses are most of the cost of a walk. The
//! stored addresses are hints: nothing is read through them.
//!
//! Without it, a walk takes 16.1 instead of 7.7 µs for 20 frames and 51.2 instead of 19.8 µs for 100 (median, Java 17 at 100 Hz,
//! caches emptied between samples). Every frame is derived from the one above and checked against the compilation id in the VM's
//! code.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::prefetch;

use super::pc_cache;

/// Threads whose ids collide share a history.
const THREADS: usize = 4096;
/// Compiled frames recorded per walk.
const FRAMES: usize = 64;
const ADDRESS_BITS: u32 = 48;
const LINES_AT: u32 = ADDRESS_BITS + pc_cache::INDEX_BITS;
/// Bytes that a walk reads of a code blob's header.
const HEADER_BYTES: usize = 8;

/// The history of one thread: a word per compiled frame, terminated by 0. A word holds the index of the pc-cache entry, its
/// cache lines, and the address of the blob's compile id.
#[repr(C, align(64))]
pub struct WalkHistory([AtomicU64; FRAMES]);

const _: () = assert!(LINES_AT + 2 <= u64::BITS);

/// Pages of threads that are never walked use no memory.
static TABLE: [WalkHistory; THREADS] = [const { WalkHistory([const { AtomicU64::new(0) }; FRAMES]) }; THREADS];

/// The history of a thread.
#[inline]
pub fn of(thread_id: u32) -> Option<&'static WalkHistory> {
    TABLE.get(thread_id as usize % THREADS)
}

/// Packs one frame.
#[inline]
fn word(pc: usize, frames: usize, header: usize) -> u64 {
    let (index, lines) = (pc_cache::index_of(pc) as u64, pc_cache::lines_for(frames) as u64);
    header as u64 & ((1 << ADDRESS_BITS) - 1) | index << ADDRESS_BITS | lines << LINES_AT
}

impl WalkHistory {
    /// Prefetches the history itself.
    #[inline]
    pub fn prefetch(&self) {
        prefetch::range(std::ptr::from_ref(self).cast(), size_of::<Self>() / 2);
    }

    /// Prefetches the memory that the previous walk read.
    #[inline]
    pub fn prefetch_frames(&self) {
        for word in &self.0 {
            let word = word.load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let index = word >> ADDRESS_BITS & ((1 << pc_cache::INDEX_BITS) - 1);
            pc_cache::prefetch(index as usize, (word >> LINES_AT) as usize);
            let header = word & ((1 << ADDRESS_BITS) - 1);
            prefetch::range(header as *const u8, HEADER_BYTES);
        }
    }

    /// Records the `index`th compiled frame: its pc, its number of frames, and the address of its compile id.
    #[inline]
    pub fn record(&self, index: usize, pc: usize, frames: usize, header: usize) {
        if let Some(slot) = self.0.get(index) {
            slot.store(word(pc, frames, header), Ordering::Relaxed);
        }
    }

    /// Terminates the history after `len` compiled frames.
    #[inline]
    pub fn finish(&self, len: usize) {
        if let Some(slot) = self.0.get(len) {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_frame_has_its_cache_entry_its_lines_and_its_compile_id() {
        let history = of(4_000_007).unwrap();
        history.record(0, 0x7f12_3456_7890, 5, 0x7f12_3456_7008);
        history.record(1, 0x7f12_3456_8000, 1, 0x7f12_3456_9008);
        history.record(FRAMES, 1, 1, 1);
        history.finish(1);
        let words: Vec<u64> = history.0.iter().map(|word| word.load(Ordering::Relaxed)).take(2).collect();
        assert_eq!(words[0] & ((1 << ADDRESS_BITS) - 1), 0x7f12_3456_7008);
        let index = words[0] >> ADDRESS_BITS & ((1 << pc_cache::INDEX_BITS) - 1);
        assert_eq!(index as usize, pc_cache::index_of(0x7f12_3456_7890));
        assert_eq!((words[0] >> LINES_AT) as usize, pc_cache::lines_for(5));
        assert_eq!(words[1], 0, "the walk ended there");
        history.prefetch();
        history.prefetch_frames();
    }
}
