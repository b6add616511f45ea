//! Implements the core's `Runtime` trait for CPython: the frame walk in the handler, names and lines on the drain thread, and
//! the lifetime of code objects. The handler reads the context variable without calls into the interpreter.
//!
//! Supported: CPython 3.9 to 3.15 with the GIL, main interpreter. Rejected with an error: other versions, free-threaded
//! builds, subinterpreters, an interpreter that fails the self-check. Degraded modes, by name in `stats()`: `thread_contexts`
//! (the context table is not readable: labels by thread), `deallocator_notice` (all code watchers are in use),
//! `no_thread_list` (no wall profile), `no_object_types` (no types of objects in use).
//!
//! Raw frames: `code` is the address of a code object, `at` holds its generation and the instruction. `code_lifetime` proves
//! that a frame never gets another code object's name. Ring positions are not needed for it.
//!
//! Called by the binding's `start`, and by the engine through the trait. Not here: policy, defaults, exceptions.

mod capture;
mod context_variable;
mod detection;
mod error;
pub mod events;
mod greenlet;
mod interpreter;
mod names;
#[cfg(any(test, feature = "record-stacks"))]
pub mod record;
mod self_check;
#[cfg(feature = "testing")]
pub mod testing;
mod threads;
mod version;
mod walk;

use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use pyo3::prelude::*;
use spanprof_aggregate::runtime::{
    EndedCode, EventRuntime, Frame, FrameType, HeapRuntime, NativeRole, ReportedEvents, Runtime, RuntimeThread,
    WallRuntime,
};
use spanprof_profiler::binding::set_lock_waits_reported;
use spanprof_signal::{CaptureFn, CaptureOtherFn, Context, RawFrame, SampleKind};

use capture::other_thread;
use events::{hook_installation, suspended_tasks};
use interpreter::Interpreter;
use names::code_lifetime::{self, CodeEndHook};
use names::native_role;
use names::object_type::ObjectTypes;
use names::resolve::FrameResolver;
use walk::greenlet_switch;
use walk::sampled_code::SAMPLED_CODE;
use walk::thread_context::THREAD_CONTEXTS;

pub use context_variable::ContextSource;
pub use error::{RuntimeError, RuntimeErrorKind};
pub use greenlet::watch_switches as watch_greenlet_switches;
pub use version::InterpreterVersion;

/// The running CPython interpreter.
pub struct PythonRuntime {
    version: InterpreterVersion,
    interpreter: &'static Interpreter,
    code_end_hook: CodeEndHook,
    lists_threads: bool,
    object_types: Option<ObjectTypes>,
    /// The file with the interpreter's code.
    interpreter_file: PathBuf,
    /// 0: no variable registered; otherwise 1 + [`ContextSource`].
    context_source: AtomicU8,
    /// Leaked and replaced in a forked child, where the lock may be held by the parent's drain thread.
    resolver: AtomicPtr<Mutex<FrameResolver>>,
}

impl PythonRuntime {
    /// Identifies the interpreter, selects its layout and runs the self-check. One value per process: a second call returns
    /// the same one. Takes well under a millisecond.
    pub fn new(py: Python<'_>) -> Result<Arc<Self>, RuntimeError> {
        static RUNTIME: OnceLock<Arc<PythonRuntime>> = OnceLock::new();
        // Checked on every call: a subinterpreter may call while the main interpreter is profiled.
        detection::require_main(py)?;
        if let Some(runtime) = RUNTIME.get() {
            return Ok(Arc::clone(runtime));
        }
        // Guarded reads use `process_vm_readv` until the fault guard is installed, where a seccomp filter allows it.
        spanprof_os::may_use(spanprof_os::SystemCall::ProcessVmReadv);
        let version = InterpreterVersion::running(py)?;
        let interpreter: &'static Interpreter = Box::leak(Box::new(detection::detect_interpreter(py, &version)?));
        interpreter::publish(interpreter);
        self_check::run(py, &interpreter.layout).inspect_err(|_| interpreter::withdraw())?;
        let runtime = Arc::new(Self {
            version,
            interpreter,
            code_end_hook: code_lifetime::install(interpreter),
            object_types: ObjectTypes::find(py, &interpreter.layout),
            interpreter_file: spanprof_os::native_object(interpreter.current_thread as *const () as u64, 0)
                .map(|object| object.file)
                .unwrap_or_default(),
            lists_threads: interpreter.first_thread.is_some() && threads::calibrate(interpreter),
            context_source: AtomicU8::new(0),
            resolver: AtomicPtr::new(new_resolver()),
        });
        Ok(Arc::clone(RUNTIME.get_or_init(|| runtime)))
    }

    pub fn version(&self) -> &InterpreterVersion {
        &self.version
    }

    /// Registers the `ContextVar` with the context id, and tests that the handler can read it. Its values are integers, or of the
    /// immortal type at `value_type`. The variable becomes immortal.
    pub fn set_context_variable(&self, variable: &Bound<'_, PyAny>, value_type: usize) -> ContextSource {
        self.interpreter.context.value_type.store(value_type, Ordering::Relaxed);
        let source = context_variable::register(self.interpreter, variable);
        self.context_source.store(1 + source as u8, Ordering::Relaxed);
        source
    }

    /// With [`ContextSource::ThreadTable`]: sets the context id of the calling thread and returns the previous one; 0 means
    /// none.
    pub fn set_thread_context(&self, _py: Python<'_>, id: u64) -> u64 {
        // SAFETY: reads a pthread key of this thread.
        let thread = unsafe { (self.interpreter.current_thread)() };
        THREAD_CONTEXTS.set(thread as u64, id)
    }

    /// Names of the degraded modes on this interpreter.
    pub fn degraded(&self) -> Vec<&'static str> {
        let mut modes = Vec::new();
        if self.context_source.load(Ordering::Relaxed) == 1 + ContextSource::ThreadTable as u8 {
            modes.push("thread_contexts");
        }
        if self.interpreter.layout.has_code_watchers && self.code_end_hook == CodeEndHook::Deallocator {
            modes.push("deallocator_notice");
        }
        if !self.lists_threads {
            modes.push("no_thread_list");
        }
        if self.object_types.is_none() {
            modes.push("no_object_types");
        }
        modes
    }

    fn resolver(&self) -> MutexGuard<'_, FrameResolver> {
        // SAFETY: always a box leaked by `new_resolver`.
        let resolver: &Mutex<FrameResolver> = unsafe { &*self.resolver.load(Ordering::Acquire) };
        resolver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_resolver() -> *mut Mutex<FrameResolver> {
    Box::leak(Box::new(Mutex::new(FrameResolver::default())))
}

impl Runtime for PythonRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![
            ("process.runtime.name".into(), "cpython".into()),
            ("process.runtime.version".into(), self.version.text.clone()),
            ("telemetry.sdk.language".into(), "python".into()),
        ]
    }

    fn code_address(&self) -> u64 {
        interpreter::current().map_or(0, |interpreter| interpreter.current_thread as *const () as u64)
    }

    fn native_role(&self, frame: &Frame) -> NativeRole {
        if spanprof_unwind::shows_runtime() {
            return NativeRole::Shown;
        }
        native_role::native_role(frame, &self.interpreter_file)
    }

    fn capture(&self) -> CaptureFn {
        capture::capture
    }

    fn settings_changed(&self) {
        crate::host_log::follow_changed_settings();
    }

    fn delayed_termination(&self) -> Option<libc::sighandler_t> {
        Some(libc::SIG_DFL)
    }

    fn register_thread(&self) {
        // SAFETY: reads a pthread key of this thread, which also resolves the symbol before the handler needs it.
        let thread = unsafe { (self.interpreter.current_thread)() };
        // A thread state at the address of a freed one must not inherit its context.
        THREAD_CONTEXTS.set(thread as u64, 0);
    }

    /// Code objects whose tombstones expired, so that the engine drops what it cached for them. Raw frames of later code at the
    /// address differ by their generation, so the position is not needed and is 0.
    fn ended(&self, out: &mut Vec<EndedCode>) {
        let expired = self.resolver().pass(Instant::now());
        out.extend(expired.into_iter().map(|code| EndedCode { code, position: 0 }));
    }

    fn resolve(&self, frame: RawFrame, _position: u64, out: &mut Vec<Frame>) {
        out.extend(self.resolver().frame(&self.interpreter.layout, frame));
    }

    fn after_fork_in_child(&self) {
        code_lifetime::forget_after_fork();
        suspended_tasks::forget_after_fork();
        self.resolver.store(new_resolver(), Ordering::Release);
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let resolver = self.resolver();
        let context = match self.context_source.load(Ordering::Relaxed) {
            0 => "none",
            1 => "context_variable",
            _ => "thread_table",
        };
        out.push(("python.version", self.version.text.clone()));
        out.push(("python.context_source", context.into()));
        out.push(("python.contexts_switching", greenlet_switch::samples().to_string()));
        out.push(("python.contexts_unreadable", self.interpreter.context.unreadable().to_string()));
        out.push(("python.thread_contexts_refused", THREAD_CONTEXTS.refused().to_string()));
        out.push(("python.code_notice", self.code_end_hook.name().into()));
        out.push(("python.codes_ended", SAMPLED_CODE.ends_begun().to_string()));
        out.push(("python.tombstones", code_lifetime::copied().to_string()));
        out.push(("python.tombstones_lost", code_lifetime::lost().to_string()));
        out.push(("python.tombstones_kept", resolver.tombstones().to_string()));
        out.push(("python.frames_unresolved", resolver.unresolved().to_string()));
        out.push(("python.heap_domains", hook_installation::hooked_domains()));
        out.push(("python.heap_unseen", hook_installation::unseen_memory().into()));
        out.push(("python.degraded", self.degraded().join(",")));
    }

    spanprof_aggregate::every_part_of_runtime!();
}

impl WallRuntime for PythonRuntime {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        if self.lists_threads {
            Some(other_thread::capture_other)
        } else {
            None
        }
    }

    /// Frames hold the generation of their code object, and its names outlive it.
    fn stabilize_frames(&self, _position: u64, _frames: &mut [RawFrame]) -> bool {
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        if self.lists_threads {
            threads::list(self.interpreter, out);
            let own_thread = suspended_tasks::storing_thread();
            out.retain(|thread| thread.thread_id != own_thread);
        }
    }

    fn has_context(&self, thread: RuntimeThread) -> bool {
        other_thread::has_context(thread.handle)
    }

    fn suspended_tasks(&self, submit: &mut dyn FnMut(Context, &[RawFrame])) {
        suspended_tasks::submit(submit);
    }
}

impl HeapRuntime for PythonRuntime {
    fn install_hooks(&self) -> Result<(), String> {
        // The drain thread calls it too, and may outlive the interpreter.
        Python::try_attach(hook_installation::install).unwrap_or_else(|| Err("the interpreter ends".to_owned()))
    }

    /// The interpreter allocates for the line, or for the extension, that called it. The hook of one domain may call another one's.
    fn is_of_allocator(&self, frame: &Frame) -> bool {
        self.is_of_interpreter(frame)
    }

    fn object_type(&self, address: usize, bytes: u64) -> Option<Frame> {
        Some(Frame::of_type(self.object_types.as_ref()?.name(address, bytes)?, FrameType::Cpython))
    }
}

impl EventRuntime for PythonRuntime {
    fn submits(&self, kind: SampleKind) -> bool {
        matches!(kind, SampleKind::Gc | SampleKind::Lock)
    }

    fn set_reported(&self, events: ReportedEvents) {
        set_lock_waits_reported(events);
    }

    /// The interpreter calls the lock for the line that waits.
    fn is_of_lock(&self, frame: &Frame) -> bool {
        self.is_of_interpreter(frame)
    }
}

impl PythonRuntime {
    /// Whether a frame is native code of the interpreter, or the profiler's.
    fn is_of_interpreter(&self, frame: &Frame) -> bool {
        let is_hook = &*frame.function == spanprof_aggregate::OWN_CODE;
        frame.frame_type == FrameType::Native && (is_hook || self.native_role(frame) != NativeRole::Shown)
    }
}
