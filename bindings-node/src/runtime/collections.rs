//! V8's callbacks around garbage collections, on the isolate's own thread.

use std::sync::atomic::Ordering;

use super::code::code_events;
use super::events::gc_pauses;
use super::heap;
use super::walk::{context, js_thread};

/// Every type of collection (`GCType` in `v8-callbacks.h`).
pub const ALL_TYPES: i32 = 31;

/// The types of collections that free objects (`GCType` in `v8-callbacks.h`): scavenge, minor mark-sweep, mark-compact.
const FREEING_TYPES: i32 = 7;

pub extern "C" fn begin(isolate: usize, gc_type: i32, _flags: i32) {
    if let Some(thread) = js_thread::by_isolate(isolate) {
        if gc_type & FREEING_TYPES != 0 && thread.active_collections.load(Ordering::Relaxed) == 0 {
            heap::before_collection();
        }
        // Read before the collector moves objects.
        if thread.active_collections.load(Ordering::Relaxed) == 0 {
            thread.collection_context.store(context::id(thread), Ordering::Relaxed);
            thread.moves_at_collection.store(thread.code_moves.load(Ordering::Relaxed), Ordering::Relaxed);
            gc_pauses::begins(thread);
        }
        thread.active_collections.fetch_add(1, Ordering::Relaxed);
        code_events::collection_begins();
    }
}

pub extern "C" fn end(isolate: usize, gc_type: i32, flags: i32) {
    if let Some(thread) = js_thread::by_isolate(isolate) {
        let fewer = thread.active_collections.load(Ordering::Relaxed).saturating_sub(1);
        thread.active_collections.store(fewer, Ordering::Relaxed);
        if fewer == 0 && thread.code_moves.load(Ordering::Relaxed) != thread.moves_at_collection.load(Ordering::Relaxed)
        {
            thread.address_epoch.fetch_add(1, Ordering::Relaxed);
            // A panic must not unwind through V8.
            spanprof_profiler::binding::ffi_guard((), || code_events::collection_ends(isolate));
        }
        if fewer == 0 {
            spanprof_profiler::binding::ffi_guard((), || gc_pauses::ended(thread, gc_type, flags));
        }
    }
}
