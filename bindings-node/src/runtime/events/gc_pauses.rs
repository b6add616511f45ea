//! Pauses for garbage collection as samples: the time between V8's callbacks before and after a collection, on the thread that
//! it blocked. The stack is the cause, the type of the collection and `[GC]`. Short pauses are sampled ([`sample_event`]). Not
//! here: incremental marking in small steps and concurrent work, for which V8 calls no callbacks.
//!
//! Upstream: `include/v8-callbacks.h` (`GCType`, `GCCallbackFlags`), the same in V8 10.2 to 14.6 (Node.js 18 to 26).

use std::sync::atomic::Ordering;

use spanprof_profiler::binding::sample_event;
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{Context, RawFrame, RawSample, SampleFlags, SampleKind, SyntheticFrame};

use crate::runtime::walk::js_thread::JsThread;
use crate::runtime::walk::synthetic_frame::{self, GcFrame};

/// Shorter pauses are sampled.
const THRESHOLD_NS: u64 = 100_000;

/// The outermost collection begins.
pub fn begins(thread: &JsThread) {
    thread.collection_started_ns.store(spanprof_os::monotonic_ns(), Ordering::Relaxed);
}

/// The outermost collection ends; type and flags as V8 reports them.
pub fn ended(thread: &JsThread, gc_type: i32, flags: i32) {
    let now_ns = spanprof_os::monotonic_ns();
    let started_ns = thread.collection_started_ns.swap(0, Ordering::Relaxed);
    if started_ns == 0 {
        return;
    }
    let Some(profiler) = ProfilerHandle::running().filter(|profiler| profiler.is_running() && profiler.config().gc)
    else {
        return;
    };
    if let Some(pause) = sample_event(now_ns.saturating_sub(started_ns), THRESHOLD_NS) {
        // The core counts a drop when the ring is full.
        let _ = profiler.submit(&RawSample {
            kind: SampleKind::Gc,
            flags: SampleFlags(0),
            thread_id: thread.thread_id.load(Ordering::Relaxed),
            time_ns: now_ns,
            values: [pause.duration_ns, 0],
            key: 0,
            context: Context::None,
            frames: &[cause(flags), collection(gc_type), RawFrame::synthetic(SyntheticFrame::Gc)],
        });
    }
}

/// `GCType`: one bit each.
fn collection(gc_type: i32) -> RawFrame {
    synthetic_frame::gc(match gc_type {
        1 => GcFrame::Scavenge,
        2 => GcFrame::MinorMarkSweep,
        4 => GcFrame::MarkCompact,
        8 => GcFrame::IncrementalMarkingStart,
        16 => GcFrame::WeakCallbacks,
        _ => GcFrame::OtherType,
    })
}

fn cause(flags: i32) -> RawFrame {
    const FORCED: i32 = 1 << 2;
    const ALL_AVAILABLE_GARBAGE: i32 = 1 << 4;
    const ALL_EXTERNAL_MEMORY: i32 = 1 << 5;
    match flags {
        flags if flags & FORCED != 0 => RawFrame::synthetic(SyntheticFrame::Requested),
        flags if flags & ALL_AVAILABLE_GARBAGE != 0 => synthetic_frame::gc(GcFrame::LowMemory),
        flags if flags & ALL_EXTERNAL_MEMORY != 0 => synthetic_frame::gc(GcFrame::ExternalMemory),
        _ => RawFrame::synthetic(SyntheticFrame::Automatic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::code::synthetic_names;

    #[test]
    fn each_type_of_collection_and_each_cause_has_its_own_frame() {
        let names = |frames: Vec<RawFrame>| -> Vec<String> {
            let name = |frame: RawFrame| match frame.as_synthetic() {
                Some(synthetic) => synthetic.name().to_owned(),
                None => synthetic_names::resolve(frame).map_or(String::new(), |frame| frame.function.to_string()),
            };
            frames.into_iter().map(name).collect()
        };
        let types = [1, 2, 4, 8, 16, 64].map(collection);
        let expected = [
            "[scavenge]",
            "[minor mark-sweep]",
            "[mark-compact]",
            "[incremental marking start]",
            "[weak callbacks]",
            "[collection]",
        ];
        assert_eq!(names(types.into()), expected);
        let causes = [0, 1 << 2, 1 << 4, 1 << 5, 1 << 6].map(cause);
        assert_eq!(
            names(causes.into()),
            ["[automatic]", "[requested]", "[low memory]", "[external memory]", "[automatic]"]
        );
    }
}
