//! Where frames on a thread's data stack begin and end: tells a frame that stands from what a popped one left behind, which
//! looks the same. From 3.11 on. Used by the walk of another thread only; the walk in the handler starts from what stands.

use spanprof_signal::guarded;

use super::frame_signal::Link;
use super::interpreter::Interpreter;
use super::layout::{FrameChain, FrameSize};

/// Words of a frame's header in 3.11.
const HEADER_WORDS: u64 = 9;
/// A chunk begins with the chunk before it, its own size in bytes, the words used when the next one was begun, ...
const CHUNK_BYTES: usize = 8;
const CHUNK_USED: usize = 16;
/// ... and its words follow.
const CHUNK_HEADER_BYTES: u64 = 24;
/// A chunk holds at least a hundred frames, so this reaches below every limit of recursion in use.
const MAX_CHUNKS: usize = 64;

/// The chunk of a thread's data stack in which a frame lies, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    begin: u64,
    end: u64,
    /// Where its last frame ends.
    top: u64,
}

/// How a caller's frame lies below its callee's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// The one begins where the other ends; or a new chunk begins between them.
    Touching,
    /// Something else stands between them: a frame that is being torn down, or not yet linked.
    Apart,
    /// The caller's frame reaches over the callee's, which then is what an earlier frame left.
    Overlapping,
}

impl Chunk {
    /// The chunk of the frame at `address` now; `None` when it lies in none that is in use, or nothing can be read.
    pub fn of(interpreter: &Interpreter, thread: usize, address: usize) -> Option<Self> {
        let FrameChain::Interpreter(layout) = &interpreter.layout.frames else { return None };
        let field = |at: u64, offset: usize| guarded::read_u64((at as usize).checked_add(offset)?);
        let mut top = guarded::read_u64(thread.checked_add(layout.data_stack_top)?)?;
        let mut begin = guarded::read_u64(thread.checked_add(layout.data_stack_top)?.checked_sub(8)?)?;
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

    /// How `caller` at `address` lies below the frame at `callee` in this chunk; `None` when its size cannot be read.
    pub fn joint(&self, interpreter: &Interpreter, caller: &Link, address: usize, callee: usize) -> Option<Joint> {
        if !self.contains(address) {
            return Some(Joint::Touching);
        }
        let caller_end = (address as u64).checked_add(frame_bytes(interpreter, caller.code)?)?;
        Some(match caller_end.cmp(&(callee as u64)) {
            std::cmp::Ordering::Less => Joint::Apart,
            std::cmp::Ordering::Equal => Joint::Touching,
            std::cmp::Ordering::Greater => Joint::Overlapping,
        })
    }
}

/// Size of the frames of a code object.
fn frame_bytes(interpreter: &Interpreter, code: usize) -> Option<u64> {
    let FrameChain::Interpreter(layout) = &interpreter.layout.frames else { return None };
    let field = |offset: usize| Some(guarded::read_u64(code.checked_add(offset)?)? & 0xffff_ffff);
    let words = match layout.size {
        FrameSize::Words(offset) => field(offset)?,
        FrameSize::Parts { stack, locals } => field(stack)? + field(locals)? + HEADER_WORDS,
    };
    Some(words * 8)
}
