//! The walk by the VM: its `AsyncGetCallTrace`, in the handler, where our own walk cannot be trusted. It costs about twice as
//! much, sees no thread but Java's, and gives up more often; what it gives up on ends in a reason.
//!
//! # What it may be asked, and when
//! * Only of a thread that the VM told of and that has not ended: others have no environment to pass.
//! * Only from code of the VM's, or where the thread left an anchor. Native code that Java calls as a leaf leaves none, and
//!   its registers are no frame: following them is what crashes this function in the kernel's own page (vDSO).
//! * Not once the VM ends.

use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use jni::sys::jint;
use spanprof_signal::{DropReason, RawFrame, RawStack};

use super::frame_word;
use super::instructions_signal::{self, Built};
use super::memory_signal::word;
use super::registers_signal::{at_caller, registers, Registers};

/// Frames asked for; deeper stacks are cut at the root side.
const MAX_FRAMES: usize = 512;

/// The frame of code of the VM's own making is smaller.
const LARGEST_FRAME_BYTES: usize = 4096;

/// The VM's frame: byte code, or a negative number for none, and the method's id.
#[repr(C)]
#[derive(Clone, Copy)]
struct CallFrame {
    index: jint,
    method: usize,
}

/// The VM's trace: frames, or a number that is not positive for why there are none.
#[repr(C)]
struct CallTrace {
    environment: usize,
    count: jint,
    frames: *mut CallFrame,
}

type AsyncGetCallTrace = unsafe extern "C" fn(*mut CallTrace, jint, *mut c_void);

static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// From the VM's structure of a thread to the thread's environment.
static ENVIRONMENT: AtomicIsize = AtomicIsize::new(0);
/// Where the VM's code lies.
static CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// From the VM's structure of a thread to the stack pointer of its anchor.
static ANCHOR: AtomicUsize = AtomicUsize::new(0);
static REFUSED: [AtomicU64; REFUSALS.len()] = [const { AtomicU64::new(0) }; REFUSALS.len()];

/// The VM's reasons for walking nothing, from -1 down, and any other; their names in `stats()`.
pub const REFUSALS: [&str; 11] = [
    "java.walks_refused.no_class_load",
    "java.walks_refused.gc_active",
    "java.walks_refused.unknown_not_java",
    "java.walks_refused.not_walkable_not_java",
    "java.walks_refused.unknown_java",
    "java.walks_refused.not_walkable_java",
    "java.walks_refused.unknown_state",
    "java.walks_refused.thread_exit",
    "java.walks_refused.deoptimizing",
    "java.walks_refused.safepoint",
    "java.walks_refused.other",
];

/// Places among them.
const UNKNOWN_JAVA: usize = 4;
const NOT_WALKABLE_JAVA: usize = 5;

/// What the handler needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub function: usize,
    pub environment: isize,
    pub code: (usize, usize),
    pub anchor_sp: usize,
}

/// Lets handlers ask the VM from here on.
pub fn publish(places: Places) {
    ENVIRONMENT.store(places.environment, Ordering::Relaxed);
    CODE[0].store(places.code.0, Ordering::Relaxed);
    CODE[1].store(places.code.1, Ordering::Relaxed);
    ANCHOR.store(places.anchor_sp, Ordering::Relaxed);
    FUNCTION.store(places.function, Ordering::Release);
}

/// The VM is asked no more.
pub fn withdraw() {
    FUNCTION.store(0, Ordering::Release);
}

/// Stacks that the VM did not walk although they have Java frames, by its reason.
pub fn refused() -> [u64; REFUSALS.len()] {
    std::array::from_fn(|reason| REFUSED[reason].load(Ordering::Relaxed))
}

/// Whether a stack of `walk` is one that the VM refused to walk.
pub fn is_refusal(frames: &[RawFrame]) -> bool {
    let is_native = |frame: &RawFrame| frame.native_pc().is_some();
    frames.split_last().is_some_and(|(root, leaf)| root.as_reason().is_some() && leaf.iter().all(is_native))
}

/// Why the VM walked no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Frames(usize),
    /// The thread runs no Java code.
    NoJava,
    /// By its place among the refusals.
    Refused(usize),
}

fn outcome(count: jint) -> Outcome {
    /// Unknown whether there is any, outside of Java code: a thread of the VM's between two calls.
    const NOT_JAVA: jint = -3;
    match usize::try_from(count) {
        Ok(0) => Outcome::NoJava,
        Ok(frames) => Outcome::Frames(frames.min(MAX_FRAMES)),
        Err(_) if count == NOT_JAVA => Outcome::NoJava,
        Err(_) => Outcome::Refused((count.unsigned_abs() as usize).min(REFUSALS.len()) - 1),
    }
}

/// Has the VM walk the interrupted thread; whether any Java frame was found, or a reason why not.
pub fn walk(context: &libc::ucontext_t, java_thread: usize, stack: &mut RawStack<'_>) -> bool {
    let function = FUNCTION.load(Ordering::Acquire);
    let interrupted = registers(context);
    let in_code = is_code(interrupted.pc);
    if !in_code && !stack.push(RawFrame::native(interrupted.pc as u64)) {
        return true;
    }
    if function == 0 || java_thread == 0 {
        return false;
    }
    let anchored = word(java_thread + ANCHOR.load(Ordering::Relaxed)).is_some_and(|sp| sp != 0);
    if !in_code && !anchored {
        // Native code of the VM's or of the thread's own, or a leaf: which, only the VM knows.
        return false;
    }
    let mut frames = [CallFrame { index: 0, method: 0 }; MAX_FRAMES];
    let mut told = ask(function, java_thread, context, &mut frames);
    if matches!(told, Outcome::Refused(UNKNOWN_JAVA | NOT_WALKABLE_JAVA)) && in_code {
        // At the edges of methods, and in code of the VM's own making, it takes the frame for another: its caller has one.
        if let Some(caller) = caller(&interrupted) {
            let again = ask(function, java_thread, &at_caller(context, caller), &mut frames);
            if matches!(again, Outcome::Frames(_)) {
                stack.push(frame_word::stub(interrupted.pc));
                told = again;
            }
        }
    }
    match told {
        Outcome::NoJava => false,
        Outcome::Refused(reason) => {
            if let Some(count) = REFUSED.get(reason) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            stack.push(RawFrame::reason(DropReason::InvalidFrame));
            true
        }
        Outcome::Frames(count) => {
            let room = frames.iter().take(count).all(|frame| {
                let index = u16::try_from(frame.index).unwrap_or(frame_word::NO_INDEX);
                stack.push(frame_word::method_id(frame.method, index))
            });
            if room && count == MAX_FRAMES {
                stack.push(RawFrame::reason(DropReason::InvalidFrame));
            }
            true
        }
    }
}

fn is_code(pc: usize) -> bool {
    pc >= CODE[0].load(Ordering::Relaxed) && pc < CODE[1].load(Ordering::Relaxed)
}

fn ask(
    function: usize,
    java_thread: usize,
    context: &libc::ucontext_t,
    frames: &mut [CallFrame; MAX_FRAMES],
) -> Outcome {
    let environment = java_thread.wrapping_add_signed(ENVIRONMENT.load(Ordering::Relaxed));
    let mut trace = CallTrace { environment, count: 0, frames: frames.as_mut_ptr() };
    let ucontext = std::ptr::from_ref(context).cast_mut().cast();
    // SAFETY: the VM exports it under this name and shape; it is made to be called in a handler, of a live thread of the
    // VM's, on that thread, with the registers that the signal interrupted, or those of a caller on the same stack.
    unsafe {
        let call: AsyncGetCallTrace = std::mem::transmute(function);
        call(&mut trace, MAX_FRAMES as jint, ucontext);
    }
    outcome(trace.count)
}

/// Program counter, stack pointer and frame pointer of who called the code at the leaf, where the instructions there or the
/// call in front of the return address leave no doubt.
fn caller(interrupted: &Registers) -> Option<[usize; 3]> {
    let Registers { pc, sp, fp, .. } = *interrupted;
    let returns = |at: usize| word(at).filter(|pc| is_code(*pc));
    let called = |at: usize| returns(at).filter(|pc| instructions_signal::follows_call(*pc));
    match instructions_signal::prologue(pc).or_else(|| instructions_signal::epilogue(pc)) {
        Some(Built::Nothing) => Some([returns(sp)?, sp + 8, fp]),
        Some(Built::Pushed) => Some([returns(sp + 8)?, sp + 16, word(sp)?]),
        Some(Built::WithoutPointer | Built::Whole) => None,
        None => called(sp).map(|pc| [pc, sp + 8, fp]).or_else(|| {
            let has_frame = fp >= sp && fp - sp < LARGEST_FRAME_BYTES && fp.is_multiple_of(8);
            Some([called(fp + 8).filter(|_| has_frame)?, fp + 16, word(fp)?])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_no_java_frame() {
        let reason = RawFrame::reason(DropReason::InvalidFrame);
        let (native, method) = (RawFrame::native(4096), frame_word::method_id(8, 1));
        assert!(is_refusal(&[reason]) && is_refusal(&[native, reason]));
        assert!(
            !is_refusal(&[native, method, reason]) && !is_refusal(&[native, frame_word::thread(7)]) && !is_refusal(&[])
        );
    }

    #[test]
    fn what_the_vm_says_is_frames_no_java_or_a_refusal() {
        for (count, told) in [
            (3, Outcome::Frames(3)),
            (100_000, Outcome::Frames(MAX_FRAMES)),
            (0, Outcome::NoJava),
            (-3, Outcome::NoJava),
            (-1, Outcome::Refused(0)),
            (-9, Outcome::Refused(8)),
            (-10, Outcome::Refused(9)),
            (jint::MIN, Outcome::Refused(10)),
        ] {
            assert_eq!(outcome(count), told);
        }
    }
}
