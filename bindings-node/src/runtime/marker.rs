//! Frames that stand for no code: the collector at work, and the name of a thread without JavaScript.

use spanprof::runtime::{Frame, FrameType};
use spanprof_signal::RawFrame;

/// No address is as high.
const CODE: u64 = 1 << 62;

/// The garbage collector runs on this thread.
pub const COLLECTING: RawFrame = RawFrame { code: CODE, at: 0 };

/// Time of an event loop's turn during which no stack was seen.
pub const NO_STACK: RawFrame = RawFrame { code: CODE, at: 1 << 40 };

/// Time of an event loop's turn during which the thread waited: for a file, a lock, a child process or for a processor.
pub const OFF_CPU: RawFrame = RawFrame { code: CODE, at: 1 << 41 };

/// The event loop waits for events.
pub const IDLE: RawFrame = RawFrame { code: CODE, at: 1 << 42 };

/// A thread that runs no JavaScript.
pub fn thread(thread_id: u32) -> RawFrame {
    RawFrame { code: CODE, at: thread_id as u64 }
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
        id => match spanprof::sys::thread_name(id as u32) {
            Some(name) => format!("[thread {name}]"),
            None => "[thread]".to_owned(),
        },
    };
    Some(Frame { function: function.into(), frame_type: FrameType::Native, ..Frame::default() })
}
