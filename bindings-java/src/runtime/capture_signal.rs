//! The capture function of Java: who the interrupted thread is, what its scopes say, its stack by our own walk or the
//! VM's. Runs inside the handler.

use spanprof_signal::{Captured, DropReason, HandlerContext, RawStack};

use super::registers_signal::registers;
use super::{call_trace_signal, frame_word, layout, recall_signal, threads_signal, walk_signal};

/// Walks the interrupted thread.
///
/// # Safety
/// As `spanprof_signal::CaptureFn` demands: called by the handler, with its ucontext or null.
pub unsafe fn capture(handler: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    let recalled = recall_signal::of(handler.thread_id);
    if let Some(recalled) = recalled {
        recalled.fetch_ahead();
    }
    let row = threads_signal::of(handler.thread_id);
    if let Some(row) = row {
        stack.context = row.scope.context();
    }
    // SAFETY: the handler passes on the ucontext that the kernel gave it; it lies on this thread's stack.
    let Some(context) = (unsafe { handler.ucontext.cast::<libc::ucontext_t>().as_ref() }) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let java_thread = row.map_or(0, threads_signal::Row::java_thread);
    let has_java = match layout::published() {
        Some(layout) => walk_signal::walk(layout, &registers(context), java_thread, recalled, stack),
        None => call_trace_signal::walk(context, java_thread, stack),
    };
    if !has_java {
        stack.push(frame_word::thread(handler.thread_id));
    }
    Captured::Walked
}
