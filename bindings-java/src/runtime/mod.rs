//! HotSpot behind the core's `Runtime` seam. The VM describes its own structures; the handler walks them; names are read on
//! the drain thread. Called by the door, the core's handler and its drain thread.

mod cache_signal;
mod capture_signal;
mod code_heap_signal;
mod frame_word;
mod java_threads;
mod jvmti;
mod layout;
mod memory_signal;
mod method_signal;
mod names;
mod registers_signal;
mod scopes_signal;
mod structures;
mod stub_names;
mod switches;
mod threads_signal;
pub mod virtual_threads;
mod walk_signal;
mod wall_signal;

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jni::sys::{JNIEnv, JavaVM};
use spanprof::runtime::{Ended, Frame, FrameType, Runtime, RuntimeThread};
use spanprof::{sys, Profiler};
use spanprof_signal::{CaptureFn, CaptureOtherFn, Captured, DropReason, HandlerContext, RawFrame, RawStack};

use frame_word::Place;
use jvmti::Jvmti;
use layout::Layout;
use names::Names;
use structures::{Library, Structures};

pub use java_threads::own_scope;
pub use threads_signal::{exempt, SCOPE_BYTES};

static VM: AtomicPtr<JavaVM> = AtomicPtr::new(std::ptr::null_mut());

/// Keeps the VM that loaded us.
pub fn set_vm(vm: *mut JavaVM) {
    VM.store(vm, Ordering::Release);
}

/// See the head of the module.
pub struct JavaRuntime {
    layout: &'static Layout,
    java_version: u32,
    /// Asked by the drain alone.
    names: Mutex<Names>,
    threads_named_ns: AtomicU64,
}

/// A name of a thread is believed for so long.
const THREAD_NAMES_LAST_NS: u64 = 1_000_000_000;

impl JavaRuntime {
    /// The runtime of this VM, or what it does not tell.
    ///
    /// # Safety
    /// `env` is the calling thread's, which runs Java code.
    pub unsafe fn get(env: *mut JNIEnv) -> Result<Arc<Self>, String> {
        static RUNTIME: Mutex<Option<Arc<JavaRuntime>>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.clone());
        }
        // SAFETY: the caller's promise.
        let made = Arc::new(unsafe { Self::make(env) }?);
        *runtime = Some(made.clone());
        Ok(made)
    }

    /// # Safety
    /// As for `get`.
    unsafe fn make(env: *mut JNIEnv) -> Result<Self, String> {
        let vm = VM.load(Ordering::Acquire);
        if vm.is_null() {
            return Err("the library was not loaded by a VM".to_owned());
        }
        // Without it every word of the table would be a system call.
        sys::install_fault_guard();
        // SAFETY: the VM keeps its table for its whole life.
        let library = unsafe { (**vm).v1_2.GetEnv } as usize;
        let structures =
            Library::of(library).and_then(|library| Structures::read(&library)).ok_or("it is no HotSpot VM")?;
        // SAFETY: the VM that loaded us runs.
        let jvmti = unsafe { Jvmti::of(vm) }?;
        let java_version = jvmti.java_version()?;
        let layout = layout::published().map_or_else(
            || {
                Layout::of(&structures, java_version)
                    .map_err(|what| format!("it does not tell of {what}"))
                    .map(layout::publish)
            },
            Ok,
        )?;
        switches::record_every_place(&structures);
        // The VM calls us, and handlers run our code, from here on.
        sys::pin_library();
        virtual_threads::begin(jvmti);
        // SAFETY: the caller's promise.
        unsafe { java_threads::begin(jvmti, env, layout) }?;
        Ok(Self { layout, java_version, names: Mutex::new(Names::default()), threads_named_ns: AtomicU64::new(0) })
    }
}

impl Runtime for JavaRuntime {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        vec![
            ("process.runtime.name".to_owned(), "OpenJDK Runtime Environment".to_owned()),
            ("process.runtime.version".to_owned(), self.java_version.to_string()),
            ("telemetry.sdk.language".to_owned(), "java".to_owned()),
        ]
    }

    fn capture(&self) -> CaptureFn {
        capture_signal::capture
    }

    fn capture_other(&self) -> Option<CaptureOtherFn> {
        wall_signal::install().then_some(wall_signal::capture_other as CaptureOtherFn)
    }

    fn others_walk_themselves(&self) -> bool {
        true
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        out.extend(
            threads_signal::of_the_program().into_iter().map(|thread_id| RuntimeThread { thread_id, handle: 0 }),
        );
    }

    fn ended(&self, out: &mut Vec<Ended>) {
        // Threads take new names, and new threads take ids of ended ones: their names are read anew now and then.
        let now_ns = sys::monotonic_ns();
        if now_ns.saturating_sub(self.threads_named_ns.load(Ordering::Relaxed)) > THREAD_NAMES_LAST_NS {
            self.threads_named_ns.store(now_ns, Ordering::Relaxed);
            let position = Profiler::running().map_or(0, |profiler| profiler.ring_position());
            out.push(Ended { code: frame_word::THREAD, position });
        }
    }

    fn resolve(&self, frame: RawFrame, _position: u64, out: &mut Vec<Frame>) {
        let mark = |text: String| Frame { function: text.into(), ..Frame::default() };
        match frame_word::read(frame) {
            Place::Method { address, fingerprint, index } => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                out.extend(names.frame(self.layout, address, fingerprint, index));
            }
            Place::Stub(pc) => out.push(names::stub(self.layout, pc).unwrap_or_else(|| mark("[stub]".to_owned()))),
            Place::Thread(thread_id) => {
                let name = sys::thread_name(thread_id).unwrap_or_else(|| "native thread".to_owned());
                out.push(Frame { frame_type: FrameType::Native, ..mark(format!("[{name}]")) });
            }
            Place::FramesInHeap => out.push(mark("[frames_in_heap]".to_owned())),
        }
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let (threads, without_row) = threads_signal::counts();
        let (hits, misses, broken) = walk_signal::counts();
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).len();
        out.push(("java.version", self.java_version.to_string()));
        out.push(("java.threads", threads.to_string()));
        out.push(("java.threads_without_row", without_row.to_string()));
        let (mounts, labelled) = virtual_threads::counts();
        out.push(("java.virtual_threads_labelled", labelled.to_string()));
        out.push(("java.mounts_followed", mounts.to_string()));
        out.push(("java.threads_asked", wall_signal::asked_so_far().to_string()));
        out.push(("java.places_cached", hits.to_string()));
        out.push(("java.places_decoded", misses.to_string()));
        out.push(("java.walks_broken", broken.to_string()));
        out.push(("java.methods_named", names.to_string()));
    }
}

/// Stands in for the VM when nothing is to be profiled.
pub struct SwitchedOff;

/// Captures nothing; no clock runs when switched off.
unsafe fn capture_nothing(_context: &HandlerContext, _stack: &mut RawStack<'_>) -> Captured {
    Captured::Dropped(DropReason::Disabled)
}

impl Runtime for SwitchedOff {
    fn resource_attributes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn capture(&self) -> CaptureFn {
        capture_nothing
    }

    fn resolve(&self, _frame: RawFrame, _position: u64, _out: &mut Vec<Frame>) {}
}
