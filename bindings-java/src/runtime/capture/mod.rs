//! The capture function of the Java runtime: the interrupted thread's context and stack, walked by the own walker or by
//! `AsyncGetCallTrace`. Runs in the signal handler.

pub mod call_trace;
#[cfg(feature = "record-stacks")]
pub mod recording;
pub mod thread_rows;

use spanprof_signal::{Captured, DropReason, HandlerContext, ProcessMemory, RawFrame, RawStack};

use super::vm::{layout, raw_frame};
use super::walk::registers::registers;
use super::walk::{prefetch, walker};

/// Stack that the own walker takes at most for a Java thread. Measured on painted stacks, x86-64: 2.7 KiB, in the dev profile 3.0. Threads of
/// Rust that are attached to the VM have 4 KiB.
const WALK_BYTES: usize = 7 << 9;

/// Walks the interrupted thread.
///
/// # Safety
/// The contract of `spanprof_signal::CaptureFn`: called by the handler, with its ucontext or null.
pub unsafe fn capture(handler: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let history = prefetch::of(handler.thread_id);
    if let Some(history) = history {
        history.prefetch();
    }
    let row = thread_rows::of(handler.thread_id);
    if let Some(row) = row {
        stack.context = row.scope.context();
    }
    // SAFETY: the handler passes the kernel's ucontext, which lies on this thread's stack.
    let Some(context) = (unsafe { handler.ucontext.cast::<libc::ucontext_t>().as_ref() }) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let java_thread = row.map_or(0, thread_rows::ThreadRow::java_thread);
    let layout = layout::published();
    let bytes = if layout.is_some() { WALK_BYTES } else { call_trace::WALK_BYTES };
    if java_thread != 0 && !handler.has_stack(bytes) {
        return Captured::Dropped(DropReason::StackTooSmall);
    }
    let has_java = match layout {
        Some(layout) => {
            let registers = registers(context);
            #[cfg(feature = "record-stacks")]
            recording::record(layout, &registers, context, java_thread);
            walker::walk(ProcessMemory, layout, (&registers, Some(context)), java_thread, history, stack)
        }
        None => call_trace::walk(context, java_thread, stack),
    };
    if !has_java {
        stack.push(raw_frame::thread(handler.thread_id));
    }
    Captured::Walked
}

/// Walks the interrupted thread for the wall sampler. The epoch is constant: frames are resolved by fingerprint, or by method id
/// and ring position.
///
/// # Safety
/// The contract of `spanprof_signal::self_walk::WalkSelfFn`.
pub unsafe fn walk_self(handler: &HandlerContext, _in_system_call: bool, stack: &mut RawStack<'_>) -> u64 {
    // SAFETY: guaranteed by the caller.
    if let Captured::Dropped(reason) = unsafe { capture(handler, stack) } {
        stack.push(RawFrame::reason(reason));
    }
    0
}
