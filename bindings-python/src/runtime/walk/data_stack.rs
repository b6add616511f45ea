//! Bounds of frames on a thread's data stack (from 3.11 on). They distinguish a live frame from a popped one, whose contents
//! remain in memory. Used only by the walk of another thread; the walk in the handler starts from a live frame.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.10 | frames are objects: no data stack | `FrameLink::is_on_data_stack` is false |
//! | 3.11 | `_PyStackChunk`, `datastack_chunk`, `datastack_top` (`Include/cpython/pystate.h`); a frame has `FRAME_SPECIALS_SIZE` (`Include/internal/pycore_frame.h`), `co_nlocalsplus` and `co_stacksize` words | `Chunk::of`, `FrameSize::Parts` |
//! | 3.12 | `co_framesize` is the sum (`Include/cpython/code.h`) | `FrameSize::Words` |
//! | 3.15 | `datastack_top` moved in the thread state | `InterpreterFrameLayout::data_stack_top` |

use spanprof_signal::Memory;

use super::frame::{FrameLink, FrameReader};
use crate::runtime::interpreter::layout::{FrameChain, FrameSize};

/// Words of a frame's header in 3.11.
const HEADER_WORDS: u64 = 9;
/// `_PyStackChunk`: the previous chunk at 0, the size in bytes, the words used when the next chunk was added, then the words.
const CHUNK_BYTES: usize = 8;
const CHUNK_USED: usize = 16;
const CHUNK_HEADER_BYTES: u64 = 24;
/// A chunk holds at least a hundred frames, so this exceeds the recursion limits in use.
const MAX_CHUNKS: usize = 64;

/// The chunk of a thread's data stack that contains a frame, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    begin: u64,
    end: u64,
    /// End of its last frame.
    top: u64,
}

/// Position of a caller's frame relative to its callee's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameAdjacency {
    /// The callee's frame begins where the caller's ends, or in a newer chunk.
    Adjacent,
    /// Another frame lies between them: one that is being torn down, or is not yet linked.
    Gap,
    /// The caller's frame overlaps the callee's, which is therefore a popped frame.
    Overlapping,
}

impl Chunk {
    /// The chunk that now contains the frame at `address`; `None` when no chunk in use does, or memory is unreadable.
    pub fn of<M: Memory>(reader: &FrameReader<'_, M>, thread: usize, address: usize) -> Option<Self> {
        let FrameChain::Interpreter(layout) = &reader.interpreter.layout.frames else { return None };
        let field = |at: u64, offset: usize| reader.word(at as usize, offset).map(|word| word as u64);
        let mut top = field(thread as u64, layout.data_stack_top)?;
        let mut begin = field(thread as u64, layout.data_stack_top.checked_sub(8)?)?;
        for _ in 0..MAX_CHUNKS {
            let end = begin.checked_add(field(begin, CHUNK_BYTES)?)?;
            if (begin..end).contains(&(address as u64)) {
                return Some(Self { begin, end, top });
            }
            begin = field(begin, 0)?;
            let used_bytes = field(begin, CHUNK_USED)?.checked_mul(8)?;
            top = begin.checked_add(CHUNK_HEADER_BYTES)?.checked_add(used_bytes)?;
        }
        None
    }

    /// Whether `address` lies in this chunk.
    pub fn contains(&self, address: usize) -> bool {
        (self.begin..self.end).contains(&(address as u64))
    }

    /// Whether the frame at `address` in this chunk was popped.
    pub fn has_popped(&self, address: usize) -> bool {
        self.top <= address as u64
    }

    /// Position of `caller` at `address` relative to the frame at `callee` in this chunk; `None` when its size is unreadable.
    pub fn adjacency<M: Memory>(
        &self,
        reader: &FrameReader<'_, M>,
        caller: &FrameLink,
        address: usize,
        callee: usize,
    ) -> Option<FrameAdjacency> {
        if !self.contains(address) {
            return Some(FrameAdjacency::Adjacent);
        }
        let caller_end = (address as u64).checked_add(frame_bytes(reader, caller.code)?)?;
        Some(match caller_end.cmp(&(callee as u64)) {
            std::cmp::Ordering::Less => FrameAdjacency::Gap,
            std::cmp::Ordering::Equal => FrameAdjacency::Adjacent,
            std::cmp::Ordering::Greater => FrameAdjacency::Overlapping,
        })
    }
}

/// Size of the frames of a code object.
fn frame_bytes<M: Memory>(reader: &FrameReader<'_, M>, code: usize) -> Option<u64> {
    let FrameChain::Interpreter(layout) = &reader.interpreter.layout.frames else { return None };
    let field = |offset: usize| Some(reader.word(code, offset)? as u64 & 0xffff_ffff);
    let words = match layout.size {
        FrameSize::Words(offset) => field(offset)?,
        FrameSize::Parts { stack, locals } => field(stack)? + field(locals)? + HEADER_WORDS,
    };
    Some(words * 8)
}
