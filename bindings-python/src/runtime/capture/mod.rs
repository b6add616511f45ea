//! The walk in the handler: captures the frames of the interrupted thread, leaf first, and its context. Runs on that thread,
//! so the chain does not change; but the signal may have interrupted a push or a pop. Rule: no allocation, no lock, no call
//! into the interpreter except one that reads a pthread key, every read guarded, every loop bounded.
//!
//! # States that need care
//! * The thread state may be freed or belong to another interpreter: the sample is dropped as `no_thread_state`.
//! * 3.11, 3.12: during entry of the interpreter loop, its record on the C stack is left over from an activation that has
//!   returned (`activation`). Where the registers do not show this, the bottom frame of the activation must have the
//!   caller that the previous record names. Otherwise the walk starts at that caller.
//! * A frame whose function has not begun, and entry frames of the interpreter, are skipped: the time goes to the caller.
//! * Up to 3.11 a frame can outlive its code object by a few instructions: it is shown as `code_ended`.
//! * Any other link that is not a frame with a code object drops the sample as `invalid_frame` or `faulted_read`.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 | the chain starts in the thread state (`frame`) | `FrameReader::start` |
//! | 3.11 | it starts in the `_PyCFrame` of the current activation | `activation`, `WalkOutcome::StaleLeaf` |
//! | up to 3.11 | a frame can outlive its code object by a few instructions | `FrameClass::Ended` |
//! | 3.12 | each activation has an entry frame at its bottom | `FrameClass::Skipped` |
//! | 3.13 | the chain starts in the thread state again (`current_frame`) | `FrameReader::start` |
//! | 3.15 | a base frame without code is the root of each chain | `FrameClass::Skipped`; `threads` lists no thread that has only this frame |

#[cfg(test)]
mod changed_memory_tests;
mod native;
pub mod other_thread;
#[cfg(test)]
mod recorded_stack_tests;
#[cfg(any(test, feature = "record-stacks"))]
pub mod recording;

use std::cell::Cell;

use spanprof_signal::{Captured, DropReason, HandlerContext, Memory, ProcessMemory, RawFrame, RawStack, SampleFlags};
use spanprof_unwind::{shows_native_callees, Registers, UnwindTables, Walk};

use super::interpreter::layout::FrameChain;
use super::interpreter::{self, Interpreter};
use super::walk::activation::InterruptedRegisters;
use super::walk::activation_list::ActivationList;
use super::walk::frame::{is_last_record, ChainStart, FrameClass, FrameReader};
use super::walk::{activation, context, greenlet_switch, MAX_LINKS};

/// Walks the current thread.
///
/// # Safety
/// As for every [`spanprof_signal::CaptureFn`]; before `interpreter::publish` has run, the sample is dropped.
pub unsafe fn capture(context: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    // SAFETY: the function reads a pthread key of this thread; it takes no lock and needs no GIL.
    let thread = unsafe { (interpreter.current_thread)() } as usize;
    let registers = InterruptedRegisters::of(context);
    let mut activations = ActivationList::empty();
    let captured = walk(&FrameReader::of_process(interpreter), thread, registers.as_ref(), stack, &mut activations);
    #[cfg(any(test, feature = "record-stacks"))]
    recording::RECORDING.record(interpreter, thread, registers.as_ref(), captured, stack, |reader, stack| {
        walk(reader, thread, registers.as_ref(), stack, &mut ActivationList::empty())
    });
    // SAFETY: null, or the kernel's ucontext of the running handler.
    let context = unsafe { context.ucontext.cast::<libc::ucontext_t>().as_ref() };
    let tables = shows_native_callees().then(UnwindTables::borrow).flatten();
    let Some((tables, context)) = tables.zip(context) else { return captured };
    with_native_frames(
        interpreter,
        thread,
        &mut tables.walk_interrupted(ProcessMemory, context),
        &mut activations,
        captured,
        stack,
    )
}

/// Adds the native frames to the captured ones. A thread without Python code has only native ones.
fn with_native_frames<M: Memory + Clone>(
    interpreter: &Interpreter,
    thread: usize,
    walk: &mut Walk<'_, M>,
    activations: &mut ActivationList,
    captured: Captured,
    stack: &mut RawStack<'_>,
) -> Captured {
    match captured {
        Captured::Walked if matches!(&interpreter.layout.frames, FrameChain::Objects(layout) if layout.activation.is_none()) =>
        {
            let begin = interpreter.loop_entry as u64;
            native::find_activations_by_loop(walk, begin..begin + interpreter.loop_bytes, stack, activations);
            native::merge(walk, activations, stack);
        }
        Captured::Walked => native::merge(walk, activations, stack),
        Captured::Dropped(DropReason::NoThreadState) => {
            stack.clear();
            let begin = interpreter.loop_entry as u64;
            let (loop_code, has_loop) = (begin..begin + interpreter.loop_bytes, Cell::new(false));
            walk.write_to_root(stack, |_, pc| {
                has_loop.set(has_loop.get() || loop_code.contains(&pc));
                Some(RawFrame::native(pc))
            });
            // The loop is being entered: its record has no frame yet. Other interpreters have their own thread states.
            let is_entering = has_loop.get() && thread != 0 && FrameReader::of_process(interpreter).is_ours(thread);
            return if is_entering { Captured::Dropped(DropReason::InvalidFrame) } else { Captured::Walked };
        }
        Captured::Dropped(_) => {}
    }
    captured
}

/// Walks the calling thread, outside a signal handler. No call into the interpreter except one that reads a pthread key.
pub fn walk_calling_thread(stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    // SAFETY: the function reads a pthread key of this thread; it takes no lock and needs no GIL.
    let thread = unsafe { (interpreter.current_thread)() } as usize;
    walk(&FrameReader::of_process(interpreter), thread, None, stack, &mut ActivationList::empty())
}

/// As [`walk_calling_thread`], with the native callers of the function that has these registers: not those in this library.
pub fn walk_native_callers(registers: &Registers, stack: &mut RawStack<'_>) -> Captured {
    let Some(interpreter) = interpreter::current() else { return Captured::Dropped(DropReason::Disabled) };
    // SAFETY: the function reads a pthread key of this thread; it takes no lock and needs no GIL.
    let thread = unsafe { (interpreter.current_thread)() } as usize;
    let mut activations = ActivationList::empty();
    let captured = walk(&FrameReader::of_process(interpreter), thread, None, stack, &mut activations);
    let Some(tables) = shows_native_callees().then(UnwindTables::borrow).flatten() else { return captured };
    let own_code = tables.code_of_file(registers.pc);
    let mut walk = tables.walk(ProcessMemory, *registers);
    while own_code.contains(&walk.pc()) {
        if walk.step().is_err() {
            return captured;
        }
    }
    with_native_frames(interpreter, thread, &mut walk, &mut activations, captured, stack)
}

/// Replaces a stack that could not be walked by the frame of the reason. Returns the flags of a sample.
pub fn frames_or_reason(captured: Captured, stack: &mut RawStack<'_>) -> SampleFlags {
    if let Captured::Dropped(reason) = captured {
        stack.clear();
        stack.push(RawFrame::reason(reason));
    }
    SampleFlags(if stack.is_truncated() { SampleFlags::TRUNCATED } else { 0 })
}

/// Walks the thread of the `PyThreadState` at `thread`. `registers`: those of the interrupted code; `None` outside a handler.
#[inline(always)]
pub fn walk<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    registers: Option<&InterruptedRegisters<'_>>,
    stack: &mut RawStack<'_>,
    activations: &mut ActivationList,
) -> Captured {
    if thread == 0 || !reader.is_ours(thread) {
        return Captured::Dropped(DropReason::NoThreadState);
    }
    if !greenlet_switch::is_switching(reader.memory, registers) {
        stack.context = context::read(reader, thread);
    }
    let below = activation::start_below(reader, thread, registers);
    let Some(start) = below.or_else(|| reader.start(thread)) else {
        return Captured::Dropped(DropReason::FaultedRead);
    };
    let is_entering = below.is_none() && registers.is_some_and(|registers| activation::is_entering(reader, registers));
    let outcome = if is_entering && reader.read_leaf(start.leaf).is_none() {
        give_up(start.caller, DropReason::FaultedRead)
    } else {
        follow(reader, thread, start, stack, activations)
    };
    match outcome {
        WalkOutcome::Captured(captured) => captured,
        WalkOutcome::StaleLeaf(caller) => {
            stack.clear();
            activations.clear();
            let record = reader.previous_record(start.record);
            match follow(reader, thread, ChainStart { leaf: caller, caller: None, record }, stack, activations) {
                WalkOutcome::Captured(captured) => captured,
                WalkOutcome::StaleLeaf(_) => Captured::Dropped(DropReason::InvalidFrame),
            }
        }
    }
}

enum WalkOutcome {
    Captured(Captured),
    /// The leaf belongs to an activation that has returned: start at this frame.
    StaleLeaf(usize),
}

#[inline]
fn follow<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    start: ChainStart,
    stack: &mut RawStack<'_>,
    activations: &mut ActivationList,
) -> WalkOutcome {
    let has_frame_records = matches!(reader.interpreter.layout.frames, FrameChain::Objects(_));
    let mut frame = start.leaf;
    let (mut last_record, mut record) = (0, start.record);
    let mut unproven_caller = start.caller;
    for _ in 0..MAX_LINKS {
        if frame == 0 {
            if has_frame_records && is_last_record(last_record, thread) {
                // The last record belongs to no frame.
                activations.return_records();
            }
            return WalkOutcome::Captured(match stack.is_empty() {
                // The thread runs no Python code.
                true => Captured::Dropped(DropReason::NoThreadState),
                false => Captured::Walked,
            });
        }
        let Some(link) = reader.read(frame) else {
            return give_up(unproven_caller, DropReason::FaultedRead);
        };
        if let (true, Some(caller)) = (link.is_bottom, unproven_caller) {
            // 0 is the base of a greenlet, whose previous record belongs to another stack.
            if link.previous != caller && link.previous != 0 {
                return WalkOutcome::StaleLeaf(caller);
            }
            unproven_caller = None;
        }
        let pushed = match reader.classify(&link) {
            FrameClass::Frame(raw) => stack.push(raw),
            FrameClass::Ended => stack.push(RawFrame::reason(DropReason::CodeEnded)),
            FrameClass::Skipped => true,
            FrameClass::Invalid => return give_up(unproven_caller, DropReason::InvalidFrame),
        };
        if !pushed {
            return WalkOutcome::Captured(Captured::Walked);
        }
        if link.is_entry {
            activations.push(frame, stack.len());
        } else if link.is_bottom || has_frame_records {
            activations.push(record, stack.len());
            (last_record, record) = (record, reader.previous_record(record));
        }
        frame = link.previous;
    }
    give_up(None, DropReason::InvalidFrame)
}

/// Treats an invalid frame as a stale leaf while the activation is not verified to be the current one.
fn give_up(unproven_caller: Option<usize>, reason: DropReason) -> WalkOutcome {
    match unproven_caller {
        Some(caller) => WalkOutcome::StaleLeaf(caller),
        None => WalkOutcome::Captured(Captured::Dropped(reason)),
    }
}
