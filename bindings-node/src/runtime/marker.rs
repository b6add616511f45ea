//! Frames that stand for no code: the collector or the compiler at work, and what a thread without JavaScript is.

use spanprof::runtime::{Frame, FrameType};
use spanprof_signal::RawFrame;

use super::thread_kind_signal::{self, Kind};

/// No address is as high.
pub const CODE: u64 = 1 << 62;

/// The garbage collector runs on this thread.
pub const COLLECTING: RawFrame = RawFrame { code: CODE, at: 0 };

/// Time of an event loop's turn during which no stack was seen.
pub const NO_STACK: RawFrame = RawFrame { code: CODE, at: 1 << 40 };

/// Time of an event loop's turn during which the thread waited: for a file, a lock, a child process or for a processor.
pub const OFF_CPU: RawFrame = RawFrame { code: CODE, at: 1 << 41 };

/// The event loop waits for events.
pub const IDLE: RawFrame = RawFrame { code: CODE, at: 1 << 42 };

/// V8 parses or compiles on this thread.
pub const COMPILING: RawFrame = RawFrame { code: CODE, at: 1 << 43 };

/// The thread makes its code known to us.
pub const LISTING: RawFrame = RawFrame { code: CODE, at: 1 << 44 };

/// Whether the frame is code of V8, of a script or built in: neither native code nor a marker.
pub fn is_code(frame: RawFrame) -> bool {
    (RawFrame::FIRST_RUNTIME_CODE..CODE).contains(&frame.code)
}

const KIND_SHIFT: u32 = 32;

/// A thread that runs no JavaScript.
pub fn thread(thread_id: u32, kind: Kind) -> RawFrame {
    RawFrame { code: CODE, at: u64::from(thread_id) | (kind as u64) << KIND_SHIFT }
}

/// The frame, if `raw` is a marker.
pub fn resolve(raw: RawFrame) -> Option<Frame> {
    if raw.code != CODE {
        return None;
    }
    let function = match raw.at {
        0 => "(garbage collector)".to_owned(),
        at if at == IDLE.at => "(idle)".to_owned(),
        at if at == NO_STACK.at => "(no stack seen)".to_owned(),
        at if at == OFF_CPU.at => "(not on the CPU)".to_owned(),
        at if at == COMPILING.at => "(compiler)".to_owned(),
        at if at == LISTING.at => "(profiler lists code)".to_owned(),
        at => thread_frame(at as u32, Kind::of(at >> KIND_SHIFT)),
    };
    Some(Frame { function: function.into(), frame_type: FrameType::Native, ..Frame::default() })
}

fn thread_frame(thread_id: u32, kind: Kind) -> String {
    let kind = if kind == Kind::Unknown { thread_kind_signal::known(thread_id) } else { kind };
    match kind.name().map(str::to_owned).or_else(|| spanprof::sys::thread_name(thread_id)) {
        Some(name) => format!("[thread {name}]"),
        None => "[thread]".to_owned(),
    }
}
