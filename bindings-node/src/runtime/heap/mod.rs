//! The heap profile: V8's sampling heap profiler selects allocations and forgets collected objects. Each JavaScript thread reads
//! its profile before each collection, at the end of a window and when it ends: new samples are allocations, and missing ones were
//! collected. All allocations are seen, since an object disappears only in a collection. Memory of array buffers is outside of
//! V8's heap: hooks in its allocator observe each allocation and each free.
//!
//! Not here: weights, live set, in-use profiles (the core).
//!
//! V8's flags that keep collected objects are not used: they show allocations but not the objects in use, and a change restarts
//! the sampler. A read on a timer would miss objects that die between two reads. 54 reads at 430 MB/s in 300 functions take 1.8 %
//! of the CPU time. V8 attributes the allocations of an inlined function to its caller.

mod array_buffer_hooks;
mod array_buffers;
mod functions;
mod node_api;
mod profile;
mod requests;
mod session;

use std::sync::atomic::Ordering;
use std::time::Duration;

use spanprof_aggregate::runtime::Frame;
use spanprof_signal::heap::HEAP;
use spanprof_signal::RawFrame;

use crate::positions::CodeLocation;
use crate::runtime::code::code_map::CodeMap;
use crate::runtime::walk::js_thread::{self, JsThread};

pub use session::{before_collection, install, statistics};

/// Timeout of a request to JavaScript threads. A thread in a long call of native code does not answer.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(50);

/// The calling thread's environment begins. `env` is the addon's `napi_env` in it, `event_loop` its loop.
pub fn begin(thread: &'static JsThread, env: usize, event_loop: usize) {
    thread.heap_request_served.store(0, Ordering::Relaxed);
    thread.is_in_profiler.store(false, Ordering::Relaxed);
    session::begin(env);
    requests::accept(thread, event_loop);
    session::follow_core();
}

/// The calling thread's environment ends.
pub fn end(thread: &JsThread) {
    requests::refuse(thread);
    session::end();
}

/// The core's heap profile was started, stopped or got another interval.
pub fn sampling_changed() {
    session::follow_core();
    requests::send(Duration::ZERO);
}

/// Submits the samples since the last collection.
pub fn submit_outstanding() {
    if HEAP.is_running() {
        session::follow_core();
        session::count_late(requests::send(REQUEST_TIMEOUT));
    }
}

/// Runs `call`, in which this JavaScript thread waits for the profiler: it submits its samples before, and no thread waits for it.
pub fn while_waiting<T>(call: impl FnOnce() -> T) -> T {
    let thread = js_thread::current();
    session::follow_core();
    let set = |is_in_profiler| {
        thread.into_iter().for_each(|thread| thread.is_in_profiler.store(is_in_profiler, Ordering::Release));
    };
    set(true);
    let result = call();
    set(false);
    session::follow_core();
    result
}

/// Appends the frame, if `raw` is one of the heap profile.
pub fn resolve(raw: RawFrame, map: &mut CodeMap, out: &mut Vec<Frame>) -> bool {
    let Some(function) = functions::function_of(raw) else { return false };
    let location = CodeLocation {
        name: &function.name,
        script: function.script,
        positions: &[],
        inlining: None,
        is_optimized: false,
        offset: 0,
    };
    map.scripts.frames(&location, out);
    true
}
