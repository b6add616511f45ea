//! The two functions a runtime gives the handlers. Plain function pointers: no vtable, no capture, nothing to drop.
//! Implementations live in files named `*_signal.rs` of the bindings and obey this crate's law: no allocation, no lock,
//! no formatting, no panic, no first touch of TLS, memory read only through the guarded door.

use crate::{Context, DropReason, RawFrame};

/// What the handler knows of the interrupted thread.
#[repr(C)]
pub struct HandlerContext {
    /// The `ucontext_t` of the signal; null when the walk is not asked by a signal.
    pub ucontext: *mut libc::c_void,
    /// Kernel thread id.
    pub thread_id: u32,
}

/// Where a capture function writes: frames leaf first, and the context it found.
pub struct RawStack<'a> {
    frames: &'a mut [RawFrame],
    len: usize,
    truncated: bool,
    /// Set by the capture function when the runtime carries the context of the thread.
    pub context: Context,
}

impl<'a> RawStack<'a> {
    /// An empty stack over `frames`; its length is the depth limit.
    pub fn new(frames: &'a mut [RawFrame]) -> Self {
        Self { frames, len: 0, truncated: false, context: Context::None }
    }

    /// Appends a frame on the root side. False when the depth limit is reached; the stack is then marked truncated.
    pub fn push(&mut self, frame: RawFrame) -> bool {
        match self.frames.get_mut(self.len) {
            Some(slot) => {
                *slot = frame;
                self.len += 1;
                true
            }
            None => {
                self.truncated = true;
                false
            }
        }
    }

    /// Frames so far, leaf first.
    pub fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no frame was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all frames, keeps the context.
    pub fn clear(&mut self) {
        self.len = 0;
        self.truncated = false;
    }

    /// Whether the depth limit cut the root side.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// Outcome of a capture. On `Dropped` the engine keeps the sample's weight and shows the reason as its only frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// The stack is whole, or cut at the depth limit.
    Walked,
    /// Nothing trustworthy could be walked.
    Dropped(DropReason),
}

/// Walks the current thread from inside a signal handler that interrupted it.
///
/// # Safety
/// Called only by the handler entry of this crate, on the interrupted thread.
pub type CaptureFn = unsafe fn(&HandlerContext, &mut RawStack<'_>) -> Captured;

/// Walks another thread, from the wall sampler's own thread. `thread` is the word that `Runtime::threads` gave.
///
/// # Safety
/// Called only by the wall sampler; the thread may run, block or end meanwhile.
pub type CaptureOtherFn = unsafe fn(thread: u64, thread_id: u32, &mut RawStack<'_>) -> Captured;
