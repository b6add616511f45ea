//! V8's implementation of the core's `Runtime` trait. JavaScript threads enroll themselves; the signal handler walks their
//! stacks; names come from V8's code events, kept by ring position. Called by the addon's API, the core's handler and its
//! drain thread.

mod capture;
mod code;
mod collections;
mod enrollment;
mod events;
mod heap;
mod objects;
#[cfg(any(test, feature = "record-stacks"))]
mod record;
mod self_test;
mod small_buffers;
mod threads;
mod v8;
mod walk;

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use spanprof_aggregate::runtime::{EndedCode, EventRuntime, Frame, HeapRuntime, Runtime, RuntimeThread, WallRuntime};
use spanprof_profiler::binding::{self_walks_requested, SelfWalks};
use spanprof_profiler::native_frame;
use spanprof_signal::{CaptureFn, CaptureOtherFn, RawFrame, SampleKind};

use crate::positions::builtin_names;
use code::{code_events, code_map_stats, code_metadata, event_queue, synthetic_names};
use events::{block_watch, event_loop};
use threads::{kind_symbols, self_walks, signals};
use v8::{lookup, node_versions, V8};
use walk::ring_position::{self, RingPosition};
use walk::walk_method::{self, WalkMethod};
use walk::{js_thread, synthetic_frame};

pub use enrollment::{enroll_current_thread, is_current_thread_enrolled, leave_current_thread};
pub use threads::signals::allow_signals;
pub use threads::storage::{context_array, current_context, register_storage, set_current};

/// Major, minor and patch version of Node.js; unset before the first start.
static NODE_VERSION: OnceLock<[u32; 3]> = OnceLock::new();

pub fn set_node_version(version: [u32; 3]) {
    NODE_VERSION.get_or_init(|| version);
}

/// The V8 runtime of this process.
pub struct NodeRuntime {
    v8: &'static V8,
}

impl NodeRuntime {
    /// The runtime of this process, or the reason why this Node.js cannot be profiled.
    pub fn get() -> Result<Arc<Self>, String> {
        static RUNTIME: OnceLock<Arc<NodeRuntime>> = OnceLock::new();
        let v8 = lookup::v8()?;
        kind_symbols::look_up();
        v8::publish(v8);
        Ok(RUNTIME.get_or_init(|| Arc::new(Self { v8 })).clone())
    }
}

pub use code::event_queue::{begin_run, current_run, end_run};

/// Must precede the first run of the self-test's functions.
pub fn expect_self_test() {
    code_events::expect_probes();
}

/// Called by the self-test's inner function: selects the walk method, `own`, `v8` or `none`. A method that passed stays: V8 does
/// not compile the functions of the self-test again for a package that is loaded again.
pub fn select_stack_walk(allow_frame_pointers: bool) -> &'static str {
    let probes = code_events::take_probes();
    match walk_method::selected() {
        WalkMethod::None => self_test::select_method(allow_frame_pointers, &probes).name(),
        passed => passed.name(),
    }
}

/// Whether the self-test has selected a walk method in this process.
pub fn can_walk_stacks() -> bool {
    walk_method::selected() != WalkMethod::None
}

/// Measures the event loop of the calling thread, which is enrolled. False when it is measured already.
pub fn watch_event_loop(event_loop: usize) -> bool {
    let Some(thread) = js_thread::current().filter(|thread| event_loop::begin(thread, event_loop)) else {
        return false;
    };
    block_watch::begin(thread);
    true
}

/// Begins the part of the heap profile in the calling thread, which is enrolled. `env`: the addon's `napi_env`.
pub fn begin_heap_profile(env: usize, event_loop: usize) {
    if let Some(thread) = js_thread::current() {
        heap::begin(thread, env, event_loop);
    }
}

pub use heap::while_waiting;

/// Sets the duration above which a turn of an event loop is reported, on every thread; 0 turns this off.
pub fn report_turns_longer_than(threshold_ns: u64) {
    event_loop::set_threshold_ns(threshold_ns);
    block_watch::watch_current_turn();
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
        capture::capture
    }

    /// Node.js installs `node::SignalExit` (`src/node.cc`, 18 to 26), which restores the terminal and raises the signal again.
    fn delayed_termination(&self) -> Option<libc::sighandler_t> {
        Some(lookup::symbol(&[c"_ZN4node10SignalExitEiP9siginfo_tPv"]) as libc::sighandler_t)
    }

    fn fallback_signal(&self) -> libc::c_int {
        signals::FALLBACK_SIGNAL
    }

    fn ended(&self, out: &mut Vec<EndedCode>) {
        let mut map = event_queue::map().lock().unwrap_or_else(PoisonError::into_inner);
        event_queue::apply(&mut map, usize::MAX, RingPosition::now().ring, RingPosition::resolved_up_to(), out);
        code_map_stats::publish(&map);
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        if let Some(synthetic) = synthetic_names::resolve(frame) {
            return out.push(synthetic);
        }
        let mut map = event_queue::map().lock().unwrap_or_else(PoisonError::into_inner);
        if heap::resolve(frame, &mut map, out) {
            return;
        }
        let (address, position) = ring_position::address_and_position(frame, position);
        map.frames(address as usize, position, out);
        code_map_stats::publish(&map);
        drop(map);
        if out.is_empty() {
            // V8's walk returns the C++ functions that JavaScript called, outer ones too, as bare addresses.
            out.extend(native_frame(address, position).map(|frame| self.native_frame(frame)));
        }
    }

    fn native_frame(&self, frame: Frame) -> Frame {
        builtin_names::of_cpp(&frame.function).unwrap_or(frame)
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let threads = js_thread::all();
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
        out.push(("node.stack_walk", walk_method::selected().name().to_owned()));
        out.push(("node.walks_own", capture::FRAME_POINTER_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.walks_by_v8", capture::V8_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.walks_native", capture::NATIVE_WALKS.load(Ordering::Relaxed).to_string()));
        out.push(("node.code_events", event_queue::taken().to_string()));
        out.push(("node.code_events_lost", event_queue::lost().to_string()));
        out.push(("node.code_listings", code_events::listings().to_string()));
        event_loop::stats(out);
        out.push(("node.self_walks", self_walks_requested().to_string()));
        heap::statistics(out);
        // The published copy: this runs on a JavaScript thread, and the map itself is locked by the drain.
        code_map_stats::read(out);
        let inlining = [&code_metadata::INLINING_READ, &code_metadata::INLINING_UNREAD];
        let [read, unread] = inlining.map(|counter| counter.load(Ordering::Relaxed).to_string());
        out.push(("node.inlining_read", read));
        out.push(("node.inlining_unread", unread));
    }

    spanprof_aggregate::every_part_of_runtime!();
}

impl WallRuntime for NodeRuntime {
    /// `None` without signals: only the thread itself can walk its stack.
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        self_walks::begin(signals::may_signal()).then_some(self_walks::capture_other as CaptureOtherFn)
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
        self_walks::all_are_idle().then_some(Duration::from_millis(250))
    }

    fn stabilize_frames(&self, position: u64, frames: &mut [RawFrame]) -> bool {
        for frame in frames.iter_mut().filter(|frame| synthetic_frame::is_code(**frame)) {
            *frame = ring_position::frame_at_position(position, frame.code + frame.at);
        }
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        out.extend(js_thread::all().iter().enumerate().filter_map(|(index, thread)| {
            let thread_id = thread.thread_id.load(Ordering::Acquire);
            let is_enrolled = ![0, js_thread::CLAIMED].contains(&thread_id) && thread.waits().is_some();
            is_enrolled.then_some(RuntimeThread { thread_id, handle: index as u64 })
        }));
    }
}

impl HeapRuntime for NodeRuntime {
    fn install_hooks(&self) -> Result<(), String> {
        heap::install()
    }

    fn sampling_changed(&self) {
        heap::sampling_changed();
    }

    fn submit_outstanding_samples(&self) {
        heap::submit_outstanding();
    }
}

impl EventRuntime for NodeRuntime {
    fn submits(&self, kind: SampleKind) -> bool {
        kind == SampleKind::Gc
    }
}
