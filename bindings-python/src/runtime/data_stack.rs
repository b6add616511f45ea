//! Where a thread's data stack ends: tells a frame that stands from what a popped one left behind, which looks the same.
//! From 3.11 on. Used by the walk of another thread only; the walk in the handler starts from what stands.

use spanprof_signal::guarded;

use super::frame_signal::Link;
use super::interpreter::Interpreter;
use super::layout::{FrameChain, FrameSize};

/// Words of a frame's header in 3.11.
const HEADER_WORDS: u64 = 9;

/// The current chunk of a thread's data stack, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct DataStack {
    chunk: u64,
    chunk_end: u64,
    top: u64,
}

impl DataStack {
    /// The current chunk now; `None` when it cannot be read, or the version has none.
    pub fn read(interpreter: &Interpreter, thread: usize) -> Option<Self> {
        let FrameChain::Interpreter(layout) = &interpreter.layout.frames else { return None };
        let top = guarded::read_u64(thread.checked_add(layout.data_stack_top)?)?;
        let chunk = guarded::read_u64(thread.checked_add(layout.data_stack_top)?.checked_sub(8)?)?;
        // A chunk begins with the previous one and its own size.
        let bytes = guarded::read_u64((chunk as usize).checked_add(8)?)?;
        Some(Self { chunk, chunk_end: chunk.checked_add(bytes)?, top })
    }

    /// Whether the frame at `address` lies in this chunk, popped or not.
    fn contains(&self, address: usize) -> bool {
        (self.chunk..self.chunk_end).contains(&(address as u64))
    }

    /// Whether the frame at `address` was popped. Frames of older chunks cannot be told: false.
    pub fn has_popped(&self, address: usize) -> bool {
        self.contains(address) && self.top <= address as u64
    }

    /// Whether `caller` at `address` reaches into the frame at `callee`, which then is only what an earlier one left.
    pub fn overlaps(&self, interpreter: &Interpreter, caller: &Link, address: usize, callee: usize) -> bool {
        if !self.contains(address) || !self.contains(callee) {
            return false;
        }
        match frame_bytes(interpreter, caller.code) {
            Some(bytes) => (callee as u64) < (address as u64).saturating_add(bytes),
            None => true,
        }
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
