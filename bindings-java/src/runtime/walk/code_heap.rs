//! Finds the code blob that holds a program counter, in HotSpot's code heaps. Guarded reads only: other threads add and
//! free blobs concurrently.
//!
//! # Versions
//! Upstream: `hotspot/share/memory/heap.hpp` (`CodeHeap`, `HeapBlock`), `hotspot/share/code/codeBlob.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | the segment map holds distances to a block's begin; 255 is a free segment | `blob_of` |
//! | 8–25 | `HeapBlock::Header::_used` is at 8 up to 21, at 4 in 25: the header has 16 or 8 bytes | the rounding in `blob_of` |
//! | 8–25 | `_name` is `nmethod` or `native nmethod` for methods | `kind_of` |
//! | 21 | `StubRoutines (continuation stubs)`; in 25 without the space | the prefix in `kind_of` |
//! | after 21, by 25 | `_code_begin` is an offset | `code_begin` |
//! | after 21, by 25 | `_frame_complete_offset` has 16 bits | `frame_complete` reads 16 bits in every version |

use super::environment::{BlobKind, WalkEnvironment};
use crate::runtime::vm::layout::{BlobPart, VmLayout};
use crate::runtime::vm::memory::VmMemory;

/// Upper bound of steps back in the segment map; each goes back by up to 254 segments.
const MAX_STEPS: usize = 100_000;
const NO_SEGMENT: u8 = 255;

/// The code blob that holds `pc`.
pub fn blob_of(memory: impl VmMemory, layout: &VmLayout, pc: usize) -> Option<usize> {
    for heap in layout.heaps.iter().take_while(|heap| **heap != 0) {
        let low = memory.load(heap + layout.heap_low)?;
        if pc < low || pc >= memory.load(heap + layout.heap_high)? {
            continue;
        }
        let segments = memory.load(heap + layout.heap_segments)?;
        let mut index = (pc - low) >> layout.segment_shift;
        let mut back = memory.byte(segments.wrapping_add(index))?;
        if back == NO_SEGMENT {
            return None;
        }
        for _ in 0..MAX_STEPS {
            if back == 0 {
                break;
            }
            index = index.checked_sub(usize::from(back))?;
            back = memory.byte(segments.wrapping_add(index))?;
        }
        let block = low + (index << layout.segment_shift);
        if back != 0 || memory.byte(block.wrapping_add(layout.block_used))? == 0 {
            return None;
        }
        // The header ends at the next word boundary after its last field.
        return Some((block + layout.block_used + 8) & !7);
    }
    None
}

/// The kind of a blob, by its name.
#[inline]
pub fn kind_of(memory: impl WalkEnvironment, layout: &VmLayout, blob: usize) -> Option<BlobKind> {
    let name = memory.load(blob + layout.blob_name)?;
    if let Some(kind) = memory.kind_of_name(name) {
        return Some(kind);
    }
    let bytes = |at: usize| memory.load(name.checked_add(at)?).map(usize::to_ne_bytes);
    let kind = match &bytes(0)? {
        b"nmethod\0" => BlobKind::Compiled,
        b"native n" => BlobKind::NativeWrapper,
        b"StubRout" if &bytes(14)? == b"continua" => return Some(BlobKind::ContinuationStub),
        _ => return Some(BlobKind::Stub),
    };
    memory.set_kind_of_name(name, kind);
    Some(kind)
}

/// The address of a blob's name.
pub fn name_address(memory: impl VmMemory, layout: &VmLayout, blob: usize) -> Option<usize> {
    memory.load(blob + layout.blob_name).filter(|name| *name >= 4096)
}

/// The address at which the code of a blob begins.
#[inline]
pub fn code_begin(memory: impl VmMemory, layout: &VmLayout, blob: usize) -> Option<usize> {
    begin_of(memory, blob, layout.blob_code_begin)
}

/// The address at which a part of a blob begins.
#[inline]
pub fn begin_of(memory: impl VmMemory, blob: usize, part: BlobPart) -> Option<usize> {
    match part {
        BlobPart::Pointer(offset) => memory.pointer(blob + offset),
        BlobPart::Offset(offset) => Some(blob.wrapping_add(memory.int(blob + offset)? as usize)),
    }
}

/// The address from which the frame is complete; beyond the code if it never is.
#[inline]
pub fn frame_complete(memory: impl VmMemory, layout: &VmLayout, blob: usize, code_begin: usize) -> Option<usize> {
    let offset = memory.int(blob + layout.blob_frame_complete)? as u16;
    Some(code_begin.wrapping_add(usize::from(offset)))
}

/// Frame size in bytes, including the return address; 0 if the blob has no fixed frame size.
#[inline]
pub fn frame_bytes(memory: impl VmMemory, layout: &VmLayout, blob: usize) -> Option<usize> {
    const MAX_WORDS: i32 = 1 << 17;
    memory
        .int(blob + layout.blob_frame_size)
        .map(|words| if (1..MAX_WORDS).contains(&words) { words as usize * 8 } else { 0 })
}
