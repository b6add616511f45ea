//! Synthetic frames: the activity of the collector or the compiler, and the kind of a thread without JavaScript. Not
//! here: their names (`code::synthetic_names`).
//!
//! Their first word is [`CODE`]; the second one has the form of one of these rows:
//!
//! | second word | frame |
//! |---|---|
//! | bits 0–31: thread id, not 0; bits 32–39: its kind | [`thread`] |
//! | bit 45; bits 0–7: [`GcFrame`] | [`gc`] |
//! | 0, or one bit of 40–44 and 46 | a constant of this module |

use spanprof_signal::RawFrame;

use super::thread_kind::ThreadKind;

/// Code id of synthetic frames, above every address.
pub const CODE: u64 = 1 << 62;

/// Position of the kind in the second word of a thread's frame, above the thread id.
pub const KIND_SHIFT: u32 = 32;

/// Marks the frames of [`GcFrame`].
pub const GC: u64 = 1 << 45;

/// The garbage collector runs on this thread.
pub const COLLECTING: RawFrame = RawFrame { code: CODE, at: 0 };

/// Time of an event loop's turn without any captured stack.
pub const NO_STACK: RawFrame = of_bit(40);

/// Time of an event loop's turn in which the thread was off the CPU: it waited for a file, a lock, a child process or a processor.
pub const OFF_CPU: RawFrame = of_bit(41);

/// The event loop waits for events.
pub const IDLE: RawFrame = of_bit(42);

/// V8 parses or compiles on this thread.
pub const COMPILING: RawFrame = of_bit(43);

/// V8 lists this thread's existing code for the profiler.
pub const LISTING: RawFrame = of_bit(44);

/// Leaf of a heap sample: memory of an array buffer, outside of V8's heap.
pub const ARRAY_BUFFER: RawFrame = of_bit(46);

const fn of_bit(bit: u32) -> RawFrame {
    RawFrame { code: CODE, at: 1 << bit }
}

/// Frames of a pause for garbage collection: types of collections and causes.
#[derive(Clone, Copy)]
pub enum GcFrame {
    Scavenge,
    MinorMarkSweep,
    MarkCompact,
    IncrementalMarkingStart,
    WeakCallbacks,
    /// A type of a later V8.
    OtherType,
    LowMemory,
    ExternalMemory,
}

/// A frame of a pause for garbage collection.
pub fn gc(frame: GcFrame) -> RawFrame {
    RawFrame { code: CODE, at: GC | frame as u64 }
}

/// Whether the frame is JavaScript or a builtin: neither native nor synthetic.
pub fn is_code(frame: RawFrame) -> bool {
    (RawFrame::FIRST_RUNTIME_CODE..CODE).contains(&frame.code)
}

/// The frame of a thread that runs no JavaScript.
pub fn thread(thread_id: u32, kind: ThreadKind) -> RawFrame {
    RawFrame { code: CODE, at: u64::from(thread_id) | (kind as u64) << KIND_SHIFT }
}
