//! HotSpot's implementation of the core's `Runtime` trait. VMStructs describe the VM's data structures, the handler walks
//! stacks with them, and the drain thread resolves names. If VMStructs are incomplete or the self-test fails,
//! `AsyncGetCallTrace` walks stacks and JVMTI names methods (`call_trace`, `method_ids`); `stats()` then reports
//! `vm_stack_walk`. Profiling is declined if the VM is not HotSpot or supports neither way. Called by the entry points, the
//! core's handler and its drain thread.

pub mod applications;
mod callbacks;
mod capture;
mod events;
mod instance;
mod jvmti;
pub mod loaded_class;
mod names;
#[cfg(any(test, feature = "record-stacks"))]
mod record;
mod self_test;
pub mod static_field;
mod threads;
mod vm;
mod walk;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jni::sys::{JNIEnv, JavaVM};
use spanprof_aggregate::runtime::{
    EndedCode, EventRuntime, Frame, FrameType, HeapRuntime, ReportedEvents, Runtime, RuntimeThread, WallRuntime,
};
use spanprof_profiler::binding::{lock_waits_are_reported, log, self_walks_requested, SelfWalks};
use spanprof_profiler::{LogLevel, ProfilerHandle};
use spanprof_signal::{CaptureFn, CaptureOtherFn, ProcessMemory, RawFrame, SampleKind};

use capture::{call_trace, thread_rows};
use events::java_locks::JavaLocks;
use events::{allocation_buffers, allocations, gc_pauses, lock_waits, monitors, parks};
use jvmti::this_vm;
use names::{class_names, method_ids, methods, thread_groups};
#[cfg(feature = "record-stacks")]
use record::writer;
use threads::java_threads::{self, OsThreadOffsets};
use threads::{registry, signals, wall};
use vm::flags;
use vm::layout::{self, VmLayout};
use vm::layout_reader::{code_bounds, read_layout};
use vm::raw_frame::{self, FrameKind};
use vm::structs::{VmLibrary, VmStructs};
use walk::environment::{set_vm_function, WalkEnvironment};
use walk::walker;

pub use callbacks::own_scope;
pub use capture::thread_rows::SCOPE_BYTES;
pub use events::virtual_threads;
pub use instance::{share, NativeMethod};
pub use jvmti::this_vm::property;
pub use jvmti::{Callbacks, Environment, Jvmti, JvmtiEvent};
pub use names::method_ids::session_begins;
pub use threads::attached_thread::environment;
pub use threads::inherited;
pub use threads::registry::exclude;
pub use threads::signals::allow_signals;

static WARNING: Mutex<Option<String>> = Mutex::new(None);

/// Stores the VM that loaded the library.
pub fn set_vm(vm: *mut JavaVM) {
    this_vm::set(vm, || callbacks::callbacks(false));
}

/// Takes the warning about degraded profiling; it is returned once.
pub fn take_warning() -> Option<String> {
    WARNING.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The stack walker to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackWalk {
    /// The own stack walker; `AsyncGetCallTrace` if the self-test fails.
    Auto,
    /// `AsyncGetCallTrace`.
    ByVm,
}

/// The Java VM of this process.
pub struct JavaRuntime {
    /// `None` if `AsyncGetCallTrace` walks the stacks.
    layout: Option<&'static VmLayout>,
    java_version: u32,
    thread_names_read_ns: AtomicU64,
}

/// Cached thread names are valid for this long.
const THREAD_NAMES_VALID_NS: u64 = 1_000_000_000;

impl JavaRuntime {
    /// The runtime of this VM, or the reason why it cannot be profiled. Created once; later calls return the same instance.
    ///
    /// # Safety
    /// `env` is the calling thread's JNI environment.
    pub unsafe fn get(env: *mut JNIEnv, stack_walk: StackWalk) -> Result<Arc<Self>, String> {
        static RUNTIME: Mutex<Option<Arc<JavaRuntime>>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.clone());
        }
        // SAFETY: guaranteed by the caller.
        let created = Arc::new(unsafe { Self::make(env, stack_walk) }?);
        *runtime = Some(created.clone());
        Ok(created)
    }

    /// # Safety
    /// `env` is the calling thread's JNI environment.
    unsafe fn make(env: *mut JNIEnv, stack_walk: StackWalk) -> Result<Self, String> {
        let vm = this_vm::pointer();
        if vm.is_null() {
            return Err("the library was not loaded by a VM".to_owned());
        }
        // Without the fault guard each guarded read is a system call.
        if signals::may_signal() {
            spanprof_os::install_fault_guard();
        }
        // SAFETY: the VM's function table lives as long as the VM.
        let address_in_vm = unsafe { (**vm).v1_2.GetEnv } as usize;
        let library = VmLibrary::of(address_in_vm).ok_or("the VM's library was not found")?;
        let structures = VmStructs::read(&library).ok_or("it is not a HotSpot VM")?;
        set_vm_function(address_in_vm);
        let jvmti = this_vm::jvmti().ok_or("it has no JVMTI")?;
        let java_version = jvmti.java_version()?;
        flags::enable_debug_non_safepoints(&structures);
        gc_pauses::find_perf_data(&structures);
        allocation_buffers::find_offsets(&structures, java_version);
        parks::find_method_size(&structures);
        // From here on the VM calls into the library, and handlers run its code.
        spanprof_os::pin_library();
        let offsets = OsThreadOffsets::of(&structures)?;
        // SAFETY: guaranteed by the caller.
        unsafe { callbacks::begin(jvmti, env, offsets) }?;
        let calling_thread = thread_rows::of(spanprof_os::thread_id()).map_or(0, thread_rows::ThreadRow::java_thread);
        let layout = match stack_walk {
            StackWalk::ByVm => Err("`stackWalk=vm` is set".to_owned()),
            StackWalk::Auto => tested_layout(&structures, java_version, calling_thread),
        };
        let layout = match layout {
            Ok(layout) => {
                #[cfg(feature = "record-stacks")]
                writer::begin(layout, &structures)?;
                Some(layout)
            }
            Err(why) => {
                // SAFETY: guaranteed by the caller.
                unsafe { walk_by_vm(&library, &structures, jvmti, env, calling_thread) }
                    .map_err(|reason| format!("own stack walker: {why}; AsyncGetCallTrace: {reason}"))?;
                if stack_walk == StackWalk::Auto {
                    *WARNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!(
                        "spanprof: the own stack walker does not support this Java {java_version} ({why}); AsyncGetCallTrace \
                         walks the stacks, which costs more and shows fewer frames"
                    ));
                }
                None
            }
        };
        Ok(Self { layout, java_version, thread_names_read_ns: AtomicU64::new(0) })
    }

    /// Why this version of Java has no heap profile; `None` if it can have one.
    pub fn no_heap_reason(&self) -> Option<String> {
        let (version, first) = (self.java_version, allocations::SINCE);
        (version < first).then(|| format!("Java {version} does not report allocations; Java {first} and later do"))
    }

    fn stack_walk(&self) -> &'static str {
        if self.layout.is_some() {
            "own"
        } else {
            "vm"
        }
    }
}

/// The layout that handlers use from here on, or the reason why the own stack walker cannot be used.
fn tested_layout(
    structures: &VmStructs,
    java_version: u32,
    calling_thread: usize,
) -> Result<&'static VmLayout, String> {
    if let Some(layout) = layout::published() {
        return Ok(layout);
    }
    let layout = read_layout(structures, java_version).map_err(|missing| format!("VMStructs lack {missing}"))?;
    self_test::run(&layout, calling_thread, &mut methods::names())?;
    let layout: &'static VmLayout = Box::leak(Box::new(layout));
    layout::publish(layout);
    Ok(layout)
}

/// Makes `AsyncGetCallTrace` walk stacks from here on.
///
/// # Safety
/// `env` is the calling thread's JNI environment.
unsafe fn walk_by_vm(
    library: &VmLibrary,
    structures: &VmStructs,
    jvmti: Jvmti,
    env: *mut JNIEnv,
    calling_thread: usize,
) -> Result<(), String> {
    let function = library.symbol("AsyncGetCallTrace").ok_or("it has no AsyncGetCallTrace")?;
    if calling_thread == 0 {
        return Err("the calling thread's JavaThread is unknown".to_owned());
    }
    let anchor = structures.offset("JavaThread", "_anchor")? + structures.offset("JavaFrameAnchor", "_last_Java_sp")?;
    let addresses = call_trace::CallTraceAddresses {
        function,
        environment: (env as isize).wrapping_sub(calling_thread as isize),
        code: code_bounds(structures)?,
        anchor_sp: anchor,
    };
    jvmti.set_callbacks(&callbacks::callbacks(true))?;
    jvmti.notify(JvmtiEvent::ClassLoad, true)?;
    jvmti.notify(JvmtiEvent::ClassPrepare, true)?;
    // SAFETY: guaranteed by the caller.
    unsafe { method_ids::begin(jvmti, env) }?;
    call_trace::publish(addresses);
    Ok(())
}

/// JVMTI for functions that require a thread of the VM: the calling thread is attached. The profiler's own threads apply changes of
/// the watched file and of requests. `None` after `VMDeath`.
fn jvmti_of_any_thread() -> Option<Jvmti> {
    let jvmti = this_vm::jvmti().filter(|_| !this_vm::has_ended())?;
    environment().map(|_| jvmti)
}

/// Starts and stops reporting waits for locks.
fn report_waits(jvmti: Jvmti, events: ReportedEvents) -> Result<(), String> {
    let is_changed = lock_waits_are_reported() != events.lock;
    if is_changed && events.lock {
        if let Err(error) = parks::install() {
            if JavaLocks::found().is_none() {
                return Err(error);
            }
            log(LogLevel::Warning, &format!("spanprof: waits in LockSupport.park are not reported: {error}"));
        }
    }
    lock_waits::set_reported(events);
    if !is_changed {
        return Ok(());
    }
    if events.lock {
        virtual_threads::enable_for_waits();
    } else {
        virtual_threads::disable_unused_events();
    }
    monitors::set_reported(jvmti, events.lock)
}

impl Runtime for JavaRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![
            ("process.runtime.name".to_owned(), "OpenJDK Runtime Environment".to_owned()),
            ("process.runtime.version".to_owned(), self.java_version.to_string()),
            ("telemetry.sdk.language".to_owned(), "java".to_owned()),
        ]
    }

    fn code_address(&self) -> u64 {
        ProcessMemory.vm_function() as u64
    }

    fn capture(&self) -> CaptureFn {
        capture::capture
    }

    fn fallback_signal(&self) -> libc::c_int {
        signals::FALLBACK_SIGNAL
    }

    fn ended(&self, out: &mut Vec<EndedCode>) {
        // Threads are renamed, and kernel thread ids are reused: names are read again periodically.
        let now_ns = spanprof_os::monotonic_ns();
        if now_ns.saturating_sub(self.thread_names_read_ns.load(Ordering::Relaxed)) > THREAD_NAMES_VALID_NS {
            self.thread_names_read_ns.store(now_ns, Ordering::Relaxed);
            let position = ProfilerHandle::running().map_or(0, |profiler| profiler.ring_position());
            out.push(EndedCode { code: raw_frame::THREAD, position });
        }
        if self.layout.is_none() {
            let reused = method_ids::take_reused();
            out.extend(reused.into_iter().map(|position| EndedCode { code: raw_frame::METHOD_ID, position }));
        }
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        let marker_frame = |text: String| Frame { function: text.into(), ..Frame::default() };
        match raw_frame::decode(frame) {
            FrameKind::Method { address, fingerprint, index } => {
                let mut names = methods::names();
                let frames = self.layout.map(|layout| names.frames(layout, address, fingerprint, index));
                out.extend(frames.unwrap_or_default());
            }
            FrameKind::MethodId { id: 0, .. } => out.push(marker_frame("[method_without_id]".to_owned())),
            FrameKind::MethodId { id, index } => {
                let mut names = methods::names();
                out.extend(names.frames_by_id(id, index, position));
            }
            FrameKind::Stub(pc) => {
                // With `AsyncGetCallTrace`, unnamed methods are reported as stubs too.
                let unnamed = if self.layout.is_some() { "[stub]" } else { "[generated_code]" };
                out.push(methods::stub(self.layout, pc).unwrap_or_else(|| marker_frame(unnamed.to_owned())));
            }
            FrameKind::Thread(thread_id) => {
                let name = spanprof_os::thread_name(thread_id).unwrap_or_else(|| "native thread".to_owned());
                let function = thread_groups::of(&name).map_or_else(|| format!("[{name}]"), str::to_owned);
                out.push(Frame { frame_type: FrameType::Native, ..marker_frame(function) });
            }
            FrameKind::Class(number) => out.push(Frame::of_type(class_names::name(number), FrameType::Jvm)),
            FrameKind::Collection(number) => {
                let name = gc_pauses::name(number);
                out.push(Frame { frame_type: FrameType::Jvm, ..marker_frame(format!("[{name}]")) });
            }
            FrameKind::FramesInHeap => out.push(marker_frame("[frames_in_heap]".to_owned())),
        }
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let (threads, without_row) = registry::counts();
        let (hits, misses) = walker::counts();
        let broken = walker::broken();
        let names = methods::names().len();
        out.push(("java.version", self.java_version.to_string()));
        out.push(("java.stack_walk", self.stack_walk().to_owned()));
        out.push(("java.degraded", if self.layout.is_some() { "" } else { "vm_stack_walk" }.to_owned()));
        out.push(("java.threads", threads.to_string()));
        out.push(("java.threads_without_row", without_row.to_string()));
        let (mounts, labelled, without_words) = virtual_threads::counts();
        out.push(("java.virtual_threads_labelled", labelled.to_string()));
        out.push(("java.virtual_threads_without_words", without_words.to_string()));
        out.push(("java.mounts_followed", mounts.to_string()));
        out.push(("java.threads_asked", self_walks_requested().to_string()));
        out.push(("java.places_cached", hits.to_string()));
        out.push(("java.places_decoded", misses.to_string()));
        let refused = call_trace::refused();
        out.push(("java.walks_broken", broken.iter().sum::<u64>().to_string()));
        out.push(("java.walks_refused", refused.iter().sum::<u64>().to_string()));
        let reasons = walker::CAUSES.into_iter().zip(broken);
        let reasons = reasons.chain(call_trace::REFUSALS.into_iter().zip(refused));
        out.extend(reasons.filter(|(_, count)| *count > 0).map(|(name, count)| (name, count.to_string())));
        out.push(("java.methods_named", names.to_string()));
        allocations::stats(out);
        gc_pauses::stats(out);
        lock_waits::stats(out);
    }

    spanprof_aggregate::every_part_of_runtime!();
}

impl WallRuntime for JavaRuntime {
    fn capture_other(&self) -> Option<CaptureOtherFn> {
        // Without signals the own stack walker still samples waiting threads.
        let is_possible = wall::begin(signals::may_signal()) || !signals::may_signal() && self.layout.is_some();
        is_possible.then_some(wall::capture_other as CaptureOtherFn)
    }

    fn uses_self_walks(&self) -> bool {
        true
    }

    fn wait_for_responses(&self, timeout: std::time::Duration) -> bool {
        SelfWalks::of_process().wait(timeout);
        true
    }

    fn are_frames_stable(&self) -> bool {
        // Frames of the own walker have fingerprints; the VM reuses method ids.
        self.layout.is_some()
    }

    fn set_idle(&self, is_idle: bool) {
        wall::set_idle(is_idle);
    }

    fn has_context(&self, thread: RuntimeThread) -> bool {
        thread_rows::of(thread.thread_id).is_some_and(|row| !row.scope.context().is_empty())
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        registry::each_program_thread(|thread_id| out.push(RuntimeThread { thread_id, handle: 0 }));
    }
}

impl HeapRuntime for JavaRuntime {
    fn install_hooks(&self) -> Result<(), String> {
        jvmti_of_any_thread().ok_or("the VM has ended")?;
        self.no_heap_reason().map_or_else(allocations::enable, Err)
    }

    fn sampling_changed(&self) {
        if jvmti_of_any_thread().is_some() {
            allocations::follow_sampling();
        }
    }

    fn interval_changed(&self) {
        if jvmti_of_any_thread().is_some() {
            allocations::follow_interval();
        }
    }

    fn remove_collected_objects(&self) {
        allocations::remove_collected();
    }
}

impl EventRuntime for JavaRuntime {
    fn submits(&self, kind: SampleKind) -> bool {
        matches!(kind, SampleKind::Gc | SampleKind::Lock)
    }

    fn set_reported(&self, events: ReportedEvents) {
        let Some(jvmti) = jvmti_of_any_thread() else { return };
        if let Err(error) = gc_pauses::set_reported(jvmti, events.gc) {
            log(LogLevel::Warning, &format!("spanprof: pauses for garbage collection are not reported: {error}"));
        }
        if let Err(error) = java_threads::set_names_reported(jvmti, events.thread_names) {
            log(LogLevel::Warning, &format!("spanprof: names of threads are incomplete: {error}"));
        }
        if let Err(error) = report_waits(jvmti, events) {
            log(LogLevel::Warning, &format!("spanprof: waits for locks are not reported: {error}"));
        }
    }
}
