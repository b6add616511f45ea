//! Where the handler finds the context id of a JavaScript thread: in the AsyncLocalStorage of V8's embedder data, or in a word that
//! JavaScript writes. Called on the thread itself.

use std::sync::atomic::Ordering;

use spanprof_signal::{guarded, ProcessMemory};

use super::context_array as array;
use crate::runtime::v8;
use crate::runtime::walk::{context, js_thread};

/// Finds the offset of the storage in the isolate, in two calls with different values. `probe`: the number that the storage holds.
pub fn register_storage(storage: usize, probe: u64) -> bool {
    /// Words of an isolate that are searched.
    const ISOLATE_WORDS: usize = 2000;
    let (Some(thread), Some(v8)) = (js_thread::current(), v8::published()) else { return false };
    let isolate = thread.isolate.load(Ordering::Relaxed);
    if thread.continuation_offset.load(Ordering::Relaxed) != 0 {
        return context::id(thread) == probe;
    }
    let Some(continuation_data) = v8.continuation_data else { return false };
    // SAFETY: on the isolate's thread inside a call from JavaScript, where a handle scope is open.
    let data = unsafe { continuation_data(isolate).as_ref() }.copied().unwrap_or(0);
    if data & 3 != 1 {
        return false;
    }
    if thread.storage.load(Ordering::Relaxed) == 0 {
        // SAFETY: on the isolate's thread, where a handle scope is open; the API passes a live napi_value.
        let Some(handle) = (unsafe { v8.globalize(isolate, storage) }) else { return false };
        thread.storage.store(handle, Ordering::Relaxed);
        // The second call verifies, with another value.
        return false;
    }
    let handle = thread.storage.load(Ordering::Relaxed);
    let offset = (1..ISOLATE_WORDS).map(|word| word * 8).find(|offset| {
        let word = guarded::read_u64(isolate + offset);
        word == Some(data as u64) && context::stored(&ProcessMemory, isolate + offset, handle) == Some(probe)
    });
    if let Some(offset) = offset {
        thread.continuation_offset.store(offset, Ordering::Release);
    }
    offset.is_some()
}

/// Sets the context id of the calling thread, where the handler does not read the storage.
pub fn set_current(id: f64) {
    if let Some(thread) = js_thread::current() {
        thread.current.store(id.to_bits(), Ordering::Relaxed);
    }
}

/// The context id as an array that JavaScript writes; `None` where V8 forbids it, or the thread is not enrolled.
pub fn context_array(env: &napi::Env) -> Option<napi::bindgen_prelude::Unknown<'static>> {
    array::create(env, &js_thread::current()?.current)
}

/// The context id that the handler would read now.
pub fn current_context() -> u64 {
    js_thread::current().map_or(0, context::id)
}
