//! The interface between the engine and a language runtime. The core contains no language: a runtime implements this trait.
//!
//! # Contract
//! 1. **register_thread** runs on the new thread itself, before its clock is armed and never in a handler. It touches every
//!    thread-local that the capture function reads. The scan of the process finds further threads, which are never
//!    registered: a capture function must handle them.
//! 2. **capture** is a plain function pointer, called inside the signal handler on the interrupted thread. It writes raw
//!    frames leaf first and the thread's context. It obeys the rules of `spanprof-signal`.
//! 3. **resolve** turns one raw frame into named frames, on the drain thread (or in `stop`, when no drain thread is left).
//!    The runtime documents why a raw frame is still valid by then (its liveness rule). Code may end while samples of it
//!    are in the ring; the runtime reports it through [`Runtime::ended`] with the ring position at which it ended.
//!
//! Samples enter the ring in two ways: *capture* (on a signal of a clock) and *submit* (by the runtime,
//! `submit` of the handle). The drain treats both alike.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use spanprof_signal::{
    CaptureFn, CaptureOtherFn, Captured, Context, DropReason, HandlerContext, RawFrame, RawStack, SampleKind,
};

use spanprof_profile::code_origin::TYPE_FILE;
pub use spanprof_profile::FrameType;

/// A resolved frame, as a profile shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Qualified name of the function.
    pub function: Arc<str>,
    /// Source file as the runtime reports it; empty when unknown.
    pub file: Arc<str>,
    /// First line of the function; 0 when unknown.
    pub start_line: u32,
    /// Executing line; 0 when unknown.
    pub line: u32,
    /// Executing column, 1-based; 0 when unknown.
    pub column: u32,
    /// Kind of code: native, or of a language.
    pub frame_type: FrameType,
    /// The place of native code in its file, on the outermost frame of a location.
    pub native: Option<NativePlace>,
}

/// Part of native code in a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeRole {
    /// No native code.
    #[default]
    NotNative,
    /// A function that is always shown.
    Shown,
    /// A function of the language's runtime, which its code may call.
    RuntimeFunction,
    /// A function of the runtime that only passes calls on.
    CallGlue,
}

/// A file that is mapped as code. Addresses are those in the file, as in its symbol table: they do not depend on where a process loaded
/// it, and receivers look them up in symbols without the addresses of the process (Pyroscope 2.4, OpenTelemetry's eBPF profiler).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NativeMapping {
    /// First address of the mapped segment.
    pub start: u64,
    /// Address after the last.
    pub limit: u64,
    /// Offset of the first byte in the file.
    pub file_offset: u64,
    /// Path of the file.
    pub file: Arc<str>,
    /// `process.executable.build_id.gnu`; empty for none.
    pub build_id: Arc<str>,
    /// `process.executable.build_id.htlhash`.
    pub htlhash: Arc<str>,
}

/// Where native code is in its file.
#[derive(Clone, Debug)]
pub struct NativePlace {
    /// The file.
    pub mapping: Arc<NativeMapping>,
    /// Address in the file of the function's first instruction; of the executing one where it is not known in which function it is.
    pub address: u64,
    /// Whether the frame has the name of its file instead of a function.
    pub is_unnamed: bool,
}

/// Only frames without a name differ by their address. Otherwise instances of one generic function, or a function and its cold part, would
/// be several locations with the same name and line.
impl PartialEq for NativePlace {
    fn eq(&self, other: &Self) -> bool {
        let is_equal = || self.address == other.address && self.mapping == other.mapping;
        self.is_unnamed == other.is_unnamed && (!self.is_unnamed || is_equal())
    }
}

impl Eq for NativePlace {}

impl Hash for NativePlace {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.is_unnamed.then_some(self.address).hash(state);
    }
}

impl Frame {
    /// The frame that names the type of an object.
    pub fn of_type(name: impl Into<Arc<str>>, frame_type: FrameType) -> Self {
        Self { function: name.into(), file: TYPE_FILE.into(), frame_type, ..Self::default() }
    }
}

/// Code that ended (freed, unloaded, moved). Raw frames with this id at ring positions from `position` on are other code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedCode {
    /// `RawFrame::code`.
    pub code: u64,
    /// Ring position when it ended; earlier entries still refer to the old code.
    pub position: u64,
}

/// A thread that the wall sampler may walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuntimeThread {
    /// Kernel thread id.
    pub thread_id: u32,
    /// Word passed back to the capture function of another thread.
    pub handle: u64,
}

/// See [`ends_soon`].
static ENDS_SOON: AtomicBool = AtomicBool::new(false);

/// Whether half of `stop_timeout` has passed: names that take long are left out, so that the last window is delivered.
pub fn ends_soon() -> bool {
    ENDS_SOON.load(Ordering::Relaxed)
}

/// See [`ends_soon`].
pub fn set_ends_soon(ends_soon: bool) {
    ENDS_SOON.store(ends_soon, Ordering::Relaxed);
}

/// One language runtime in this process.
pub trait Runtime: Send + Sync + 'static {
    /// `process.runtime.name` and the like; at most four attributes.
    fn resource_attributes(&self) -> Vec<(String, String)>;

    /// Walks the interrupted thread; called in the handler.
    fn capture(&self) -> CaptureFn;

    /// An address in the code of the language's runtime, which is in most stacks; 0 if it is the program.
    fn code_address(&self) -> u64 {
        0
    }

    /// The signal of the CPU clocks where SIGURG is in use: a standard signal (it does not queue) that this runtime leaves
    /// unused.
    fn fallback_signal(&self) -> libc::c_int {
        libc::SIGPROF
    }

    /// The action of SIGTERM that may be delayed until the last window is delivered, besides SIG_DFL: a handler of the
    /// language's runtime that only ends the process by the signal. `None`: SIGTERM is never delayed.
    fn delayed_termination(&self) -> Option<libc::sighandler_t> {
        None
    }

    /// The address of native code that a raw frame stands for; `None` for code of the language.
    fn native_pc(&self, frame: RawFrame) -> Option<u64> {
        frame.native_pc()
    }

    /// The frame of native code, from that of its symbol: the code may implement a function of the language. Called by the drain
    /// thread, once for each address.
    fn native_frame(&self, frame: Frame) -> Frame {
        frame
    }

    /// The part of native code that a frame has in stacks of the language.
    fn native_role(&self, frame: &Frame) -> NativeRole {
        let _ = frame;
        NativeRole::Shown
    }

    /// Called after the control endpoint, the watched file or the end of a burst changed the configuration, for a runtime with
    /// hooks that only its own threads may install. On any thread; must not wait for a lock of the language.
    fn settings_changed(&self) {}

    /// Initializes the thread-locals that `capture` reads, on the thread itself.
    fn register_thread(&self) {}

    /// Appends the code that ended since the last call, oldest first. Called after the drain read the ring's head.
    fn ended(&self, out: &mut Vec<EndedCode>) {
        let _ = out;
    }

    /// Resolves one raw frame from ring position `position`; innermost first when functions were inlined. An empty `out`
    /// means that the code has ended: the frame becomes `[code_ended]` and is counted.
    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>);

    /// Called after frames were resolved, when no more are due: releases memory that only their resolution needs.
    fn end_batch(&self) {}

    /// Called in a forked child on its only thread: drops the threads of the parent and keeps the code tables.
    fn after_fork_in_child(&self) {}

    /// Counters and properties of the runtime for `stats()`: (name, value).
    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let _ = out;
    }

    /// Walks of other threads: the profiles of wall-clock time, of time off the CPU, and of threads. `None` when this runtime has none.
    fn wall(&self) -> Option<&dyn WallRuntime> {
        None
    }

    /// The heap profile; `None` when this runtime has none.
    fn heap(&self) -> Option<&dyn HeapRuntime> {
        None
    }

    /// Events that the runtime reports by itself; `None` when it reports none.
    fn events(&self) -> Option<&dyn EventRuntime> {
        None
    }
}

/// The optional parts of a runtime that implements all of them, in its `impl Runtime`.
#[macro_export]
macro_rules! every_part_of_runtime {
    () => {
        fn wall(&self) -> Option<&dyn $crate::runtime::WallRuntime> {
            Some(self)
        }

        fn heap(&self) -> Option<&dyn $crate::runtime::HeapRuntime> {
            Some(self)
        }

        fn events(&self) -> Option<&dyn $crate::runtime::EventRuntime> {
            Some(self)
        }
    };
}

impl dyn Runtime {
    /// Whether this runtime submits samples of `kind`.
    pub fn submits(&self, kind: SampleKind) -> bool {
        self.events().is_some_and(|events| events.submits(kind))
    }

    /// Walks another thread; `None` when this runtime cannot.
    pub fn capture_other(&self) -> Option<CaptureOtherFn> {
        self.wall()?.capture_other()
    }
}

/// A runtime whose threads another thread can walk, or that walk themselves on request.
pub trait WallRuntime {
    /// Walks another thread; `None` when that is not possible in this process, as without signals.
    fn capture_other(&self) -> Option<CaptureOtherFn>;

    /// Whether `capture_other` makes the thread walk itself (a self-walk), so that a moving CPU clock does not mean a torn
    /// stack. `SignalBlocked` means that the request is pending: `capture_other` is called again for this thread.
    fn uses_self_walks(&self) -> bool {
        false
    }

    /// Waits until all self-walks requested since the last call are complete, for at most `timeout`. False when this runtime
    /// never waits. Called by the wall sampler.
    fn wait_for_responses(&self, timeout: std::time::Duration) -> bool {
        let _ = timeout;
        false
    }

    /// Whether raw frames of `capture_other` stay valid for a second, even if code ends meanwhile.
    fn are_frames_stable(&self) -> bool {
        false
    }

    /// Rewrites raw frames that `capture_other` returned at ring position `position` so that they stay valid; false where
    /// that is impossible.
    fn stabilize_frames(&self, position: u64, frames: &mut [RawFrame]) -> bool {
        let _ = (position, frames);
        self.are_frames_stable()
    }

    /// The longest interval between ticks of the wall sampler while all threads are blocked. A shorter one costs more
    /// system calls in an idle process. `None`: as configured. Called after each tick.
    fn idle_interval(&self) -> Option<std::time::Duration> {
        Some(std::time::Duration::from_millis(180))
    }

    /// Notifies the runtime whether the wall sampler runs at its idle rate, where system calls cost more than walks.
    /// Called before each tick.
    fn set_idle(&self, is_idle: bool) {
        let _ = is_idle;
    }

    /// Appends the threads that run managed code now; called by the wall sampler without a lock.
    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        let _ = out;
    }

    /// Whether a thread carries a span or labels now; true where only a walk can tell. Called by the wall sampler.
    fn has_context(&self, thread: RuntimeThread) -> bool {
        let _ = thread;
        true
    }

    /// Calls `submit` with the context and the stack, leaf first, of each task of an event loop that is suspended, for the
    /// profile of threads. Must not wait for a lock of the language. Called by the wall sampler at the end of a window.
    fn suspended_tasks(&self, submit: &mut dyn FnMut(Context, &[RawFrame])) {
        let _ = submit;
    }
}

/// A runtime with a heap profile.
pub trait HeapRuntime {
    /// Installs the allocator hooks, which call [`spanprof_signal::heap::HEAP`]. They stay installed, and do nothing while it is
    /// stopped. Called before each start of the heap profile, on any thread.
    ///
    /// # Errors
    /// The reason why this process has no heap profile.
    fn install_hooks(&self) -> Result<(), String>;

    /// Called after [`spanprof_signal::heap::HEAP`] was started, stopped or got another interval, for a runtime whose own
    /// sampler selects the allocations. On any thread.
    fn sampling_changed(&self) {}

    /// Called after the drain thread changed the interval of [`spanprof_signal::heap::HEAP`] to one that is at least the configured
    /// one, for a runtime whose own sampler can follow. Else the runtime keeps as many of its samples as the longer interval selects.
    fn interval_changed(&self) {}

    /// Submits the samples of allocations that the runtime holds back, for a runtime whose own sampler is read at intervals.
    /// Called before the last drain of a window and before the heap profile stops, on any thread.
    fn submit_outstanding_samples(&self) {}

    /// Whether a function belongs to the language's containers and allocator. Stacks of the heap profile leave such functions
    /// out at their leaf, so that they begin at the code that needed the memory.
    fn is_of_allocator(&self, frame: &Frame) -> bool {
        let _ = frame;
        false
    }

    /// The frame that names the type of an allocated object, from the functions that [`Self::is_of_allocator`] left out of its stack,
    /// leaf first: the leaf of that stack.
    fn allocated_type(&self, functions: &[Frame]) -> Option<Frame> {
        let _ = functions;
        None
    }

    /// The frame that names the type of the object in the allocation of `bytes` at `address`, for the leaf of its stack in profiles of
    /// objects in use. `None` if it is no object, or its type is unknown. Called on the drain thread. The caller drops the result if
    /// the object was freed meanwhile: the memory may be changed or unmapped during the call.
    fn object_type(&self, address: usize, bytes: u64) -> Option<Frame> {
        let _ = (address, bytes);
        None
    }

    /// Removes collected objects from the live set, for a runtime whose objects are not freed one by one. Called before each
    /// in-use profile, on the drain thread.
    fn remove_collected_objects(&self) {}
}

/// A runtime that reports events by itself, as samples of their kinds: pauses for garbage collection, waits for locks.
pub trait EventRuntime {
    /// Whether this runtime submits samples of `kind`. For kinds that are neither captured by a clock nor by the wall sampler.
    fn submits(&self, kind: SampleKind) -> bool;

    /// Starts and stops reporting events. Called after start and update, and before the last window closes; on any thread.
    fn set_reported(&self, events: ReportedEvents) {
        let _ = events;
    }

    /// Whether a function belongs to the implementation of a lock. Stacks of waits leave such functions out at their leaf.
    fn is_of_lock(&self, frame: &Frame) -> bool {
        let _ = frame;
        false
    }
}

/// The events that a runtime reports by itself, as samples of their kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedEvents {
    /// Pauses for garbage collection.
    pub gc: bool,
    /// Waits for locks.
    pub lock: bool,
    /// What the futures of requests await.
    pub off_cpu: bool,
    /// Names of threads ([`crate::thread_names`]), which samples carry.
    pub thread_names: bool,
    /// The threshold of `binding::sample_event` of the profiler for waits, nanoseconds.
    pub lock_threshold_ns: u64,
    /// Whether the threshold rises while many waits are recorded.
    pub lock_rate_limit: bool,
}

/// The capture function of a runtime without CPU clocks.
pub fn capture_nothing(_context: &HandlerContext, _stack: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::Disabled)
}

/// The runtime of a disabled profiler: it does not access the language's runtime.
pub struct DisabledRuntime;

impl Runtime for DisabledRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn resolve(&self, _frame: RawFrame, _position: u64, _out: &mut Vec<Frame>) {}
}

impl WallRuntime for DisabledRuntime {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        None
    }
}
