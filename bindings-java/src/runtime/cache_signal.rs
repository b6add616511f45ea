//! What handlers found at program counters of compiled code, for the next handler: a fixed table without locks, filled and
//! read inside handlers of any thread. An entry names the compilation it was read from; compilations have numbers that are
//! never given again, so an entry of code that ended cannot be mistaken.

use std::sync::atomic::{fence, AtomicU64, Ordering};

use spanprof_signal::RawFrame;

const ENTRIES: usize = 8192;
/// Program counters with more inlined frames are decoded each time.
pub const MAX_CACHED: usize = 8;
const WORDS: usize = 6 + 2 * MAX_CACHED;

/// One program counter: two or three cache lines, of which one does for a frame without inlining.
#[repr(C, align(64))]
pub struct Entry {
    /// Even while whole, odd while written.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The code around a program counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code {
    pub blob: usize,
    pub compile_id: u32,
    pub frame_bytes: usize,
    /// From where on the code has its frame.
    pub complete: usize,
}

/// Pages that no entry is written to cost nothing.
static TABLE: [Entry; ENTRIES] =
    [const { Entry { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] } }; ENTRIES];

fn entry(pc: usize) -> Option<&'static Entry> {
    let spread = (pc as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ENTRIES.trailing_zeros());
    TABLE.get(spread as usize)
}

/// What was found at `pc` before: its code and its frames, innermost first, written to `frames`.
#[inline]
pub fn find(pc: usize, frames: &mut [RawFrame; MAX_CACHED]) -> Option<(Code, usize)> {
    let entry = entry(pc)?;
    let version = entry.version.load(Ordering::Acquire);
    let word = |index: usize| entry.words[index].load(Ordering::Relaxed);
    if version & 1 == 1 || word(0) != pc as u64 {
        return None;
    }
    let shape = word(2);
    let code = Code {
        blob: word(1) as usize,
        compile_id: shape as u32,
        frame_bytes: (shape >> 32 & 0xff_ffff) as usize * 8,
        complete: word(3) as usize,
    };
    let len = ((shape >> 56) as usize).min(MAX_CACHED);
    for (index, frame) in frames.iter_mut().take(len).enumerate() {
        *frame = RawFrame { code: word(4 + 2 * index), at: word(5 + 2 * index) };
    }
    fence(Ordering::Acquire);
    (entry.version.load(Ordering::Relaxed) == version).then_some((code, len))
}

/// Keeps what was found at `pc`. Gives up when another handler writes there.
pub fn keep(pc: usize, code: &Code, frames: &[RawFrame]) {
    let (Some(entry), true) = (entry(pc), frames.len() <= MAX_CACHED) else { return };
    let version = entry.version.load(Ordering::Relaxed);
    let taken = entry.version.compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed);
    if version & 1 == 1 || taken.is_err() {
        return;
    }
    fence(Ordering::Release);
    let set = |index: usize, value: u64| entry.words[index].store(value, Ordering::Relaxed);
    set(0, pc as u64);
    set(1, code.blob as u64);
    set(2, u64::from(code.compile_id) | ((code.frame_bytes / 8) as u64) << 32 | (frames.len() as u64) << 56);
    set(3, code.complete as u64);
    for (index, frame) in frames.iter().enumerate() {
        set(4 + 2 * index, frame.code);
        set(5 + 2 * index, frame.at);
    }
    entry.version.store(version.wrapping_add(2), Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_found_until_another_takes_its_place() {
        let code = Code { blob: 0x1000, compile_id: 77, frame_bytes: 96, complete: 0x1040 };
        let frames = [RawFrame { code: 1 << 40, at: 3 }, RawFrame { code: 2 << 40, at: 4 }];
        keep(0x5000, &code, &frames);
        let mut found = [RawFrame::default(); MAX_CACHED];
        assert_eq!(find(0x5000, &mut found), Some((code, 2)));
        assert_eq!(found[..2], frames);
        keep(0x5000, &Code { compile_id: 78, ..code }, &frames[..1]);
        assert_eq!(find(0x5000, &mut found), Some((Code { compile_id: 78, ..code }, 1)));
        assert_eq!(find(0x5001, &mut found), None);
    }
}
