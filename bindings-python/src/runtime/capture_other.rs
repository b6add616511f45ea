//! The walk of another thread, for the wall profile: from the sampler's own thread, without the GIL, while the thread may
//! run, block or end. Every read is guarded; what moved during the walk is dropped, never guessed.
//!
//! # Why a stack that comes out is true
//! Frames are read from the leaf up. After a link was read, the frame it was reached from must still stand (unchanged, and
//! not above the end of the data stack: a popped frame keeps its looks), must not lie inside the new link's frame, and the
//! new link must then read the same again. So the callee stood while its caller was read, and the caller was its caller.
//! By induction up the chain, all frames stood on each other when the leaf was checked. A frame outside the data stack (of
//! a generator, of the interpreter, of 3.10) loses its link to its caller when it is left, or stands as long as the frame
//! on the data stack that was reached before it.
//!
//! Code objects are compared with the count of ends before and after: none of them ended during the walk, so each frame's
//! generation is the one its code lived in.

use spanprof_signal::{Captured, Context, DropReason, RawFrame, RawStack};

use super::capture_signal::MAX_LINKS;
use super::data_stack::DataStack;
use super::frame_signal::{self, ChainStart, Judged, Link};
use super::interpreter::{self, Interpreter};
use super::sampled_code_signal::SAMPLED_CODE;
use super::{context_signal, threads};

/// Walks are retried this often while the thread moves; each takes about a microsecond.
const ATTEMPTS: usize = 4;

/// Walks the thread whose state is at `thread`.
///
/// # Safety
/// As for every [`spanprof_signal::CaptureOtherFn`]: called by the wall sampler on its own thread.
pub unsafe fn capture_other(thread: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    let thread = thread as usize;
    let mut outcome = DropReason::MovedDuringWalk;
    for _ in 0..ATTEMPTS {
        stack.clear();
        stack.context = Context::None;
        // A state that was freed, or given to another thread, no longer names this one.
        if !is_of(interpreter, thread, thread_id) {
            return Captured::Dropped(DropReason::NoThreadState);
        }
        let ends = SAMPLED_CODE.ends_begun();
        match follow(interpreter, thread, stack) {
            Ok(()) if stack.is_empty() => return Captured::Dropped(DropReason::NoThreadState),
            Ok(()) => {
                stack.context = context_signal::read_other(interpreter, thread);
                if SAMPLED_CODE.ends_begun() == ends && is_of(interpreter, thread, thread_id) {
                    return Captured::Walked;
                }
                outcome = DropReason::MovedDuringWalk;
            }
            Err(reason) => outcome = reason,
        }
    }
    stack.clear();
    stack.context = Context::None;
    Captured::Dropped(outcome)
}

fn is_of(interpreter: &Interpreter, thread: usize, thread_id: u32) -> bool {
    frame_signal::is_ours(interpreter, thread)
        && threads::kernel_thread_id(&interpreter.layout, thread) == Some(thread_id)
}

fn follow(interpreter: &Interpreter, thread: usize, stack: &mut RawStack<'_>) -> Result<(), DropReason> {
    let start = frame_signal::start(interpreter, thread).ok_or(DropReason::FaultedRead)?;
    let mut climb = Climb { interpreter, thread, start, reached_from: None, standing: None };
    let mut frame = start.leaf;
    let mut unproven_caller = start.caller;
    for _ in 0..MAX_LINKS {
        if frame == 0 {
            return Ok(());
        }
        let link = frame_signal::read(interpreter, frame).ok_or(DropReason::MovedDuringWalk)?;
        let link = climb.prove(frame, link).ok_or(DropReason::MovedDuringWalk)?;
        if let (true, Some(caller)) = (link.is_bottom, unproven_caller) {
            if link.previous != caller && link.previous != 0 {
                return Err(DropReason::MovedDuringWalk);
            }
            unproven_caller = None;
        }
        let pushed = match frame_signal::judge(interpreter, &link) {
            Judged::Frame(raw) => stack.push(raw),
            Judged::Ended => stack.push(RawFrame::reason(DropReason::CodeEnded)),
            Judged::Skipped => true,
            Judged::Invalid => return Err(DropReason::MovedDuringWalk),
        };
        if !pushed {
            return Ok(());
        }
        climb.pass(frame, link);
        frame = link.previous;
    }
    Err(DropReason::InvalidFrame)
}

/// The way up the chain so far.
struct Climb<'a> {
    interpreter: &'a Interpreter,
    thread: usize,
    start: ChainStart,
    /// The frame that named the next one as its caller.
    reached_from: Option<(usize, Link)>,
    /// The last frame passed that lies on the data stack: while it stands, so does everything between it and the next.
    standing: Option<(usize, Link)>,
}

impl Climb<'_> {
    /// The link just read at `address`, read again, if it was the caller of the frame it was reached from. Its instruction
    /// is then that of the call, not what an earlier frame left.
    fn prove(&self, address: usize, link: Link) -> Option<Link> {
        let Some(reached_from) = &self.reached_from else {
            // The leaf stands while the thread names it.
            return (frame_signal::start(self.interpreter, self.thread) == Some(self.start)).then_some(link);
        };
        if let Some(standing) = &self.standing {
            let data_stack = DataStack::read(self.interpreter, self.thread)?;
            if data_stack.has_popped(standing.0)
                || link.is_on_data_stack && data_stack.overlaps(self.interpreter, &link, address, standing.0)
            {
                return None;
            }
            if standing.0 != reached_from.0 {
                self.unchanged(standing.0, &standing.1)?;
            }
        }
        self.unchanged(reached_from.0, &reached_from.1)?;
        self.unchanged(address, &link)
    }

    /// The frame at `address` as it is now, if it is still the one that was seen.
    fn unchanged(&self, address: usize, seen: &Link) -> Option<Link> {
        let now = frame_signal::read(self.interpreter, address)?;
        (now.code == seen.code && now.previous == seen.previous).then_some(now)
    }

    fn pass(&mut self, address: usize, link: Link) {
        if link.is_on_data_stack {
            self.standing = Some((address, link));
        }
        self.reached_from = Some((address, link));
    }
}
