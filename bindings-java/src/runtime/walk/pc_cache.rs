//! A cache of decoded program counters of compiled code: a fixed, lock-free table that handlers of all threads read and
//! fill. An entry stores the compile id it was decoded from. Compile ids are never reused, so an entry of freed code cannot
//! match.

use std::sync::atomic::{fence, AtomicU64, Ordering};

use spanprof_signal::{prefetch, RawFrame};

const ENTRIES: usize = 8192;
/// Bits of an entry's index.
pub const INDEX_BITS: u32 = ENTRIES.trailing_zeros();
/// Program counters with more inlined frames are not cached.
pub const MAX_CACHED: usize = 10;
const HEADER_WORDS: usize = 3;
const WORDS: usize = HEADER_WORDS + 2 * MAX_CACHED;
const LINE_BYTES: usize = 64;
/// Cache lines of an entry.
pub const LINES: usize = size_of::<CacheEntry>() / LINE_BYTES;

/// One program counter: three cache lines. The first is enough for two frames.
#[repr(C, align(64))]
pub struct CacheEntry {
    /// Sequence lock: even when consistent, odd while being written.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

const _: () = assert!(LINES == 3);

/// The code blob and frame at a program counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcInfo {
    pub blob: usize,
    pub compile_id: u32,
    /// Frame size in bytes, including the return address.
    pub frame_bytes: usize,
    /// The frame is not complete at this program counter.
    pub before_frame: bool,
}

/// Pages without entries are never touched and use no memory.
static TABLE: [CacheEntry; ENTRIES] =
    [const { CacheEntry { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] } }; ENTRIES];

/// The index of a program counter's entry.
#[inline]
pub fn index_of(pc: usize) -> usize {
    ((pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - INDEX_BITS)) as usize
}

/// Prefetches the first cache lines of an entry.
#[inline]
pub fn prefetch(index: usize, lines: usize) {
    if let Some(entry) = TABLE.get(index) {
        prefetch::range(std::ptr::from_ref(entry).cast(), lines * LINE_BYTES);
    }
}

/// Cache lines used by an entry with this number of frames.
#[inline]
pub fn lines_for(frames: usize) -> usize {
    ((1 + HEADER_WORDS + 2 * frames) * size_of::<u64>()).div_ceil(LINE_BYTES)
}

/// Looks `pc` up. Returns its code blob and frame, and the number of Java frames written to `frames`, innermost first.
#[inline]
pub fn find(pc: usize, frames: &mut [RawFrame; MAX_CACHED]) -> Option<(PcInfo, usize)> {
    let entry = TABLE.get(index_of(pc))?;
    let version = entry.version.load(Ordering::Acquire);
    let word = |index: usize| entry.words[index].load(Ordering::Relaxed);
    if version & 1 == 1 || word(0) != pc as u64 {
        return None;
    }
    let (blob, sizes) = (word(1), word(2));
    let info = PcInfo {
        blob: (blob & !1) as usize,
        compile_id: sizes as u32,
        frame_bytes: (sizes >> 32 & 0xff_ffff) as usize * 8,
        before_frame: blob & 1 == 1,
    };
    let len = ((sizes >> 56) as usize).min(MAX_CACHED);
    for (index, frame) in frames.iter_mut().take(len).enumerate() {
        *frame = RawFrame { code: word(HEADER_WORDS + 2 * index), at: word(HEADER_WORDS + 1 + 2 * index) };
    }
    fence(Ordering::Acquire);
    (entry.version.load(Ordering::Relaxed) == version).then_some((info, len))
}

/// Inserts an entry for `pc`. Gives up if another handler is writing it.
pub fn insert(pc: usize, info: &PcInfo, frames: &[RawFrame]) {
    let (Some(entry), true) = (TABLE.get(index_of(pc)), frames.len() <= MAX_CACHED) else { return };
    let version = entry.version.load(Ordering::Relaxed);
    let locked = entry.version.compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed);
    if version & 1 == 1 || locked.is_err() {
        return;
    }
    fence(Ordering::Release);
    let set = |index: usize, value: u64| entry.words[index].store(value, Ordering::Relaxed);
    set(0, pc as u64);
    set(1, info.blob as u64 & !1 | u64::from(info.before_frame));
    set(2, u64::from(info.compile_id) | ((info.frame_bytes / 8) as u64) << 32 | (frames.len() as u64) << 56);
    for (index, frame) in frames.iter().enumerate() {
        set(HEADER_WORDS + 2 * index, frame.code);
        set(HEADER_WORDS + 1 + 2 * index, frame.at);
    }
    entry.version.store(version.wrapping_add(2), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_until_another_one_replaces_it() {
        let info = PcInfo { blob: 0x1000, compile_id: 77, frame_bytes: 96, before_frame: true };
        let frames = [RawFrame { code: 1 << 40, at: 3 }, RawFrame { code: 2 << 40, at: 4 }];
        insert(0x5000, &info, &frames);
        let mut found = [RawFrame::default(); MAX_CACHED];
        assert_eq!(find(0x5000, &mut found), Some((info, 2)));
        assert_eq!(found[..2], frames);
        let replacement = PcInfo { compile_id: 78, before_frame: false, ..info };
        insert(0x5000, &replacement, &frames[..1]);
        assert_eq!(find(0x5000, &mut found), Some((replacement, 1)));
        assert_eq!(find(0x5001, &mut found), None);
    }

    #[test]
    fn two_frames_fit_in_the_first_cache_line_and_the_maximum_in_the_last() {
        assert_eq!([1, 2, 3, 6, 7, MAX_CACHED].map(lines_for), [1, 1, 2, 2, 3, LINES]);
    }
}
