//! V8's implementation of the core's `Runtime` trait. JavaScript threads enroll themselves; the signal handler walks their
//! stacks; names come from V8's code events, kept by ring position. Called by the addon's API, the core's handler and its
//! drain thread.

mod allocations;
mod block_watch;
mod builtin_names;
mod builtin_ranges;
mod bytecode_sizes;
mod capture_signal;
mod code_events;
mod code_map;
mod code_map_stats;
mod code_metadata;
mod code_object;
mod context_array;
mod context_signal;
mod event_loop;
mod existing_code;
mod gc_pauses;
mod heap;
mod js_thread_signal;
mod known_functions;
mod names;
mod node_versions;
#[cfg(feature = "record-stacks")]
mod record;
#[cfg(feature = "record-stacks")]
mod record_signal;
#[cfg(any(test, feature = "record-stacks"))]
mod recorded_shape;
#[cfg(any(test, feature = "record-stacks"))]
mod replay;
// The recordings are from x86-64, where the walk also reads instructions.
#[cfg(all(test, target_arch = "x86_64"))]
mod replay_tests;
mod retired_code;
mod ring_position_signal;
mod self_test;
mod small_buffers;
mod synthetic_frame;
mod thread_kind_signal;
mod turn_stacks_signal;
mod v8;
mod walk_method_signal;
mod walk_signal;
mod wall_signal;

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use spanprof::binding::{self_walks_requested, SelfWalks};
use spanprof::native_frame;
use spanprof::runtime::{EndedCode, Frame, Runtime, RuntimeThread};
use spanprof_signal::{guarded, CaptureFn, CaptureOtherFn, ProcessMemory, RawFrame, SampleKind};

pub use builtin_names::frame as builtin_frame;
use code_map::CodeMap;
use js_thread_signal::JsThread;
pub use names::{CodeName, ANONYMOUS};
use ring_position_signal::RingPosition;
use v8::V8;

/// Signal of the clocks where SIGURG is taken. SIGPROF belongs to V8's own profiler (--cpu-prof, inspector); SIGSTKFLT is
/// otherwise unused, and it does not queue.
const FALLBACK_SIGNAL: libc::c_int = libc::SIGSTKFLT;

/// Major, minor and patch version of Node.js; unset before the first start.
static NODE_VERSION: OnceLock<[u32; 3]> = OnceLock::new();

pub fn set_node_version(version: [u32; 3]) {
    NODE_VERSION.get_or_init(|| version);
}

static MAY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// Stores whether the configuration allows signals and signal handlers. Must precede the first enrollment.
pub fn allow_signals(is_allowed: bool) {
    MAY_SIGNAL.store(is_allowed, Ordering::Relaxed);
}

static PUBLISHED: AtomicPtr<V8> = AtomicPtr::new(std::ptr::null_mut());

/// V8's functions for the handler; `None` before the first thread is enrolled.
fn published_v8() -> Option<&'static V8> {
    // SAFETY: only references of static lifetime are stored there.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}

/// The V8 runtime of this process; see the module documentation.
pub struct NodeRuntime {
    /// Used by the drain thread.
    map: Mutex<CodeMap>,
    v8: &'static V8,
}

impl NodeRuntime {
    /// The runtime of this process, or the reason why this Node.js cannot be profiled.
    pub fn get() -> Result<Arc<Self>, String> {
        static RUNTIME: OnceLock<Arc<NodeRuntime>> = OnceLock::new();
        let v8 = v8::v8()?;
        thread_kind_signal::look_up_symbols();
        PUBLISHED.store(std::ptr::from_ref(v8).cast_mut(), Ordering::Release);
        Ok(RUNTIME.get_or_init(|| Arc::new(Self { map: Mutex::new(CodeMap::default()), v8 })).clone())
    }
}

pub use code_events::{begin_run, current_run, end_run};

/// `resolved_up_to`: every sample below it is resolved.
fn take_code_events(
    map: &mut CodeMap,
    max_events: usize,
    ring: usize,
    resolved_up_to: u64,
    ended: &mut Vec<EndedCode>,
) {
    map.begin_drain(ring, resolved_up_to);
    for event in std::iter::from_fn(code_events::next).take(max_events) {
        map.apply(event, ended);
    }
    map.sweep(&guarded::read_u64, &|| RingPosition::now().head, ended);
}

/// Applies some queued events while no drain thread runs. Called on a JavaScript thread, so the batch is small.
fn apply_queued_events() {
    const BATCH_EVENTS: usize = 16;
    let Ok(runtime) = NodeRuntime::get() else { return };
    let Ok(mut map) = runtime.map.try_lock() else { return };
    let RingPosition { ring, head } = RingPosition::now();
    // Without a drain, no sample is resolved either.
    take_code_events(&mut map, BATCH_EVENTS, ring, head, &mut Vec::new());
}

/// Enrolls the calling JavaScript thread; `probe` runs a small script. False when it was enrolled before.
pub fn enroll_current_thread(probe: &dyn Fn()) -> Result<bool, String> {
    let v8 = v8::v8()?;
    let thread_id = spanprof::sys::thread_id();
    if js_thread_signal::by_thread_id(thread_id).is_some() {
        return Ok(false);
    }
    // V8 and signal handlers call the addon's code from here on.
    spanprof::sys::pin_library();
    // The listing reads V8's heap: without the fault guard each word is a system call.
    if MAY_SIGNAL.load(Ordering::Relaxed) && !spanprof::sys::fault_guard_owned() {
        spanprof::sys::install_fault_guard();
    }
    let isolate = (v8.current_isolate)();
    let thread = js_thread_signal::claim().ok_or("there are more JavaScript threads than can be profiled")?;
    thread.isolate.store(isolate, Ordering::Relaxed);
    thread.stack_high.store(stack_high(), Ordering::Relaxed);
    // The thread's stacks are walked from here on, and may contain the code that is listed below.
    let from = RingPosition::now();
    thread.thread_id.store(thread_id, Ordering::Release);
    // Added before the listing, in which V8 may collect: moved code keeps its old address until that collection ends.
    if let (Some(before), Some(after), true) = (v8.add_gc_prologue, v8.add_gc_epilogue, v8.has_gc_callbacks()) {
        // SAFETY: on the isolate's thread; the callbacks have static lifetime.
        unsafe {
            before(isolate, collection_begins, ALL_COLLECTIONS);
            after(isolate, collection_ends, ALL_COLLECTIONS);
        }
    }
    code_events::enroll_isolate(v8, isolate, from, probe);
    if js_thread_signal::builtin_ranges().is_none() {
        leave_current_thread();
        return Err("this Node.js does not report its built-in code".to_owned());
    }
    Ok(true)
}

/// The calling thread's isolate ends.
pub fn leave_current_thread() {
    let Some(thread) = js_thread_signal::by_thread_id(spanprof::sys::thread_id()) else { return };
    block_watch::end(thread);
    event_loop::end(thread);
    allocations::end(thread);
    let isolate = thread.isolate.load(Ordering::Relaxed);
    if let Some(v8) = published_v8() {
        thread.address_epoch.fetch_add(1, Ordering::Relaxed);
        code_events::leave_isolate(v8, isolate);
        if let (Some(before), Some(after)) = (v8.remove_gc_prologue, v8.remove_gc_epilogue) {
            // SAFETY: on the isolate's thread, which added both.
            unsafe {
                before(isolate, collection_begins);
                after(isolate, collection_ends);
            }
        }
    }
    thread.release();
}

/// Must precede the first run of the self-test's functions.
pub fn expect_self_test() {
    code_events::expect_probes();
}

/// Called by the self-test's inner function: selects the walk method, `own`, `v8` or `none`.
pub fn select_stack_walk(allow_frame_pointers: bool) -> &'static str {
    self_test::select_method(allow_frame_pointers, &code_events::take_probes()).name()
}

/// Whether the self-test has selected a walk method in this process.
pub fn can_walk_stacks() -> bool {
    walk_method_signal::selected() != walk_method_signal::WalkMethod::None
}

/// Measures the event loop of the calling thread, which is enrolled. False when it is measured already.
pub fn watch_event_loop(event_loop: usize) -> bool {
    let Some(thread) = current_thread().filter(|thread| event_loop::begin(thread, event_loop)) else { return false };
    block_watch::begin(thread);
    true
}

/// Begins the part of the heap profile in the calling thread, which is enrolled. `env`: the addon's `napi_env`.
pub fn begin_heap_profile(env: usize, event_loop: usize) {
    if let Some(thread) = current_thread() {
        allocations::begin(thread, env, event_loop);
    }
}

pub use allocations::while_waiting;

/// Sets the duration above which a turn of an event loop is reported, on every thread; 0 turns this off.
pub fn report_turns_longer_than(threshold_ns: u64) {
    event_loop::set_threshold_ns(threshold_ns);
    block_watch::watch_current_turn();
}

const ALL_COLLECTIONS: i32 = 31;

/// The types of collections that free objects (`GCType` in `v8-callbacks.h`): scavenge, minor mark-sweep, mark-compact.
const FREEING_COLLECTIONS: i32 = 7;

extern "C" fn collection_begins(isolate: usize, gc_type: i32, _flags: i32) {
    if let Some(thread) = js_thread_signal::by_isolate(isolate) {
        if gc_type & FREEING_COLLECTIONS != 0 && thread.active_collections.load(Ordering::Relaxed) == 0 {
            allocations::before_collection();
        }
        // Read before the collector moves objects.
        if thread.active_collections.load(Ordering::Relaxed) == 0 {
            thread.collection_context.store(context_signal::id(thread), Ordering::Relaxed);
            thread.moves_at_collection.store(thread.code_moves.load(Ordering::Relaxed), Ordering::Relaxed);
            gc_pauses::begins(thread);
        }
        thread.active_collections.fetch_add(1, Ordering::Relaxed);
        code_events::collection_begins();
    }
}

extern "C" fn collection_ends(isolate: usize, gc_type: i32, flags: i32) {
    if let Some(thread) = js_thread_signal::by_isolate(isolate) {
        let fewer = thread.active_collections.load(Ordering::Relaxed).saturating_sub(1);
        thread.active_collections.store(fewer, Ordering::Relaxed);
        if fewer == 0 && thread.code_moves.load(Ordering::Relaxed) != thread.moves_at_collection.load(Ordering::Relaxed)
        {
            thread.address_epoch.fetch_add(1, Ordering::Relaxed);
            // A panic must not unwind through V8.
            spanprof::binding::ffi_guard((), || code_events::collection_ends(isolate));
        }
        if fewer == 0 {
            spanprof::binding::ffi_guard((), || gc_pauses::ended(thread, gc_type, flags));
        }
    }
}

fn current_thread() -> Option<&'static JsThread> {
    js_thread_signal::by_thread_id(spanprof::sys::thread_id())
}

/// See the API. The probe verifies the offset that is found.
pub fn register_storage(storage: usize, probe: u64) -> bool {
    /// Words of an isolate that are searched.
    const ISOLATE_WORDS: usize = 2000;
    let (Some(thread), Some(v8)) = (current_thread(), published_v8()) else { return false };
    let isolate = thread.isolate.load(Ordering::Relaxed);
    if thread.continuation_offset.load(Ordering::Relaxed) != 0 {
        return context_signal::id(thread) == probe;
    }
    let Some(continuation_data) = v8.continuation_data else { return false };
    // SAFETY: on the isolate's thread inside a call from JavaScript, where a handle scope is open.
    let data = unsafe { continuation_data(isolate).as_ref() }.copied().unwrap_or(0);
    if data & 3 != 1 {
        return false;
    }
    if thread.storage.load(Ordering::Relaxed) == 0 {
        // SAFETY: as above; the API passes a live napi_value.
        let Some(handle) = (unsafe { v8.globalize(isolate, storage) }) else { return false };
        thread.storage.store(handle, Ordering::Relaxed);
        // The second call verifies, with another value.
        return false;
    }
    let handle = thread.storage.load(Ordering::Relaxed);
    let offset = (1..ISOLATE_WORDS).map(|word| word * 8).find(|offset| {
        let word = spanprof_signal::guarded::read_u64(isolate + offset);
        word == Some(data as u64) && context_signal::stored(&ProcessMemory, isolate + offset, handle) == Some(probe)
    });
    if let Some(offset) = offset {
        thread.continuation_offset.store(offset, Ordering::Release);
    }
    offset.is_some()
}

/// Sets the context id of the calling thread, where the handler does not read the storage.
pub fn set_current(id: f64) {
    if let Some(thread) = current_thread() {
        thread.current.store(id.to_bits(), Ordering::Relaxed);
    }
}

/// The context id as an array that JavaScript writes; `None` where V8 forbids it, or the thread is not enrolled.
pub fn context_array(env: &napi::Env) -> Option<napi::bindgen_prelude::Unknown<'static>> {
    context_array::create(env, &current_thread()?.current)
}

/// The context id that the handler would read now.
pub fn current_context() -> u64 {
    current_thread().map_or(0, context_signal::id)
}

/// The high end of the calling thread's stack.
fn stack_high() -> usize {
    main_stack_high().unwrap_or_else(stack_high_by_library)
}

/// The high end of the main thread's stack, from the kernel: the C library would parse the list of all mappings.
fn main_stack_high() -> Option<usize> {
    /// `startstack` of proc_pid_stat(5), counted from the first field after the name, which may contain blanks.
    const FIELD_AFTER_NAME: usize = 28 - 3;
    if spanprof::sys::thread_id() != std::process::id() {
        return None;
    }
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let start: usize = fields.split_ascii_whitespace().nth(FIELD_AFTER_NAME)?.parse().ok()?;
    let here = std::ptr::from_ref(&start) as usize;
    // Without the permission of ptrace(2) the kernel reports 0 or 1.
    (start > here).then_some(start)
}

fn stack_high_by_library() -> usize {
    // SAFETY: queries about the calling thread into zeroed structures of our own.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return 0;
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        let known = libc::pthread_attr_getstack(&attributes, &mut low, &mut size) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if known {
            low as usize + size
        } else {
            0
        }
    }
}

impl Runtime for NodeRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        // An attribute without a value is left out.
        let version =
            NODE_VERSION.get().map(|version| version.map(|part| part.to_string()).join(".")).unwrap_or_default();
        [
            ("process.runtime.name", "nodejs"),
            ("process.runtime.version", version.as_str()),
            ("telemetry.sdk.language", "nodejs"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    fn capture(&self) -> CaptureFn {
        capture_signal::capture
    }

    /// Node.js installs `node::SignalExit` (`src/node.cc`, 18 to 26), which restores the terminal and raises the signal again.
    fn delayed_termination(&self) -> Option<libc::sighandler_t> {
        Some(v8::symbol(&[c"_ZN4node10SignalExitEiP9siginfo_tPv"]) as libc::sighandler_t)
    }

    fn submits(&self, kind: SampleKind) -> bool {
        kind == SampleKind::Gc
    }

    fn install_heap_hooks(&self) -> Result<(), String> {
        allocations::install()
    }

    fn heap_sampling_changed(&self) {
        allocations::sampling_changed();
    }

    fn submit_outstanding_samples(&self) {
        allocations::submit_outstanding();
    }

    /// `None` without signals: only the thread itself can walk its stack.
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        wall_signal::begin(MAY_SIGNAL.load(Ordering::Relaxed)).then_some(wall_signal::capture_other as CaptureOtherFn)
    }

    fn uses_self_walks(&self) -> bool {
        true
    }

    fn wait_for_responses(&self, timeout: Duration) -> bool {
        SelfWalks::of_process().wait(timeout);
        true
    }

    /// Each observation reads a CPU clock, which is a system call in addition to the sleep.
    fn idle_interval(&self) -> Option<Duration> {
        wall_signal::all_are_idle().then_some(Duration::from_millis(250))
    }

    fn stabilize_frames(&self, position: u64, frames: &mut [RawFrame]) -> bool {
        for frame in frames.iter_mut().filter(|frame| synthetic_frame::is_code(**frame)) {
            *frame = ring_position_signal::frame_at_position(position, frame.code + frame.at);
        }
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        out.extend(js_thread_signal::all().iter().enumerate().filter_map(|(index, thread)| {
            let thread_id = thread.thread_id.load(Ordering::Acquire);
            let is_enrolled = ![0, js_thread_signal::CLAIMED].contains(&thread_id) && thread.waits().is_some();
            is_enrolled.then_some(RuntimeThread { thread_id, handle: index as u64 })
        }));
    }

    fn fallback_signal(&self) -> libc::c_int {
        FALLBACK_SIGNAL
    }

    fn ended(&self, out: &mut Vec<EndedCode>) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        take_code_events(&mut map, usize::MAX, RingPosition::now().ring, RingPosition::resolved_up_to(), out);
        code_map_stats::publish(&map);
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        if let Some(synthetic_frame) = synthetic_frame::resolve(frame) {
            return out.push(synthetic_frame);
        }
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        if allocations::resolve(frame, &mut map, out) {
            return;
        }
        let (address, position) = ring_position_signal::address_and_position(frame, position);
        map.frames(address as usize, position, out);
        code_map_stats::publish(&map);
        drop(map);
        if out.is_empty() {
            // V8's walk returns the C++ functions that JavaScript called, outer ones too, as bare addresses.
            out.extend(native_frame(address).map(|frame| self.native_frame(frame)));
        }
    }

    fn native_frame(&self, frame: Frame) -> Frame {
        builtin_names::of_cpp(&frame.function).unwrap_or(frame)
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let threads = js_thread_signal::all();
        let enrolled = threads.iter().filter(|thread| thread.thread_id.load(Ordering::Relaxed) != 0);
        let read = enrolled.clone().filter(|thread| thread.continuation_offset.load(Ordering::Relaxed) != 0).count();
        out.push(("node.js_threads", enrolled.count().to_string()));
        out.push(("node.threads_with_storage", read.to_string()));
        out.push(("node.collections_seen", self.v8.add_gc_prologue.is_some().to_string()));
        let version = node_versions::of(NODE_VERSION.get().map_or(0, |[major, ..]| *major));
        let observed = node_versions::ObservedNode {
            remaps_builtins: threads.iter().any(|thread| thread.remapped_builtins.load(Ordering::Relaxed) != 0),
            logs_remapped: code_events::logs_remapped(),
            globalizes_object: self.v8.globalizes_object(),
        };
        out.push(("node.facts", version.describe()));
        out.push(("node.facts_differing", version.differing(observed).join(" ")));
        out.push(("node.stack_walk", walk_method_signal::selected().name().to_owned()));
        out.push(("node.walks_own", capture_signal::FRAME_POINTER_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.walks_by_v8", capture_signal::V8_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.walks_native", capture_signal::NATIVE_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.code_events", code_events::taken().to_string()));
        out.push(("node.code_events_lost", code_events::lost().to_string()));
        out.push(("node.code_listings", code_events::listings().to_string()));
        event_loop::stats(out);
        out.push(("node.self_walks", self_walks_requested().to_string()));
        allocations::statistics(out);
        // The published copy: this runs on a JavaScript thread, and the map itself is locked by the drain.
        code_map_stats::read(out);
        let inlining = [&code_metadata::INLINING_READ, &code_metadata::INLINING_UNREAD];
        let [read, unread] = inlining.map(|counter| counter.load(Ordering::Relaxed).to_string());
        out.push(("node.inlining_read", read));
        out.push(("node.inlining_unread", unread));
    }
}
