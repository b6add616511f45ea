//! Names of synthetic frames. Called on the drain thread.

use spanprof_aggregate::runtime::{Frame, FrameType};
use spanprof_signal::RawFrame;

use crate::runtime::walk::synthetic_frame;
use crate::runtime::walk::thread_kind::{self, ThreadKind};

/// By the number of the `GcFrame`.
const GC_NAMES: [&str; 8] = [
    "[scavenge]",
    "[minor mark-sweep]",
    "[mark-compact]",
    "[incremental marking start]",
    "[weak callbacks]",
    "[collection]",
    "[low memory]",
    "[external memory]",
];

/// The frame, if `raw` is synthetic.
pub fn resolve(raw: RawFrame) -> Option<Frame> {
    if raw.code != synthetic_frame::CODE {
        return None;
    }
    if let Some(name) = GC_NAMES.get((raw.at ^ synthetic_frame::GC) as usize) {
        // Like the core's frame `[GC]`: no code of the program or a library.
        return Some(Frame { function: (*name).into(), ..Frame::default() });
    }
    if raw == synthetic_frame::ARRAY_BUFFER {
        return Some(Frame { function: "[ArrayBuffer]".into(), ..Frame::default() });
    }
    let function = match raw.at {
        0 => "(garbage collector)".to_owned(),
        at if at == synthetic_frame::IDLE.at => "(idle)".to_owned(),
        at if at == synthetic_frame::NO_STACK.at => "(no stack seen)".to_owned(),
        at if at == synthetic_frame::OFF_CPU.at => "(not on the CPU)".to_owned(),
        at if at == synthetic_frame::COMPILING.at => "(compiler)".to_owned(),
        at if at == synthetic_frame::LISTING.at => "(profiler lists code)".to_owned(),
        at => thread_frame(at as u32, ThreadKind::of(at >> synthetic_frame::KIND_SHIFT)),
    };
    Some(Frame { function: function.into(), frame_type: FrameType::Native, ..Frame::default() })
}

fn thread_frame(thread_id: u32, kind: ThreadKind) -> String {
    let kind = if kind == ThreadKind::Unknown { thread_kind::remembered(thread_id) } else { kind };
    match kind.name().map(str::to_owned).or_else(|| spanprof_os::thread_name(thread_id)) {
        Some(name) => format!("[thread {name}]"),
        None => "[thread]".to_owned(),
    }
}
