//! Walks another thread for the wall profile: from the sampler's thread, without the GIL, while the thread may run, block or
//! end. Every read is guarded. A stack that changed during the walk is dropped, never guessed.
//!
//! # Why an accepted stack is consistent
//! The stack of a waiting thread does not change. For a running thread, frames are read from the leaf up, and each link is
//! verified before the next is followed:
//! * The callee is live: it is unchanged and not popped. It lies below the top of its chunk of the data stack, and not above
//!   the thread's current frame. (A popped frame keeps its contents; a freed frame object has no references.)
//! * The caller is at its call: all reads of it find the same instruction.
//! * The caller's frame ends where the callee's begins. So no later push hides a popped callee. Where there is a gap (a frame
//!   whose locals are being destroyed), a second walk must find the same frames.
//! * Caller and callee are read alternately, three times each. An inconsistent pair passes only if the thread switches between
//!   two stacks and back five times, each time between two reads some nanoseconds apart. Each switch takes two returns and
//!   two calls, in step with the reads. A sampler that is delayed once or twice in between reads something else.
//!
//! So the callee was live while its caller was read, and the caller was its caller. By induction up the chain, all frames were
//! live when the leaf was checked. A frame outside the data stack (of a generator, of the interpreter) loses its link to its
//! caller when it is left. Otherwise it is live as long as the previously reached frame on the data stack.
//!
//! The context is read before and after the walk, with the interpreter's count of context switches. If both are equal, the
//! context did not change, so the labels belong to the request whose frames were read.
//!
//! The count of ended code objects is compared before and after the walk. If equal, no code object ended, so each frame's
//! generation is that of its code object.

use std::sync::atomic::{fence, Ordering};

use spanprof_signal::{Captured, Context, DropReason, Memory, RawFrame, RawStack};

use crate::runtime::interpreter;
use crate::runtime::walk::context;
use crate::runtime::walk::data_stack::{Chunk, FrameAdjacency};
use crate::runtime::walk::frame::{ChainStart, FrameClass, FrameLink, FrameReader};
use crate::runtime::walk::kernel_thread_id::kernel_thread_id;
use crate::runtime::walk::MAX_LINKS;

/// Maximum number of walks while the stack changes; each takes about a microsecond.
const ATTEMPTS: usize = 4;
/// Generator frames skipped between the current frame and the data stack; with more, only the top of the stack is compared.
const MAX_GENERATORS: usize = 4;

/// Walks the thread of the `PyThreadState` at `thread`.
///
/// # Safety
/// As for every [`spanprof_signal::CaptureOtherFn`]: called by the wall sampler on its own thread.
pub unsafe fn capture_other(thread: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    let thread = thread as usize;
    let captured = walk(&FrameReader::of_process(interpreter), thread, thread_id, stack);
    #[cfg(any(test, feature = "record-stacks"))]
    super::recording::RECORDING.record_other(interpreter, thread, thread_id, captured, stack, |reader, stack| {
        walk(reader, thread, thread_id, stack)
    });
    captured
}

/// Whether the thread of the `PyThreadState` at `thread` carries a span or labels; true while it changes.
pub fn has_context(thread: u64) -> bool {
    let Some(interpreter) = interpreter::current() else { return false };
    let reader = FrameReader::of_process(interpreter);
    context::read_other(&reader, thread as usize).is_none_or(|context| !context.value().is_empty())
}

/// Walks the thread of the `PyThreadState` at `thread`, if it has this kernel id.
pub fn walk<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    thread_id: u32,
    stack: &mut RawStack<'_>,
) -> Captured {
    let mut outcome = DropReason::MovedDuringWalk;
    for attempt in 0..ATTEMPTS {
        stack.clear();
        stack.context = Context::None;
        // A thread state that was freed or reused does not hold this thread's id.
        if !belongs_to(reader, thread, thread_id) {
            return Captured::Dropped(DropReason::NoThreadState);
        }
        let ends = reader.sampled_code.ends_begun();
        let context = context::read_other(reader, thread);
        match consistent_stack(reader, thread, stack) {
            Ok(()) if stack.is_empty() => return Captured::Dropped(DropReason::NoThreadState),
            Ok(()) => {
                let is_same_context = context.is_some() && context == context::read_other(reader, thread);
                let is_last = attempt + 1 == ATTEMPTS;
                let is_valid = reader.sampled_code.ends_begun() == ends && belongs_to(reader, thread, thread_id);
                if is_valid && (is_same_context || is_last) {
                    // A thread that keeps changing its context: a missing label is better than a wrong one.
                    stack.context =
                        context.filter(|_| is_same_context).map_or(Context::None, |context| context.value());
                    return Captured::Walked;
                }
                outcome = DropReason::MovedDuringWalk;
            }
            // A cyclic chain: no later walk ends.
            Err(DropReason::InvalidFrame) => {
                outcome = DropReason::InvalidFrame;
                break;
            }
            Err(reason) => outcome = reason,
        }
    }
    stack.clear();
    stack.context = Context::None;
    Captured::Dropped(outcome)
}

fn belongs_to<M: Memory>(reader: &FrameReader<'_, M>, thread: usize, thread_id: u32) -> bool {
    reader.is_ours(thread) && kernel_thread_id(reader, thread) == Some(thread_id)
}

fn consistent_stack<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    stack: &mut RawStack<'_>,
) -> Result<(), DropReason> {
    let first = follow(reader, thread, stack)?;
    if !first.has_gaps {
        return Ok(());
    }
    stack.clear();
    if follow(reader, thread, stack)? == first {
        Ok(())
    } else {
        Err(DropReason::MovedDuringWalk)
    }
}

/// Summary of a complete walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChainSummary {
    /// Some caller's frame ends before its callee's begins.
    has_gaps: bool,
    /// Hash of the addresses and code objects of all frames.
    hash: u64,
}

fn follow<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    stack: &mut RawStack<'_>,
) -> Result<ChainSummary, DropReason> {
    let start = reader.start(thread).ok_or(DropReason::FaultedRead)?;
    let summary = ChainSummary { has_gaps: false, hash: 0 };
    let mut verifier = ChainVerifier { reader, thread, start, callee: None, on_data_stack: None, summary };
    let mut frame = start.leaf;
    let mut unproven_caller = start.caller;
    for index in 0..MAX_LINKS {
        if frame == 0 {
            return Ok(verifier.summary);
        }
        let link = if index == 0 { reader.read_leaf(frame) } else { reader.read(frame) };
        let link = link.ok_or(DropReason::MovedDuringWalk)?;
        let link = verifier.verify(frame, link).ok_or(DropReason::MovedDuringWalk)?;
        if let (true, Some(caller)) = (link.is_bottom, unproven_caller) {
            if link.previous != caller && link.previous != 0 {
                return Err(DropReason::MovedDuringWalk);
            }
            unproven_caller = None;
        }
        let pushed = match reader.classify(&link) {
            FrameClass::Frame(raw) => stack.push(raw),
            FrameClass::Ended => stack.push(RawFrame::reason(DropReason::CodeEnded)),
            FrameClass::Skipped => true,
            FrameClass::Invalid => return Err(DropReason::MovedDuringWalk),
        };
        if !pushed {
            return Ok(verifier.summary);
        }
        verifier.accept(frame, link);
        frame = link.previous;
    }
    Err(DropReason::InvalidFrame)
}

/// Verifies the links of a chain, from the leaf up.
struct ChainVerifier<'a, M> {
    reader: &'a FrameReader<'a, M>,
    thread: usize,
    start: ChainStart,
    /// The last accepted frame: the callee of the next one.
    callee: Option<(usize, FrameLink)>,
    /// The last accepted frame on the data stack: while it is live, so are all frames up to the next one there.
    on_data_stack: Option<(usize, FrameLink)>,
    summary: ChainSummary,
}

impl<M: Memory> ChainVerifier<'_, M> {
    /// The link just read at `address`, if it is the caller of the last accepted frame. Its instruction is read between two
    /// reads of the same frame, so it is the caller's and not left over from another frame.
    fn verify(&mut self, address: usize, first: FrameLink) -> Option<FrameLink> {
        self.callee_is_live(address, &first)?;
        let second = self.unchanged(address, &first)?;
        self.callee_is_live(address, &first)?;
        let third = self.unchanged(address, &second)?;
        self.callee_is_live(address, &first)?;
        // A caller stays at its call. If it returned and was called again meanwhile, its instruction differs in some read.
        let is_at_call = first.instruction == second.instruction && second.instruction == third.instruction;
        (is_at_call || self.callee.is_none()).then_some(second)
    }

    /// `Some` if the last accepted frame is live and its caller is `caller` at `address`.
    fn callee_is_live(&mut self, address: usize, caller: &FrameLink) -> Option<()> {
        // Keeps the reads in program order.
        fence(Ordering::Acquire);
        let Some((callee, link)) = self.callee else {
            // The leaf is live while the thread state points to it.
            return (self.reader.start(self.thread) == Some(self.start)).then_some(());
        };
        self.unchanged(callee, &link)?;
        if let Some((last, link)) = self.on_data_stack {
            let current = self.current_on_data_stack()?;
            if last != callee {
                self.unchanged(last, &link)?;
            }
            let chunk = Chunk::of(self.reader, self.thread, last)?;
            let is_above_current = chunk.contains(current) && current < last;
            if chunk.has_popped(last) || is_above_current {
                return None;
            }
            if caller.is_on_data_stack {
                match chunk.adjacency(self.reader, caller, address, last)? {
                    FrameAdjacency::Adjacent => {}
                    FrameAdjacency::Gap => self.summary.has_gaps = true,
                    FrameAdjacency::Overlapping => return None,
                }
            }
        }
        fence(Ordering::Acquire);
        Some(())
    }

    /// The thread's current frame on the data stack; for generators, their caller. A frame that is being pushed lies above it:
    /// its space is reserved, but its words are still those of a popped frame.
    fn current_on_data_stack(&self) -> Option<usize> {
        let mut frame = self.reader.start(self.thread)?.leaf;
        let is_new = frame != self.start.leaf;
        for _ in 0..MAX_GENERATORS {
            let link = if is_new { self.reader.read_leaf(frame) } else { self.reader.read(frame) }?;
            if link.is_on_data_stack || link.previous == 0 {
                break;
            }
            frame = link.previous;
        }
        Some(frame)
    }

    /// Reads the frame at `address` again; `Some` if its code and caller are still those of `link`.
    fn unchanged(&self, address: usize, link: &FrameLink) -> Option<FrameLink> {
        let now = self.reader.read(address)?;
        (now.code == link.code && now.previous == link.previous).then_some(now)
    }

    fn accept(&mut self, address: usize, link: FrameLink) {
        for word in [address, link.code] {
            self.summary.hash = (self.summary.hash ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        if link.is_on_data_stack {
            self.on_data_stack = Some((address, link));
        }
        self.callee = Some((address, link));
    }
}
