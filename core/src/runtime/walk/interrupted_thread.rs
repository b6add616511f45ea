//! Walks the thread that a signal interrupted: for the CPU clocks, and for the wall sampler. Runs in handlers.

use spanprof_os::thread_context;
use spanprof_signal::{Captured, Context, DropReason, HandlerContext, ProcessMemory, RawFrame, RawStack};
use spanprof_unwind::{Registers, UnwindTables};

/// Walks the interrupted thread.
///
/// # Safety
/// As `spanprof_signal::CaptureFn` requires: called by the handler, with its ucontext or null.
pub unsafe fn capture_native(handler: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    match thread_context::context_of(handler.thread_id) {
        0 => {}
        id => stack.context = Context::Id(id),
    }
    if handler.ucontext.is_null() {
        return Captured::Dropped(DropReason::NoThreadState);
    }
    // SAFETY: the kernel's ucontext on this thread's stack, passed by the handler; checked for null above.
    let context = unsafe { &*handler.ucontext.cast::<libc::ucontext_t>() };
    let pc = Registers::interrupted(context).pc;
    if pc < RawFrame::FIRST_RUNTIME_CODE {
        return Captured::Dropped(DropReason::InvalidFrame);
    }
    match UnwindTables::borrow() {
        Some(tables) => {
            let frame = |_: &RawStack<'_>, pc| Some(RawFrame { code: pc, at: 0 });
            tables.walk_interrupted(ProcessMemory, context).write_to_root(stack, frame);
        }
        None => _ = stack.push(RawFrame { code: pc, at: 0 }),
    }
    Captured::Walked
}

/// As [`capture_native`], for the wall sampler.
///
/// # Safety
/// The contract of `spanprof_signal::self_walk::WalkSelfFn`.
pub unsafe fn walk_self(handler: &HandlerContext, _in_system_call: bool, stack: &mut RawStack<'_>) -> u64 {
    // SAFETY: the contract of this function has that of `capture_native`.
    _ = unsafe { capture_native(handler, stack) };
    // Nothing invalidates raw frames of native code.
    0
}
