//! V8 behind the core's `Runtime` seam. JavaScript threads enrol themselves; the handler walks; names come from V8's code
//! events, kept by ring position. Called by the door, the core's handler and its drain thread.

mod capture_signal;
mod code_details;
mod code_events;
mod code_map;
mod context_signal;
mod dead_code;
mod event_loop;
mod facts;
mod heap;
mod js_thread_signal;
mod map_figures;
mod marker;
mod names;
mod operation_sizes;
mod own_word;
mod recent_signal;
mod ring_position_signal;
mod self_test;
mod thread_kind_signal;
mod told;
mod v8;
mod wall_signal;

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use spanprof::runtime::{native_frame, Ended, Frame, Runtime, RuntimeThread};
use spanprof_signal::{guarded, CaptureFn, CaptureOtherFn, RawFrame};

use code_map::CodeMap;
use js_thread_signal::JsThread;
pub use names::CodeName;
use ring_position_signal::RingPosition;
use v8::V8;

/// Carries the clocks where SIGURG is not free. SIGPROF belongs to V8's own profiler (--cpu-prof, inspector). Nothing uses this
/// one, and it does not queue.
const FALLBACK_SIGNAL: libc::c_int = libc::SIGSTKFLT;

/// Major version of Node; 0 before the first start.
static MAJOR: AtomicU32 = AtomicU32::new(0);

pub fn set_node_major(major: u32) {
    MAJOR.store(major, Ordering::Relaxed);
}

/// Whether the configuration allows handlers of signals.
static MAY_HANDLE_FAULTS: AtomicBool = AtomicBool::new(false);

/// To be called before the first thread enrols.
pub fn allow_handling_of_faults(is_allowed: bool) {
    MAY_HANDLE_FAULTS.store(is_allowed, Ordering::Relaxed);
}

static PUBLISHED: AtomicPtr<V8> = AtomicPtr::new(std::ptr::null_mut());

/// V8's functions for the handler; `None` before the first thread enrolled.
fn published_v8() -> Option<&'static V8> {
    // SAFETY: only a reference that lives for ever is stored there.
    unsafe { PUBLISHED.load(Ordering::Acquire).as_ref() }
}

/// See the head of the module.
pub struct NodeRuntime {
    /// Asked by the drain alone.
    map: Mutex<CodeMap>,
    v8: &'static V8,
}

impl NodeRuntime {
    /// The runtime of this process, or why this Node cannot be profiled.
    pub fn get() -> Result<Arc<Self>, String> {
        static RUNTIME: OnceLock<Arc<NodeRuntime>> = OnceLock::new();
        let v8 = v8::v8()?;
        thread_kind_signal::learn();
        PUBLISHED.store(std::ptr::from_ref(v8).cast_mut(), Ordering::Release);
        Ok(RUNTIME.get_or_init(|| Arc::new(Self { map: Mutex::new(CodeMap::default()), v8 })).clone())
    }
}

pub use code_events::{present_run, run_begins, run_ended};

/// `named_up_to`: no sample below it waits to be named.
fn take_code_events(map: &mut CodeMap, most: usize, ring: usize, named_up_to: u64, ended: &mut Vec<Ended>) {
    map.begin(ring, named_up_to);
    for event in std::iter::from_fn(code_events::next).take(most) {
        map.apply(event, ended);
    }
    map.tidy(&guarded::read_u64, &|| RingPosition::now().head, ended);
}

/// Takes some of the events that wait, while no drain does: on a JavaScript thread, which shall not stand still for it.
fn absorb_code_events() {
    const AT_ONCE: usize = 16;
    let Ok(runtime) = NodeRuntime::get() else { return };
    let Ok(mut map) = runtime.map.try_lock() else { return };
    let RingPosition { ring, head } = RingPosition::now();
    // Nor does anybody name samples.
    take_code_events(&mut map, AT_ONCE, ring, head, &mut Vec::new());
}

/// Enrols the calling JavaScript thread; `probe` runs a small script of its own. True when it was not enrolled before.
pub fn enrol_current_thread(probe: &dyn Fn()) -> Result<bool, String> {
    let v8 = v8::v8()?;
    let thread_id = spanprof::sys::thread_id();
    if js_thread_signal::by_thread_id(thread_id).is_some() {
        return Ok(false);
    }
    // The addon's code is called by V8 and by handlers from here on.
    spanprof::sys::pin_library();
    // V8's heap is read while its code is listed: without the guard each word is a system call.
    if MAY_HANDLE_FAULTS.load(Ordering::Relaxed) && !spanprof::sys::fault_guard_owned() {
        spanprof::sys::install_fault_guard();
    }
    let isolate = (v8.current_isolate)();
    let thread = js_thread_signal::claim().ok_or("there are more JavaScript threads than can be profiled")?;
    thread.isolate.store(isolate, Ordering::Relaxed);
    thread.stack_high.store(stack_high(), Ordering::Relaxed);
    // From here on its stacks are walked: what is listed in a moment may be among them.
    let from = RingPosition::now();
    thread.thread_id.store(thread_id, Ordering::Release);
    // Before the listing, in which V8 may collect: what moves then stays seen at its old place.
    if let (Some(before), Some(after), true) = (v8.before_gc, v8.after_gc, v8.tells_collections()) {
        // SAFETY: on the isolate's thread; the callbacks live for ever.
        unsafe {
            before(isolate, collection_begins, ALL_COLLECTIONS);
            after(isolate, collection_ends, ALL_COLLECTIONS);
        }
    }
    code_events::begin(v8, isolate, from, probe);
    if js_thread_signal::landmarks().is_none() {
        leave_current_thread();
        return Err("this Node.js does not tell of its built-in code".to_owned());
    }
    Ok(true)
}

/// The calling thread's isolate ends.
pub fn leave_current_thread() {
    let Some(thread) = js_thread_signal::by_thread_id(spanprof::sys::thread_id()) else { return };
    event_loop::end(thread);
    let isolate = thread.isolate.load(Ordering::Relaxed);
    if let Some(v8) = published_v8() {
        thread.address_epoch.fetch_add(1, Ordering::Relaxed);
        code_events::end(v8, isolate);
        if let (Some(before), Some(after)) = (v8.not_before_gc, v8.not_after_gc) {
            // SAFETY: on the isolate's thread, which added both.
            unsafe {
                before(isolate, collection_begins);
                after(isolate, collection_ends);
            }
        }
    }
    thread.release();
}

/// The self-test's functions are about to be called for the first time.
pub fn expect_self_test() {
    code_events::expect_probes();
}

/// Called by the self-test's inner function: how stacks are walked from here on, `own`, `v8` or `none`.
pub fn judge_walks(own_is_allowed: bool) -> &'static str {
    self_test::judge(own_is_allowed).name()
}

/// Measures the event loop of the calling thread, which is enrolled. True when it was not measured before.
pub fn watch_event_loop(event_loop: usize) -> bool {
    current_thread().is_some_and(|thread| event_loop::begin(thread, event_loop))
}

/// Turns of a loop that take longer are reported, on every thread; 0 for none.
pub fn report_turns_longer_than(threshold_ns: u64) {
    event_loop::set_threshold_ns(threshold_ns);
}

const ALL_COLLECTIONS: i32 = 31;

extern "C" fn collection_begins(isolate: usize, _kind: i32, _flags: i32) {
    if let Some(thread) = js_thread_signal::by_isolate(isolate) {
        // While objects still lie where they are said to.
        if thread.collecting.load(Ordering::Relaxed) == 0 {
            thread.collecting_in.store(context_signal::id(thread), Ordering::Relaxed);
            thread.collecting_from.store(thread.moves.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        thread.collecting.fetch_add(1, Ordering::Relaxed);
        code_events::objects_move();
    }
}

extern "C" fn collection_ends(isolate: usize, _kind: i32, _flags: i32) {
    if let Some(thread) = js_thread_signal::by_isolate(isolate) {
        let fewer = thread.collecting.load(Ordering::Relaxed).saturating_sub(1);
        thread.collecting.store(fewer, Ordering::Relaxed);
        if fewer == 0 && thread.moves.load(Ordering::Relaxed) != thread.collecting_from.load(Ordering::Relaxed) {
            thread.address_epoch.fetch_add(1, Ordering::Relaxed);
            // A panic must not pass through V8.
            let _ = std::panic::catch_unwind(|| code_events::settled(isolate));
        }
    }
}

fn current_thread() -> Option<&'static JsThread> {
    js_thread_signal::by_thread_id(spanprof::sys::thread_id())
}

/// See the door. The probe makes sure that what is read is what was meant.
pub fn register_storage(storage: usize, probe: u64) -> bool {
    /// Words of an isolate that are looked at.
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
        // SAFETY: as above; the door passes a live napi_value.
        let Some(handle) = (unsafe { v8.globalize(isolate, storage) }) else { return false };
        thread.storage.store(handle, Ordering::Relaxed);
        // The second call, with another value, judges.
        return false;
    }
    let handle = thread.storage.load(Ordering::Relaxed);
    let offset = (1..ISOLATE_WORDS).map(|word| word * 8).find(|offset| {
        let there = spanprof_signal::guarded::read_u64(isolate + offset);
        there == Some(data as u64) && context_signal::stored(isolate + offset, handle) == Some(probe)
    });
    if let Some(offset) = offset {
        thread.continuation_offset.store(offset, Ordering::Release);
    }
    offset.is_some()
}

/// Sets the context id of the calling thread, where the storage is not read.
pub fn set_current(id: f64) {
    if let Some(thread) = current_thread() {
        thread.current.store(id.to_bits(), Ordering::Relaxed);
    }
}

/// Where JavaScript may set it by itself; `None` where it cannot, or the thread is not enrolled.
pub fn current_word(env: &napi::Env) -> Option<napi::bindgen_prelude::Unknown<'static>> {
    own_word::shown(env, &current_thread()?.current)
}

/// What the handler would read now.
pub fn current_context() -> u64 {
    current_thread().map_or(0, context_signal::id)
}

/// Where the calling thread's stack begins.
fn stack_high() -> usize {
    main_stack_high().unwrap_or_else(stack_high_by_library)
}

/// That of the main thread, as the kernel has it: the C library would read the list of all mappings for it.
fn main_stack_high() -> Option<usize> {
    /// `startstack` of proc_pid_stat(5), behind the name, which may hold anything.
    const FIELD_BEHIND_NAME: usize = 28 - 3;
    if spanprof::sys::thread_id() != std::process::id() {
        return None;
    }
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let start: usize = fields.split_ascii_whitespace().nth(FIELD_BEHIND_NAME)?.parse().ok()?;
    let here = std::ptr::from_ref(&start) as usize;
    // Hidden from some, it reads as 0 or 1.
    (start > here).then_some(start)
}

fn stack_high_by_library() -> usize {
    // SAFETY: plain queries about the calling thread into zeroed structures of our own.
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

/// What a resource says of Node.js, however it is sampled.
pub fn resource_attributes() -> Vec<(String, String)> {
    [("process.runtime.name", "nodejs"), ("telemetry.sdk.language", "nodejs")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

impl Runtime for NodeRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        resource_attributes()
    }

    fn capture(&self) -> CaptureFn {
        capture_signal::capture
    }

    fn capture_other(&self) -> Option<CaptureOtherFn> {
        wall_signal::learn_waits();
        wall_signal::install().then_some(wall_signal::capture_other as CaptureOtherFn)
    }

    fn others_walk_themselves(&self) -> bool {
        true
    }

    /// Each look reads a clock: a system call beside that of the sleep.
    fn idle_interval(&self) -> Option<Duration> {
        wall_signal::all_are_idle().then_some(Duration::from_millis(250))
    }

    fn keep_frames(&self, position: u64, frames: &mut [RawFrame]) -> bool {
        for frame in frames.iter_mut().filter(|frame| marker::is_code(**frame)) {
            *frame = ring_position_signal::seen_at(position, frame.code + frame.at);
        }
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        out.extend(js_thread_signal::all().iter().enumerate().filter_map(|(index, thread)| {
            let thread_id = thread.thread_id.load(Ordering::Acquire);
            let is_enrolled = ![0, js_thread_signal::CLAIMED].contains(&thread_id) && thread.exchange().is_some();
            is_enrolled.then_some(RuntimeThread { thread_id, handle: index as u64 })
        }));
    }

    fn fallback_signal(&self) -> libc::c_int {
        FALLBACK_SIGNAL
    }

    fn ended(&self, out: &mut Vec<Ended>) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        take_code_events(&mut map, usize::MAX, RingPosition::now().ring, RingPosition::named_up_to(), out);
        map_figures::publish(&map);
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        if let Some(marker) = marker::resolve(frame) {
            return out.push(marker);
        }
        let (address, position) = ring_position_signal::meant(frame, position);
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        map.frames(address as usize, position, out);
        map_figures::publish(&map);
        drop(map);
        if out.is_empty() {
            // V8's walk gives the functions of C++ that JavaScript called, outer ones too, as bare addresses.
            out.extend(native_frame(address));
        }
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let threads = js_thread_signal::all();
        let enrolled = threads.iter().filter(|thread| thread.thread_id.load(Ordering::Relaxed) != 0);
        let read = enrolled.clone().filter(|thread| thread.continuation_offset.load(Ordering::Relaxed) != 0).count();
        out.push(("node.js_threads", enrolled.count().to_string()));
        out.push(("node.threads_with_storage", read.to_string()));
        out.push(("node.collections_seen", self.v8.before_gc.is_some().to_string()));
        let facts = facts::of(MAJOR.load(Ordering::Relaxed));
        let found = facts::Found {
            maps_built_in: threads.iter().any(|thread| thread.built_in_copy.load(Ordering::Relaxed) != 0),
            tells_mapped: code_events::tells_mapped(),
            globalizes_word: self.v8.globalizes_word(),
        };
        out.push(("node.facts", facts.say()));
        out.push(("node.facts_differing", facts.differing(found).join(" ")));
        out.push(("node.stack_walk", self_test::means().name().to_owned()));
        out.push(("node.walks_own", capture_signal::OWN_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.walks_by_v8", capture_signal::V8_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.walks_native", capture_signal::NATIVE_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.code_events", code_events::taken().to_string()));
        out.push(("node.code_events_lost", code_events::lost().to_string()));
        event_loop::stats(out);
        // Not the map itself, which is the drain's: this runs on a JavaScript thread.
        map_figures::read(out);
        let inlining = [&code_details::INLINING_READ, &code_details::INLINING_UNREAD];
        let [read, unread] = inlining.map(|counter| counter.load(Ordering::Relaxed).to_string());
        out.push(("node.inlining_read", read));
        out.push(("node.inlining_unread", unread));
    }
}
