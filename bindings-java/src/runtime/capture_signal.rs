//! The capture function of the Java runtime: the interrupted thread's context and stack, walked by the own walker or by
//! `AsyncGetCallTrace`. Runs in the signal handler.

use spanprof_signal::{Captured, DropReason, HandlerContext, ProcessMemory, RawStack};

use super::walk::registers_signal::registers;
use super::walk::{prefetch_signal, walker_signal};
use super::{call_trace_signal, layout, raw_frame, threads_signal};

/// Walks the interrupted thread.
///
/// # Safety
/// The contract of `spanprof_signal::CaptureFn`: called by the handler, with its ucontext or null.
pub unsafe fn capture(handler: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let history = prefetch_signal::of(handler.thread_id);
    if let Some(history) = history {
        history.prefetch();
    }
    let row = threads_signal::of(handler.thread_id);
    if let Some(row) = row {
        stack.context = row.scope.context();
    }
    // SAFETY: the handler passes the kernel's ucontext, which lies on this thread's stack.
    let Some(context) = (unsafe { handler.ucontext.cast::<libc::ucontext_t>().as_ref() }) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let java_thread = row.map_or(0, threads_signal::ThreadRow::java_thread);
    let has_java = match layout::published() {
        Some(layout) => {
            let registers = registers(context);
            #[cfg(feature = "record-stacks")]
            super::record_signal::record(layout, &registers, java_thread);
            walker_signal::walk(ProcessMemory, layout, &registers, java_thread, history, stack)
        }
        None => call_trace_signal::walk(context, java_thread, stack),
    };
    if !has_java {
        stack.push(raw_frame::thread(handler.thread_id));
    }
    Captured::Walked
}
