//! The walk of another thread, for the wall profile: from the sampler's own thread, without the GIL, while the thread may
//! run, block or end. Every read is guarded; what moved during the walk is dropped, never guessed.
//!
//! # Why a stack that comes out is true
//! Of a thread that waits everything stands still. Of one that runs, frames are read from the leaf up, and each link must
//! be proven before the next is followed:
//! * The callee stands: it reads as before and was not popped (it lies below the top of its chunk of the data stack, and
//!   not above the frame the thread is in; a popped frame keeps its looks; a dead frame object has no references).
//! * The caller rests: all reads of it find the same instruction, that of the call.
//! * The caller's frame ends where the callee's begins. So nothing that was pushed later hides a callee that was popped.
//!   Where something lies between them (a frame whose locals are just being destroyed) a second walk must find the same.
//! * Both were read in turn, caller and callee three times each. A pair that never stood together passes only if the
//!   thread went from one stack to another and back five times, each time between two reads that are some nanoseconds
//!   apart: two returns and two calls each time, in step with us. A sampler that is held up once or twice in between
//!   reads something else.
//!
//! So the callee stood while its caller was read, and the caller was its caller. By induction up the chain, all frames
//! stood on each other when the leaf was checked. A frame outside the data stack (of a generator, of the interpreter)
//! loses its link to its caller when it is left, or stands as long as the frame on the data stack reached before it.
//!
//! The context is read before and after the walk, with the interpreter's own count of switches: it was the same one all the
//! while, so the label is that of the request whose frames were seen.
//!
//! Code objects are compared with the count of ends before and after: none of them ended during the walk, so each frame's
//! generation is the one its code lived in.

use std::sync::atomic::{fence, Ordering};

use spanprof_signal::{Captured, Context, DropReason, RawFrame, RawStack};

use super::capture_signal::MAX_LINKS;
use super::data_stack::{Chunk, Joint};
use super::frame_signal::{self, ChainStart, Judged, Link};
use super::interpreter::{self, Interpreter};
use super::sampled_code_signal::SAMPLED_CODE;
use super::{context_signal, threads};

/// Walks are retried this often while the thread moves; each takes about a microsecond.
const ATTEMPTS: usize = 4;
/// Generators between the thread's frame and the data stack that are passed over; with more, the top of the stack decides.
const MAX_GENERATORS: usize = 4;

/// Walks the thread whose state is at `thread`.
///
/// # Safety
/// As for every [`spanprof_signal::CaptureOtherFn`]: called by the wall sampler on its own thread.
pub unsafe fn capture_other(thread: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    let thread = thread as usize;
    let mut outcome = DropReason::MovedDuringWalk;
    for attempt in 0..ATTEMPTS {
        stack.clear();
        stack.context = Context::None;
        // A state that was freed, or given to another thread, no longer names this one.
        if !is_of(interpreter, thread, thread_id) {
            return Captured::Dropped(DropReason::NoThreadState);
        }
        let ends = SAMPLED_CODE.ends_begun();
        let context = context_signal::read_other(interpreter, thread);
        match stack_that_stood(interpreter, thread, stack) {
            Ok(()) if stack.is_empty() => return Captured::Dropped(DropReason::NoThreadState),
            Ok(()) => {
                let context_stood = context.is_some() && context == context_signal::read_other(interpreter, thread);
                let is_last = attempt + 1 == ATTEMPTS;
                let is_whole = SAMPLED_CODE.ends_begun() == ends && is_of(interpreter, thread, thread_id);
                if is_whole && (context_stood || is_last) {
                    // A thread that never stays in one context: no label rather than a wrong one.
                    stack.context = context.filter(|_| context_stood).map_or(Context::None, |moment| moment.value());
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

fn stack_that_stood(interpreter: &Interpreter, thread: usize, stack: &mut RawStack<'_>) -> Result<(), DropReason> {
    let first = follow(interpreter, thread, stack)?;
    if !first.has_gaps {
        return Ok(());
    }
    stack.clear();
    match follow(interpreter, thread, stack)? == first {
        true => Ok(()),
        false => Err(DropReason::MovedDuringWalk),
    }
}

/// What a whole walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Followed {
    /// Some caller's frame ends before its callee's begins.
    has_gaps: bool,
    /// Hash of the places and codes of all frames.
    shape: u64,
}

fn follow(interpreter: &Interpreter, thread: usize, stack: &mut RawStack<'_>) -> Result<Followed, DropReason> {
    let start = frame_signal::start(interpreter, thread).ok_or(DropReason::FaultedRead)?;
    let followed = Followed { has_gaps: false, shape: 0 };
    let mut climb = Climb { interpreter, thread, start, reached_from: None, standing: None, followed };
    let mut frame = start.leaf;
    let mut unproven_caller = start.caller;
    for _ in 0..MAX_LINKS {
        if frame == 0 {
            return Ok(climb.followed);
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
            return Ok(climb.followed);
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
    followed: Followed,
}

impl Climb<'_> {
    /// The link just read at `address`, if it was the caller of the frame it was reached from. Its instruction was read
    /// between two reads of the same frame: it is that of the call, not what another frame left.
    fn prove(&mut self, address: usize, first: Link) -> Option<Link> {
        self.callee_stands(address, &first)?;
        let between = self.unchanged(address, &first)?;
        self.callee_stands(address, &first)?;
        let last = self.unchanged(address, &between)?;
        self.callee_stands(address, &first)?;
        // A caller rests at its call. One that was entered anew, and whose callee was, is somewhere else in between.
        let rests = first.instruction == between.instruction && between.instruction == last.instruction;
        (rests || self.reached_from.is_none()).then_some(between)
    }

    /// Whether the frame that names `caller` at `address` stands on it.
    fn callee_stands(&mut self, address: usize, caller: &Link) -> Option<()> {
        // The reads are meant in the order in which they are written.
        fence(Ordering::Acquire);
        let Some((callee, link)) = self.reached_from else {
            // The leaf stands while the thread names it.
            return (frame_signal::start(self.interpreter, self.thread) == Some(self.start)).then_some(());
        };
        self.unchanged(callee, &link)?;
        if let Some((standing, link)) = self.standing {
            let current = self.current_on_data_stack()?;
            if standing != callee {
                self.unchanged(standing, &link)?;
            }
            let chunk = Chunk::of(self.interpreter, self.thread, standing)?;
            let is_above_current = chunk.contains(current) && current < standing;
            if chunk.has_popped(standing) || is_above_current {
                return None;
            }
            if caller.is_on_data_stack {
                match chunk.joint(self.interpreter, caller, address, standing)? {
                    Joint::Touching => {}
                    Joint::Apart => self.followed.has_gaps = true,
                    Joint::Overlapping => return None,
                }
            }
        }
        fence(Ordering::Acquire);
        Some(())
    }

    /// The frame on the data stack that the thread is in now, or the caller of the generators it is in. A frame that is
    /// being pushed lies above it: its place is already taken, its words are still those of a popped one.
    fn current_on_data_stack(&self) -> Option<usize> {
        let mut frame = frame_signal::start(self.interpreter, self.thread)?.leaf;
        for _ in 0..MAX_GENERATORS {
            let link = frame_signal::read(self.interpreter, frame)?;
            if link.is_on_data_stack || link.previous == 0 {
                break;
            }
            frame = link.previous;
        }
        Some(frame)
    }

    /// The frame at `address` as it is now, if it is still the one that was seen.
    fn unchanged(&self, address: usize, seen: &Link) -> Option<Link> {
        let now = frame_signal::read(self.interpreter, address)?;
        (now.code == seen.code && now.previous == seen.previous).then_some(now)
    }

    fn pass(&mut self, address: usize, link: Link) {
        for word in [address, link.code] {
            self.followed.shape =
                (self.followed.shape ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        }
        if link.is_on_data_stack {
            self.standing = Some((address, link));
        }
        self.reached_from = Some((address, link));
    }
}
