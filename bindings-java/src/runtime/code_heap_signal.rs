//! Which piece of generated code a program counter lies in. Guarded reads only: code comes and goes while we look.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::layout::{CodeBegin, Layout};
use super::memory_signal::{byte, int, pointer, word};

/// Steps back in the segment map; each goes back by up to 254 segments.
const MAX_STEPS: usize = 100_000;
const NO_SEGMENT: u8 = 255;

/// What a piece of code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A compiled method.
    Compiled,
    /// The code by which Java calls a native method: it has one frame, and nothing is ever done to it.
    Wrapper,
    /// The stubs by which frames of a virtual thread return into the heap.
    Continuation,
    /// Any other code of the VM's own making.
    Stub,
}

/// The blob that holds `pc`.
pub fn blob_of(layout: &Layout, pc: usize) -> Option<usize> {
    for heap in layout.heaps.iter().take_while(|heap| **heap != 0) {
        let low = word(heap + layout.heap_low)?;
        if pc < low || pc >= word(heap + layout.heap_high)? {
            continue;
        }
        let segments = word(heap + layout.heap_segments)?;
        let mut index = (pc - low) >> layout.segment_shift;
        let mut back = byte(segments.wrapping_add(index))?;
        if back == NO_SEGMENT {
            return None;
        }
        for _ in 0..MAX_STEPS {
            if back == 0 {
                break;
            }
            index = index.checked_sub(usize::from(back))?;
            back = byte(segments.wrapping_add(index))?;
        }
        let block = low + (index << layout.segment_shift);
        if back != 0 || byte(block + layout.block_used)? == 0 {
            return None;
        }
        // The header is one word longer than its last field, up to the next word.
        return Some((block + layout.block_used + 8) & !7);
    }
    None
}

/// Texts that name compiled code, by address: the VM has one of each.
static COMPILED_NAMES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// What a blob is, by the VM's own name for it.
#[inline]
pub fn kind_of(layout: &Layout, blob: usize) -> Option<Kind> {
    let name = word(blob + layout.blob_name)?;
    let known = |kind: usize| COMPILED_NAMES[kind].load(Ordering::Relaxed) == name;
    if known(0) {
        return Some(Kind::Compiled);
    }
    if known(1) {
        return Some(Kind::Wrapper);
    }
    let bytes = |at: usize| word(name.checked_add(at)?).map(usize::to_ne_bytes);
    let (known, kind) = match &bytes(0)? {
        b"nmethod\0" => (&COMPILED_NAMES[0], Kind::Compiled),
        b"native n" => (&COMPILED_NAMES[1], Kind::Wrapper),
        b"StubRout" if &bytes(14)? == b"continua" => return Some(Kind::Continuation),
        _ => return Some(Kind::Stub),
    };
    known.store(name, Ordering::Relaxed);
    Some(kind)
}

/// The VM's name of a blob, for the drain thread.
pub fn name_of(layout: &Layout, blob: usize) -> Option<String> {
    let mut at = pointer_to_text(layout, blob)?;
    let mut text = Vec::new();
    while text.len() < 128 {
        match byte(at)? {
            0 => break,
            letter => text.push(letter),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn pointer_to_text(layout: &Layout, blob: usize) -> Option<usize> {
    word(blob + layout.blob_name).filter(|name| *name >= 4096)
}

/// Where the code of a blob begins.
#[inline]
pub fn code_begin(layout: &Layout, blob: usize) -> Option<usize> {
    match layout.blob_code_begin {
        CodeBegin::Pointer(offset) => pointer(blob + offset),
        CodeBegin::Offset(offset) => Some(blob.wrapping_add(int(blob + offset)? as usize)),
    }
}

/// From where on the code has its frame; beyond everything when it never has.
#[inline]
pub fn frame_complete(layout: &Layout, blob: usize, code_begin: usize) -> Option<usize> {
    let offset = int(blob + layout.blob_frame_complete)? as u16;
    Some(code_begin.wrapping_add(usize::from(offset)))
}

/// The frame of a blob's code in bytes, its return address included; 0 when it has none of a fixed size.
#[inline]
pub fn frame_bytes(layout: &Layout, blob: usize) -> Option<usize> {
    const LARGEST_WORDS: i32 = 1 << 17;
    int(blob + layout.blob_frame_size)
        .map(|words| if (1..LARGEST_WORDS).contains(&words) { words as usize * 8 } else { 0 })
}
