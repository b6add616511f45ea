//! The walk of another thread, for the wall profile: from the sampler's own thread, without the GIL, while the thread may
//! run, block or end. Every read is guarded; what moved during the walk is dropped, never guessed.
//!
//! # Why a stack that comes out is true
//! After each link its predecessor is read again and must be unchanged: it was alive while its caller was read, so the
//! caller was its caller. By induction up the chain, all frames stood on each other when the leaf was checked. Code
//! objects are compared with the count of ends before and after: none of them ended during the walk, so each frame's
//! generation is the one its code lived in.

use spanprof_signal::{Captured, Context, DropReason, RawFrame, RawStack};

use super::capture_signal::MAX_LINKS;
use super::frame_signal::{self, Judged};
use super::interpreter::{self, Interpreter};
use super::sampled_code_signal::SAMPLED_CODE;
use super::{context_signal, threads};

/// Walks are retried this often while the thread moves; each takes less than a microsecond.
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
        if !frame_signal::is_ours(interpreter, thread)
            || threads::kernel_thread_id(&interpreter.layout, thread) != Some(thread_id)
        {
            return Captured::Dropped(DropReason::NoThreadState);
        }
        let ends = SAMPLED_CODE.ends_begun();
        match follow(interpreter, thread, stack) {
            Ok(()) if stack.is_empty() => return Captured::Dropped(DropReason::NoThreadState),
            Ok(()) => {
                stack.context = context_signal::read_other(interpreter, thread);
                if SAMPLED_CODE.ends_begun() == ends
                    && threads::kernel_thread_id(&interpreter.layout, thread) == Some(thread_id)
                {
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

fn follow(interpreter: &Interpreter, thread: usize, stack: &mut RawStack<'_>) -> Result<(), DropReason> {
    let start = frame_signal::start(interpreter, thread).ok_or(DropReason::FaultedRead)?;
    let mut frame = start.leaf;
    let mut unproven_caller = start.caller;
    let mut below: Option<(usize, frame_signal::Link)> = None;
    for _ in 0..MAX_LINKS {
        if frame == 0 {
            return Ok(());
        }
        let link = frame_signal::read(interpreter, frame).ok_or(DropReason::MovedDuringWalk)?;
        let judged = frame_signal::judge(interpreter, &link);
        let stands = match &below {
            // The leaf stands while the thread still names it as its leaf.
            None => frame_signal::start(interpreter, thread) == Some(start),
            Some((address, seen)) => frame_signal::read(interpreter, *address)
                .is_some_and(|now| now.code == seen.code && now.previous == seen.previous),
        };
        if !stands {
            return Err(DropReason::MovedDuringWalk);
        }
        if let (true, Some(caller)) = (link.is_bottom, unproven_caller) {
            if link.previous != caller && link.previous != 0 {
                return Err(DropReason::MovedDuringWalk);
            }
            unproven_caller = None;
        }
        let pushed = match judged {
            Judged::Frame(raw) => stack.push(raw),
            Judged::Ended => stack.push(RawFrame::reason(DropReason::CodeEnded)),
            Judged::Skipped => true,
            Judged::Invalid => return Err(DropReason::MovedDuringWalk),
        };
        if !pushed {
            return Ok(());
        }
        below = Some((frame, link));
        frame = link.previous;
    }
    Err(DropReason::InvalidFrame)
}
