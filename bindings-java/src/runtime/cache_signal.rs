//! What handlers found at program counters of compiled code, for the next handler: a fixed table without locks, filled and
//! read inside handlers of any thread. An entry names the compilation it was read from; compilations have numbers that are
//! never given again, so an entry of code that ended cannot be mistaken.

use std::sync::atomic::{fence, AtomicU64, Ordering};

use spanprof_signal::{prefetch, RawFrame};

const ENTRIES: usize = 8192;
/// Bits of an entry's number.
pub const NUMBER_BITS: u32 = ENTRIES.trailing_zeros();
/// Program counters with more inlined frames are decoded each time.
pub const MAX_CACHED: usize = 10;
const HEAD: usize = 3;
const WORDS: usize = HEAD + 2 * MAX_CACHED;
const LINE_BYTES: usize = 64;
/// Lines of an entry.
pub const LINES: usize = size_of::<Entry>() / LINE_BYTES;

/// One program counter: three cache lines, of which the first does for two frames.
#[repr(C, align(64))]
pub struct Entry {
    /// Even while whole, odd while written.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

const _: () = assert!(LINES == 3);

/// The code around a program counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub blob: usize,
    pub compile_id: u32,
    /// What lies on the stack here, the return address included.
    pub frame_bytes: usize,
    /// The code has no frame here yet, or not the whole of it.
    pub before_frame: bool,
}

/// Pages that no entry is written to cost nothing.
static TABLE: [Entry; ENTRIES] =
    [const { Entry { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] } }; ENTRIES];

/// The number of the entry in which a program counter's would lie.
#[inline]
pub fn number_of(pc: usize) -> usize {
    ((pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NUMBER_BITS)) as usize
}

/// Has the first lines of an entry brought near.
#[inline]
pub fn fetch_ahead(number: usize, lines: usize) {
    if let Some(entry) = TABLE.get(number) {
        prefetch::range(std::ptr::from_ref(entry).cast(), lines * LINE_BYTES);
    }
}

/// Lines that an entry of so many frames takes.
#[inline]
pub fn lines_of(frames: usize) -> usize {
    ((1 + HEAD + 2 * frames) * size_of::<u64>()).div_ceil(LINE_BYTES)
}

/// What was found at `pc` before: its code and its frames, innermost first, written to `frames`.
#[inline]
pub fn find(pc: usize, frames: &mut [RawFrame; MAX_CACHED]) -> Option<(Code, usize)> {
    let entry = TABLE.get(number_of(pc))?;
    let version = entry.version.load(Ordering::Acquire);
    let word = |index: usize| entry.words[index].load(Ordering::Relaxed);
    if version & 1 == 1 || word(0) != pc as u64 {
        return None;
    }
    let (place, shape) = (word(1), word(2));
    let code = Code {
        blob: (place & !1) as usize,
        compile_id: shape as u32,
        frame_bytes: (shape >> 32 & 0xff_ffff) as usize * 8,
        before_frame: place & 1 == 1,
    };
    let len = ((shape >> 56) as usize).min(MAX_CACHED);
    for (index, frame) in frames.iter_mut().take(len).enumerate() {
        *frame = RawFrame { code: word(HEAD + 2 * index), at: word(HEAD + 1 + 2 * index) };
    }
    fence(Ordering::Acquire);
    (entry.version.load(Ordering::Relaxed) == version).then_some((code, len))
}

/// Keeps what was found at `pc`. Gives up when another handler writes there.
pub fn keep(pc: usize, code: &Code, frames: &[RawFrame]) {
    let (Some(entry), true) = (TABLE.get(number_of(pc)), frames.len() <= MAX_CACHED) else { return };
    let version = entry.version.load(Ordering::Relaxed);
    let taken = entry.version.compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed);
    if version & 1 == 1 || taken.is_err() {
        return;
    }
    fence(Ordering::Release);
    let set = |index: usize, value: u64| entry.words[index].store(value, Ordering::Relaxed);
    set(0, pc as u64);
    set(1, code.blob as u64 & !1 | u64::from(code.before_frame));
    set(2, u64::from(code.compile_id) | ((code.frame_bytes / 8) as u64) << 32 | (frames.len() as u64) << 56);
    for (index, frame) in frames.iter().enumerate() {
        set(HEAD + 2 * index, frame.code);
        set(HEAD + 1 + 2 * index, frame.at);
    }
    entry.version.store(version.wrapping_add(2), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_until_another_takes_its_place() {
        let code = Code { blob: 0x1000, compile_id: 77, frame_bytes: 96, before_frame: true };
        let frames = [RawFrame { code: 1 << 40, at: 3 }, RawFrame { code: 2 << 40, at: 4 }];
        keep(0x5000, &code, &frames);
        let mut found = [RawFrame::default(); MAX_CACHED];
        assert_eq!(find(0x5000, &mut found), Some((code, 2)));
        assert_eq!(found[..2], frames);
        let again = Code { compile_id: 78, before_frame: false, ..code };
        keep(0x5000, &again, &frames[..1]);
        assert_eq!(find(0x5000, &mut found), Some((again, 1)));
        assert_eq!(find(0x5001, &mut found), None);
    }

    #[test]
    fn two_frames_lie_in_the_first_line_and_all_of_them_in_the_last() {
        assert_eq!([1, 2, 3, 6, 7, MAX_CACHED].map(lines_of), [1, 1, 2, 2, 3, LINES]);
    }
}
