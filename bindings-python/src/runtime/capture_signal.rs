//! The walk in the handler: the frames of the interrupted thread, leaf first, and its context. Runs on that thread, so
//! the chain stands still; but it may stand in the middle of a push or a pop. Law: no allocation, no lock, no call into
//! the interpreter but the one that reads a pthread key, every read guarded, every loop bounded.
//!
//! # What is not trusted
//! * The thread state may be gone or of another interpreter: the sample says `no_thread_state`.
//! * 3.11, 3.12: while the interpreter loop is being entered, its record on the C stack is what an activation left that
//!   returned long ago (`activation_signal`). Where that cannot be told from the registers, the bottom frame of the
//!   activation must name the caller that the record below names; else the walk begins at that caller.
//! * A frame whose function has not begun, and entry frames of the interpreter, are skipped: the caller is charged.
//! * Up to 3.11 a frame can outlive its code by a few instructions: it is shown as `code_ended`.
//! * Anything else that is not a frame over a code object makes the whole sample `invalid_frame` or `faulted_read`.

use spanprof_signal::{Captured, DropReason, HandlerContext, RawFrame, RawStack};

use super::frame_signal::{self, ChainStart, Judged};
use super::{activation_signal, context_signal, interpreter, switching_signal};

/// Links followed at most, skipped ones included: bounds a chain that leads back into itself.
pub const MAX_LINKS: usize = 16_384;

/// Walks the current thread.
///
/// # Safety
/// As for every [`spanprof_signal::CaptureFn`]; `interpreter::publish` must have run, else the sample is dropped.
pub unsafe fn capture(context: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    // SAFETY: the function reads a pthread key of this thread; it takes no lock and needs no GIL.
    let thread = unsafe { (interpreter.current_thread)() } as usize;
    if thread == 0 || !frame_signal::is_ours(interpreter, thread) {
        return Captured::Dropped(DropReason::NoThreadState);
    }
    if !switching_signal::is_switching(context) {
        stack.context = context_signal::read(interpreter, thread);
    }
    let below = activation_signal::start_below(interpreter, thread, context);
    let Some(start) = below.or_else(|| frame_signal::start(interpreter, thread)) else {
        return Captured::Dropped(DropReason::FaultedRead);
    };
    match follow(interpreter, start, stack) {
        Followed::Captured(captured) => captured,
        Followed::StaleLeaf(caller) => {
            stack.clear();
            match follow(interpreter, ChainStart { leaf: caller, caller: None }, stack) {
                Followed::Captured(captured) => captured,
                Followed::StaleLeaf(_) => Captured::Dropped(DropReason::InvalidFrame),
            }
        }
    }
}

enum Followed {
    Captured(Captured),
    /// The leaf belongs to an activation that has returned: begin at this frame.
    StaleLeaf(usize),
}

#[inline]
fn follow(interpreter: &interpreter::Interpreter, start: ChainStart, stack: &mut RawStack<'_>) -> Followed {
    let mut frame = start.leaf;
    let mut unproven_caller = start.caller;
    for _ in 0..MAX_LINKS {
        if frame == 0 {
            return Followed::Captured(match stack.is_empty() {
                // A thread between two calls into Python, or not there yet: its native leaf says more.
                true => Captured::Dropped(DropReason::NoThreadState),
                false => Captured::Walked,
            });
        }
        let Some(link) = frame_signal::read(interpreter, frame) else {
            return give_up(unproven_caller, DropReason::FaultedRead);
        };
        if let (true, Some(caller)) = (link.is_bottom, unproven_caller) {
            // 0 is the base of a greenlet, whose record below belongs to another stack.
            if link.previous != caller && link.previous != 0 {
                return Followed::StaleLeaf(caller);
            }
            unproven_caller = None;
        }
        let pushed = match frame_signal::judge(interpreter, &link) {
            Judged::Frame(raw) => stack.push(raw),
            Judged::Ended => stack.push(RawFrame::reason(DropReason::CodeEnded)),
            Judged::Skipped => true,
            Judged::Invalid => return give_up(unproven_caller, DropReason::InvalidFrame),
        };
        if !pushed {
            return Followed::Captured(Captured::Walked);
        }
        frame = link.previous;
    }
    give_up(None, DropReason::InvalidFrame)
}

/// A bad frame in an activation that is not proven to be the current one is a stale leaf.
fn give_up(unproven_caller: Option<usize>, reason: DropReason) -> Followed {
    match unproven_caller {
        Some(caller) => Followed::StaleLeaf(caller),
        None => Followed::Captured(Captured::Dropped(reason)),
    }
}
