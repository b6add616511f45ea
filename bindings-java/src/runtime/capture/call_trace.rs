//! Stack walks by HotSpot's `AsyncGetCallTrace`, in the handler, if the own walker cannot be used. They cost about twice as
//! much, are possible for Java threads only, and fail more often. A failed walk ends in a reason frame.
//!
//! # When it may be called
//! * Only for a live thread that the VM has reported: other threads have no JNI environment to pass.
//! * Only from code in the code cache, or with a frame anchor. A leaf native method has no anchor, and its registers are
//!   not a Java frame. `AsyncGetCallTrace` crashes when it follows them in the vDSO.
//! * Not after `VMDeath`.
//!
//! The process uses one walk only, chosen at the first start. A choice per thread or stack would make the origin of a profile
//! unclear and bring the crashes of `AsyncGetCallTrace` to VMs that do not need it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::{DropReason, ProcessMemory, RawFrame, RawStack};

use crate::runtime::vm::memory::word;
use crate::runtime::vm::raw_frame;
use crate::runtime::walk::frame_state::FrameState;
use crate::runtime::walk::instructions;
use crate::runtime::walk::registers::{at_caller, registers, JavaRegisters};

/// Stack that a walk takes at most, 8 KiB of it for the frames.
pub const WALK_BYTES: usize = 16 << 10;

/// Maximum number of frames; deeper stacks are cut at the root side.
const MAX_FRAMES: usize = 512;

/// Upper bound of a stub's frame size.
const MAX_FRAME_BYTES: usize = 4096;

/// `ASGCT_CallFrame`: bytecode index, or a negative number if there is none, and the method id.
#[repr(C)]
#[derive(Clone, Copy)]
struct CallFrame {
    index: i32,
    method: usize,
}

/// `ASGCT_CallTrace`: the number of frames, or a non-positive failure code.
#[repr(C)]
struct CallTrace {
    environment: usize,
    count: i32,
    frames: *mut CallFrame,
}

type AsyncGetCallTrace = unsafe extern "C" fn(*mut CallTrace, i32, *mut c_void);

static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// Offset from a JavaThread to its JNI environment.
static ENVIRONMENT: AtomicIsize = AtomicIsize::new(0);
/// Bounds of the code cache.
static CODE_CACHE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Offset from a JavaThread to its anchor's `_last_Java_sp`.
static ANCHOR_SP: AtomicUsize = AtomicUsize::new(0);
static REFUSED: [AtomicU64; REFUSALS.len()] = [const { AtomicU64::new(0) }; REFUSALS.len()];

/// Names in `stats()` of the failure codes from -1 down, and of any other code.
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

/// Indexes in `REFUSALS`.
const UNKNOWN_JAVA: usize = 4;
const NOT_WALKABLE_JAVA: usize = 5;

/// Addresses and offsets that the handler uses.
#[derive(Clone, Copy, Debug)]
pub struct CallTraceAddresses {
    pub function: usize,
    pub environment: isize,
    pub code: (usize, usize),
    pub anchor_sp: usize,
}

/// Enables `AsyncGetCallTrace` in handlers.
pub fn publish(addresses: CallTraceAddresses) {
    ENVIRONMENT.store(addresses.environment, Ordering::Relaxed);
    CODE_CACHE[0].store(addresses.code.0, Ordering::Relaxed);
    CODE_CACHE[1].store(addresses.code.1, Ordering::Relaxed);
    ANCHOR_SP.store(addresses.anchor_sp, Ordering::Relaxed);
    FUNCTION.store(addresses.function, Ordering::Release);
}

/// Disables `AsyncGetCallTrace` in handlers.
pub fn withdraw() {
    FUNCTION.store(0, Ordering::Release);
}

/// Failed walks of stacks with Java frames, by failure code.
pub fn refused() -> [u64; REFUSALS.len()] {
    std::array::from_fn(|reason| REFUSED[reason].load(Ordering::Relaxed))
}

/// Whether a stack from `walk` is a failed walk.
pub fn is_refusal(frames: &[RawFrame]) -> bool {
    let is_native = |frame: &RawFrame| frame.native_pc().is_some();
    frames.split_last().is_some_and(|(root, leaf)| root.as_reason().is_some() && leaf.iter().all(is_native))
}

/// The result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TraceResult {
    Frames(usize),
    /// The thread runs no Java code.
    NoJava,
    /// Index in `REFUSALS`.
    Refused(usize),
}

fn trace_result(count: i32) -> TraceResult {
    /// `ticks_unknown_not_Java`: a VM thread state between two calls.
    const NOT_JAVA: i32 = -3;
    match usize::try_from(count) {
        Ok(0) => TraceResult::NoJava,
        Ok(frames) => TraceResult::Frames(frames.min(MAX_FRAMES)),
        Err(_) if count == NOT_JAVA => TraceResult::NoJava,
        Err(_) => TraceResult::Refused((count.unsigned_abs() as usize).min(REFUSALS.len()) - 1),
    }
}

/// Walks the interrupted thread. Returns whether a Java frame or a failure reason was pushed.
pub fn walk(context: &libc::ucontext_t, java_thread: usize, stack: &mut RawStack<'_>) -> bool {
    let function = FUNCTION.load(Ordering::Acquire);
    let interrupted = registers(context);
    let is_in_code = is_in_code_cache(interrupted.pc);
    if !is_in_code && !stack.push(RawFrame::native(interrupted.pc as u64)) {
        return true;
    }
    if function == 0 || java_thread == 0 {
        return false;
    }
    let anchored = word(java_thread + ANCHOR_SP.load(Ordering::Relaxed)).is_some_and(|sp| sp != 0);
    if !is_in_code && !anchored {
        // Native code of the VM or of the thread, or a leaf call: only the VM can distinguish them.
        return false;
    }
    trace(function, context, java_thread, is_in_code.then_some(interrupted), stack)
}

/// Calls `AsyncGetCallTrace`. `code`: the registers in the code cache. Never inlined: the own walker does not need this frame of 8 KiB.
#[inline(never)]
fn trace(
    function: usize,
    context: &libc::ucontext_t,
    java_thread: usize,
    code: Option<JavaRegisters>,
    stack: &mut RawStack<'_>,
) -> bool {
    let mut frames = [CallFrame { index: 0, method: 0 }; MAX_FRAMES];
    let mut result = call(function, java_thread, context, &mut frames);
    let is_refused = matches!(result, TraceResult::Refused(UNKNOWN_JAVA | NOT_WALKABLE_JAVA));
    if let Some(interrupted) = code.filter(|_| is_refused) {
        // `AsyncGetCallTrace` misreads the frame in prologues, epilogues and stubs. The caller's frame is complete.
        if let Some(caller) = caller(&interrupted) {
            let retried = call(function, java_thread, &at_caller(context, caller), &mut frames);
            if matches!(retried, TraceResult::Frames(_)) {
                stack.push(raw_frame::stub(interrupted.pc));
                result = retried;
            }
        }
    }
    match result {
        TraceResult::NoJava => false,
        TraceResult::Refused(reason) => {
            if let Some(count) = REFUSED.get(reason) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            stack.push(RawFrame::reason(DropReason::InvalidFrame));
            true
        }
        TraceResult::Frames(count) => {
            let has_space = frames.iter().take(count).all(|frame| {
                let index = u16::try_from(frame.index).unwrap_or(raw_frame::NO_INDEX);
                stack.push(raw_frame::method_id(frame.method, index))
            });
            if has_space && count == MAX_FRAMES {
                stack.push(RawFrame::reason(DropReason::InvalidFrame));
            }
            true
        }
    }
}

fn is_in_code_cache(pc: usize) -> bool {
    pc >= CODE_CACHE[0].load(Ordering::Relaxed) && pc < CODE_CACHE[1].load(Ordering::Relaxed)
}

fn call(
    function: usize,
    java_thread: usize,
    context: &libc::ucontext_t,
    frames: &mut [CallFrame; MAX_FRAMES],
) -> TraceResult {
    let environment = java_thread.wrapping_add_signed(ENVIRONMENT.load(Ordering::Relaxed));
    let mut trace = CallTrace { environment, count: 0, frames: frames.as_mut_ptr() };
    let ucontext = std::ptr::from_ref(context).cast_mut().cast();
    // SAFETY: the VM exports the function under this name and signature for use in signal handlers. The thread is live and
    // the current one; the registers are the interrupted ones, or a caller's on the same stack.
    unsafe {
        let function: AsyncGetCallTrace = std::mem::transmute(function);
        function(&mut trace, MAX_FRAMES as i32, ucontext);
    }
    trace_result(trace.count)
}

/// Program counter, stack pointer and frame pointer of the leaf's caller, if the instructions there or the call before the
/// return address prove it.
fn caller(interrupted: &JavaRegisters) -> Option<[usize; 3]> {
    let JavaRegisters { pc, sp, fp, .. } = *interrupted;
    let return_address = |at: usize| word(at).filter(|pc| is_in_code_cache(*pc));
    let call_return = |at: usize| return_address(at).filter(|pc| instructions::follows_call(ProcessMemory, *pc));
    match instructions::prologue(ProcessMemory, pc).or_else(|| instructions::epilogue(ProcessMemory, pc)) {
        Some(FrameState::NotBuilt) => Some([return_address(sp)?, sp + 8, fp]),
        Some(FrameState::FpPushed) => Some([return_address(sp + 8)?, sp + 16, word(sp)?]),
        Some(FrameState::FpNotSaved | FrameState::Complete) => None,
        None => call_return(sp).map(|pc| [pc, sp + 8, fp]).or_else(|| {
            let has_frame = fp >= sp && fp - sp < MAX_FRAME_BYTES && fp.is_multiple_of(8);
            Some([call_return(fp + 8).filter(|_| has_frame)?, fp + 16, word(fp)?])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_walk_has_no_java_frame() {
        let reason = RawFrame::reason(DropReason::InvalidFrame);
        let (native, method) = (RawFrame::native(4096), raw_frame::method_id(8, 1));
        assert!(is_refusal(&[reason]) && is_refusal(&[native, reason]));
        assert!(
            !is_refusal(&[native, method, reason]) && !is_refusal(&[native, raw_frame::thread(7)]) && !is_refusal(&[])
        );
    }

    #[test]
    fn a_count_means_frames_no_java_or_a_failure() {
        for (count, result) in [
            (3, TraceResult::Frames(3)),
            (100_000, TraceResult::Frames(MAX_FRAMES)),
            (0, TraceResult::NoJava),
            (-3, TraceResult::NoJava),
            (-1, TraceResult::Refused(0)),
            (-9, TraceResult::Refused(8)),
            (-10, TraceResult::Refused(9)),
            (i32::MIN, TraceResult::Refused(10)),
        ] {
            assert_eq!(trace_result(count), result);
        }
    }
}
