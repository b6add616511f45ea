//! The seam between the engine and a language. The core knows no language: a runtime is a value of this trait.
//!
//! # Contract
//! 1. **register_thread** runs on the new thread itself, before its clock is armed and never in a handler. It touches
//!    every thread-local the capture function will read. Threads found by the scan of the process are never registered:
//!    a capture function must cope with them.
//! 2. **capture** is a plain function pointer, called inside the signal handler on the interrupted thread. It writes raw
//!    frames leaf first and the thread's context. Its law is that of `spanprof-signal`.
//! 3. **resolve** turns one raw frame into named frames, on the drain thread (or in `stop`, when no drain thread is left).
//!    The runtime states why a raw frame still means something by then (its liveness rule): code that ends while samples
//!    of it may wait in the ring is announced through [`Runtime::ended`] with the ring position at which it ended.
//!
//! Two doors lead into the ring: *capture* (our clock asks) and *submit* (the runtime tells, [`crate::Profiler::submit`]). What
//! follows the ring cannot tell which was used.

use spanprof_signal::{CaptureFn, CaptureOtherFn, Captured, DropReason, HandlerContext, RawFrame, RawStack};

pub use spanprof_profile::FrameType;

/// A resolved frame: what a person sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Qualified name of the function.
    pub function: std::sync::Arc<str>,
    /// Source file as the runtime knows it; empty when unknown.
    pub file: std::sync::Arc<str>,
    /// First line of the function; 0 when unknown.
    pub start_line: u32,
    /// Executing line; 0 when unknown.
    pub line: u32,
    /// Executing column, 1-based; 0 when unknown.
    pub column: u32,
    /// What kind of code it is.
    pub frame_type: FrameType,
}

/// The frame of native code at `pc`, for a runtime that met some where it looked for code of its own; `None` where no loaded
/// file lies.
pub fn native_frame(pc: u64) -> Option<Frame> {
    crate::locations::exported_frame(pc).map(|(frame, _)| frame)
}

/// Code that ended (freed, unloaded, moved): raw frames with this code at ring positions from `position` on are other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `RawFrame::code`.
    pub code: u64,
    /// Ring position when it ended; entries before it still mean the old code.
    pub position: u64,
}

/// A thread the wall sampler may walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeThread {
    /// Kernel thread id.
    pub thread_id: u32,
    /// Word passed back to the capture function of another thread.
    pub handle: u64,
}

/// One language runtime in this process.
pub trait Runtime: Send + Sync + 'static {
    /// `process.runtime.name` and the like; at most four attributes.
    fn resource_attributes(&self) -> Vec<(String, String)>;

    /// Walks the interrupted thread; called in the handler.
    fn capture(&self) -> CaptureFn;

    /// The signal that carries the CPU clocks where SIGURG is not free: one that nothing in this runtime uses, and that does
    /// not queue.
    fn fallback_signal(&self) -> libc::c_int {
        libc::SIGPROF
    }

    /// Whether SIGTERM, where the program leaves it at its default action, may be delayed until the last window is delivered.
    fn delays_termination(&self) -> bool {
        false
    }

    /// Walks another thread for the wall profile; `None` when this runtime cannot.
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        None
    }

    /// Whether `capture_other` has the thread walk itself, so that its stack stands still although its CPU clock moves. A
    /// thread that it drops as `SignalBlocked` was asked, and has not answered yet: it is called again for it.
    fn others_walk_themselves(&self) -> bool {
        false
    }

    /// Waits until all threads that were asked since the last call have answered, for at most `patience`. False when
    /// nobody is waited for here. Called by the wall sampler.
    fn wait_for_answers(&self, patience: std::time::Duration) -> bool {
        let _ = patience;
        false
    }

    /// Whether raw frames that `capture_other` gave mean the same a second later, whatever code ended meanwhile.
    fn frames_keep(&self) -> bool {
        false
    }

    /// Rewrites raw frames that `capture_other` gave when the ring stood at `position` so that they keep their meaning; false
    /// where they cannot.
    fn keep_frames(&self, position: u64, frames: &mut [RawFrame]) -> bool {
        let _ = (position, frames);
        self.frames_keep()
    }

    /// The longest interval of the wall sampler while all threads stay where they are, of which an idle process can have about as
    /// many as its system calls allow; `None`: as configured. Called after each of its ticks.
    fn idle_interval(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_millis(180))
    }

    /// Looks at other threads are rare from here on, so that system calls weigh more than walks; or they are not any more.
    /// Called by the wall sampler before each tick.
    fn looks_are_rare(&self, are_rare: bool) {
        let _ = are_rare;
    }

    /// Appends the threads that run managed code now; called by the wall sampler, holding nothing.
    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        let _ = out;
    }

    /// Warms whatever `capture` reads, on the thread itself.
    fn register_thread(&self) {}

    /// Hands over what ended since the last call, oldest first. Called after the drain read the ring's head.
    fn ended(&self, out: &mut Vec<Ended>) {
        let _ = out;
    }

    /// Names for one raw frame seen at ring position `position`; innermost first when functions were inlined. Leaving
    /// `out` empty means the code can no longer be named: the frame becomes `[code_ended]` and is counted.
    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>);

    /// The process has forked and this is the child, on its only thread: forget parent threads, keep the code tables.
    fn after_fork_in_child(&self) {}

    /// Counters and facts of the runtime for `stats()`: (name, value).
    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let _ = out;
    }
}

/// The capture function of a runtime whose threads no clock interrupts: it captures nothing.
pub fn capture_nothing(_context: &HandlerContext, _stack: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::Disabled)
}

/// Stands in for the language where nothing is to be profiled, so that nothing of it is looked at.
pub struct SwitchedOff;

impl Runtime for SwitchedOff {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn resolve(&self, _frame: RawFrame, _position: u64, _out: &mut Vec<Frame>) {}
}
