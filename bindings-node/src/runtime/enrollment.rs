//! Enrolls JavaScript threads: from then on the handler walks their stacks and V8 reports their code. Called on the thread itself.

use std::sync::atomic::Ordering;

use super::code::code_events;
use super::collections;
use super::events::{block_watch, event_loop};
use super::heap;
use super::threads::{signals, stack_bounds, table_entry};
use super::v8::{self, lookup};
use super::walk::js_thread;
use super::walk::ring_position::RingPosition;

pub fn is_current_thread_enrolled() -> bool {
    js_thread::by_thread_id(spanprof_os::thread_id()).is_some()
}

/// Enrolls the calling JavaScript thread; `probe` runs a small script. False when it was enrolled before.
pub fn enroll_current_thread(probe: &dyn Fn()) -> Result<bool, String> {
    let v8 = lookup::v8()?;
    let thread_id = spanprof_os::thread_id();
    if js_thread::by_thread_id(thread_id).is_some() {
        return Ok(false);
    }
    // V8 and signal handlers call the addon's code from here on.
    spanprof_os::pin_library();
    // The listing reads V8's heap: without the fault guard each word is a system call.
    if signals::may_signal() {
        spanprof_os::restore_fault_guard();
    }
    let isolate = (v8.current_isolate)();
    let thread = table_entry::claim().ok_or("there are more JavaScript threads than can be profiled")?;
    thread.isolate.store(isolate, Ordering::Relaxed);
    thread.stack_high.store(stack_bounds::stack_high(), Ordering::Relaxed);
    // The thread's stacks are walked from here on, and may contain the code that is listed below.
    let from = RingPosition::now();
    thread.thread_id.store(thread_id, Ordering::Release);
    // Added before the listing, in which V8 may collect: moved code keeps its old address until that collection ends.
    if let (Some(before), Some(after), true) = (v8.add_gc_prologue, v8.add_gc_epilogue, v8.has_gc_callbacks()) {
        // SAFETY: on the isolate's thread; the callbacks have static lifetime.
        unsafe {
            before(isolate, collections::begin, collections::ALL_TYPES);
            after(isolate, collections::end, collections::ALL_TYPES);
        }
    }
    code_events::enroll_isolate(v8, isolate, from, probe);
    if js_thread::builtin_ranges().is_none() {
        leave_current_thread();
        return Err("this Node.js does not report its built-in code".to_owned());
    }
    Ok(true)
}

/// The calling thread's isolate ends.
pub fn leave_current_thread() {
    let Some(thread) = js_thread::by_thread_id(spanprof_os::thread_id()) else { return };
    block_watch::end(thread);
    event_loop::end(thread);
    heap::end(thread);
    let isolate = thread.isolate.load(Ordering::Relaxed);
    if let Some(v8) = v8::published() {
        thread.address_epoch.fetch_add(1, Ordering::Relaxed);
        code_events::leave_isolate(v8, isolate);
        if let (Some(before), Some(after)) = (v8.remove_gc_prologue, v8.remove_gc_epilogue) {
            // SAFETY: on the isolate's thread, which added both.
            unsafe {
                before(isolate, collections::begin);
                after(isolate, collections::end);
            }
        }
    }
    thread.release();
}
