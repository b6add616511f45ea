//! The two capture functions that a runtime provides. Plain function pointers: no vtable, no captured state, no
//! destructor. Implementations live in `*_signal.rs` files of the bindings and follow the rules of this crate. They
//! read memory only through `guarded`.

use crate::context::Context;
use crate::drop_reason::DropReason;
use crate::ring::sample::RawFrame;
use crate::signals::mapped_stack::MappedStack;
use crate::walk::{guarded, stack_space};

/// The interrupted thread, as passed to a capture function.
#[repr(C)]
pub struct HandlerContext {
    /// The `ucontext_t` of the signal; null when no signal requested the walk.
    pub ucontext: *mut libc::c_void,
    /// Kernel thread id.
    pub thread_id: u32,
    /// The lowest address of the stack that a walk may use; 0 when no signal requested it.
    pub stack_limit: usize,
}

impl HandlerContext {
    /// That of the running handler; else the reason why the thread is not walked: it blocks the fault signals, or has too little stack left.
    ///
    /// # Safety
    /// `ucontext` is null or the kernel's argument to the running handler.
    pub(crate) unsafe fn in_handler(
        ucontext: *mut libc::c_void,
        thread_id: u32,
        mapped: &MappedStack,
    ) -> Result<Self, DropReason> {
        // SAFETY: `ucontext` is null or the kernel's, by the caller's contract.
        if unsafe { guarded::blocks_faults(ucontext) } {
            return Err(DropReason::FaultsBlocked);
        }
        // SAFETY: `ucontext` is null or the kernel's, by the caller's contract.
        let stack_limit = unsafe { stack_space::limit(ucontext, mapped) };
        let context = Self { ucontext, thread_id, stack_limit };
        match context.has_stack(stack_space::WALK_BYTES) {
            true => Ok(context),
            false => Err(DropReason::StackTooSmall),
        }
    }

    /// Whether the caller has `bytes` of stack below its frame. The handler asks for what most walks take (`stack_space::WALK_BYTES`). A
    /// capture function that takes more asks in a function without the large frame, and drops the sample as `StackTooSmall`.
    #[inline(never)]
    pub fn has_stack(&self, bytes: usize) -> bool {
        let local = 0u8;
        (&raw const local as usize).saturating_sub(self.stack_limit) >= bytes
    }
}

/// The output of a capture function: frames, leaf first, and the thread's context.
pub struct RawStack<'a> {
    frames: &'a mut [RawFrame],
    len: usize,
    truncated: bool,
    /// Set by the capture function when the runtime stores the context of the thread.
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

    /// Replaces `count` frames on the leaf side by one frame; nothing if there are fewer, or none is replaced.
    pub fn replace_leaf(&mut self, count: usize, leaf: RawFrame) {
        let Some(last) = count.checked_sub(1).filter(|last| *last < self.len) else { return };
        self.frames.copy_within(last..self.len, 0);
        self.len -= last;
        if let Some(first) = self.frames.first_mut() {
            *first = leaf;
        }
    }

    /// Removes frames on the root side, down to `count`.
    pub fn truncate(&mut self, count: usize) {
        if count < self.len {
            self.len = count;
            self.truncated = false;
        }
    }

    /// Moves all frames behind others that are pushed from now on.
    pub fn set_aside(&mut self) -> PendingFrames {
        let next = self.frames.len() - self.len;
        self.frames.copy_within(..self.len, next);
        self.len = 0;
        PendingFrames { next, end: self.frames.len() }
    }

    /// Pushes a frame before the pending ones. At the depth limit, the pending frame at the root is cut.
    pub fn push_before(&mut self, pending: &mut PendingFrames, frame: RawFrame) -> bool {
        if self.len == pending.next && pending.next < pending.end {
            self.frames.copy_within(pending.next..pending.end - 1, pending.next + 1);
            pending.next += 1;
            self.truncated = true;
        }
        self.len < pending.next && self.push(frame)
    }

    /// Pushes the next `count` pending frames.
    pub fn push_pending(&mut self, pending: &mut PendingFrames, count: usize) {
        let end = pending.end.min(pending.next.saturating_add(count));
        self.frames.copy_within(pending.next..end, self.len);
        self.len += end - pending.next;
        pending.next = end;
    }

    /// Removes all frames and keeps the context.
    pub fn clear(&mut self) {
        self.len = 0;
        self.truncated = false;
    }

    /// Whether the depth limit cut the root side.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }
}

/// Frames that were set aside in the buffer of their stack.
#[derive(Debug)]
pub struct PendingFrames {
    next: usize,
    end: usize,
}

/// Outcome of a capture. On `Dropped` the sample keeps its weight; its only frame is the reason, or the interrupted
/// native frame for `NoThreadState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Captured {
    /// The stack is complete, or cut at the depth limit.
    Walked,
    /// No frame was captured, for this reason.
    Dropped(DropReason),
}

/// Walks the interrupted thread, inside the signal handler.
///
/// # Safety
/// Called only by this crate's handler, on the interrupted thread.
pub type CaptureFn = unsafe fn(&HandlerContext, &mut RawStack<'_>) -> Captured;

/// Walks another thread, on the wall sampler's thread. `thread` is the word that `Runtime::threads` returned.
///
/// # Safety
/// Called only by the wall sampler; the thread may run, block or end during the walk.
pub type CaptureOtherFn = unsafe fn(thread: u64, thread_id: u32, &mut RawStack<'_>) -> Captured;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_were_set_aside_follow_others_and_are_cut_at_the_root() {
        let mut frames = [RawFrame::default(); 5];
        let mut stack = RawStack::new(&mut frames);
        [1, 2, 3].map(RawFrame::native).into_iter().for_each(|frame| _ = stack.push(frame));
        let mut pending = stack.set_aside();
        assert!(stack.push_before(&mut pending, RawFrame::native(10)));
        stack.push_pending(&mut pending, 1);
        assert!(stack.push_before(&mut pending, RawFrame::native(11)) && !stack.is_truncated());
        assert!(stack.push_before(&mut pending, RawFrame::native(12)) && stack.is_truncated());
        stack.push_pending(&mut pending, 9);
        assert_eq!(stack.frames(), [10, 1, 11, 12, 2].map(RawFrame::native));
        assert!(!stack.push_before(&mut pending, RawFrame::native(13)));
        assert_eq!(stack.len(), 5);
    }

    #[test]
    fn frames_on_the_leaf_side_are_replaced_by_one() {
        let mut frames = [RawFrame::default(); 4];
        let mut stack = RawStack::new(&mut frames);
        for at in 1..=3 {
            stack.push(RawFrame::native(at));
        }
        let leaf = RawFrame { code: 1 << 20, at: 0 };
        stack.replace_leaf(0, leaf);
        stack.replace_leaf(4, leaf);
        assert_eq!(stack.frames(), [1, 2, 3].map(RawFrame::native));
        stack.replace_leaf(2, leaf);
        assert_eq!(stack.frames(), [leaf, RawFrame::native(3)]);
        stack.replace_leaf(1, RawFrame::native(9));
        assert_eq!(stack.frames(), [9, 3].map(RawFrame::native));
    }
}
