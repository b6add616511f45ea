//! HotSpot behind the core's `Runtime` seam. The VM describes its own structures; the handler walks them; names are read on
//! the drain thread. Where the structures are not what we know, or a self-test fails, the VM walks stacks itself and
//! names its methods (`call_trace_signal`, `method_ids`): degraded, by name in `stats()`: `vm_stack_walk`. Declined: a VM that
//! is no HotSpot, and one that has neither. Called by the doors, the core's handler and its drain thread.

pub mod applications;
mod cache_signal;
mod call_trace_signal;
mod capture_signal;
mod class_calls;
mod code_heap_signal;
mod frame_word;
mod guest_thread;
pub mod inherited;
mod instance;
#[cfg(not(target_arch = "x86_64"))]
mod instructions_elsewhere_signal;
mod instructions_signal;
mod java_threads;
mod jvmti;
mod layout;
mod machine_code_signal;
mod memory_signal;
mod method_ids;
mod method_signal;
mod names;
mod nearby_signal;
mod outside_signal;
mod recall_signal;
mod registers_signal;
mod scopes_signal;
mod self_test;
mod structures;
mod stub_names;
mod switches;
mod thread_groups;
mod threads_signal;
pub mod virtual_threads;
mod walk_signal;
mod wall_signal;

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jni::sys::{JNIEnv, JavaVM};
use spanprof::runtime::{Ended, Frame, FrameType, Runtime, RuntimeThread};
use spanprof::{sys, Profiler};
use spanprof_signal::{CaptureFn, CaptureOtherFn, RawFrame};

use frame_word::Place;
use java_threads::ThreadPlaces;
use layout::Layout;
use names::Names;
use structures::{Library, Structures};

pub use guest_thread::environment;
pub use instance::share;
pub use java_threads::own_scope;
pub use jvmti::{Callbacks, Environment, Event, Jvmti};
pub use method_ids::session_begins;
pub use threads_signal::{exempt, SCOPE_BYTES};

static VM: AtomicPtr<JavaVM> = AtomicPtr::new(std::ptr::null_mut());
static VM_HAS_ENDED: AtomicBool = AtomicBool::new(false);
static MAY_SIGNAL: AtomicBool = AtomicBool::new(true);
static WARNING: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the VM that loaded us.
pub fn set_vm(vm: *mut JavaVM) {
    VM.store(vm, Ordering::Release);
}

/// The VM's last words: nothing of it is called from here on.
fn vm_ends() {
    call_trace_signal::withdraw();
    VM_HAS_ENDED.store(true, Ordering::Release);
}

fn vm_has_ended() -> bool {
    VM_HAS_ENDED.load(Ordering::Acquire)
}

/// Whether the configuration allows signals and handlers of them. To be called before `get`.
pub fn allow_signals(is_allowed: bool) {
    MAY_SIGNAL.store(is_allowed, Ordering::Relaxed);
}

fn may_signal() -> bool {
    MAY_SIGNAL.load(Ordering::Relaxed)
}

/// What the user should know of how this process is profiled; once.
pub fn take_warning() -> Option<String> {
    WARNING.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Our environment of the VM's tool interface: one for the life of the process; `None` where the VM has none.
fn tools() -> Option<Jvmti> {
    static TOOLS: OnceLock<Jvmti> = OnceLock::new();
    if let Some(tools) = TOOLS.get() {
        return Some(*tools);
    }
    let vm = VM.load(Ordering::Acquire);
    if vm.is_null() {
        return None;
    }
    // SAFETY: the VM that loaded us runs. Of two that come at once one environment is left unused.
    let made = unsafe { Jvmti::of(vm) }.ok()?;
    made.set_callbacks(&java_threads::callbacks(false)).ok()?;
    Some(*TOOLS.get_or_init(|| made))
}

/// A property that the VM was started with.
pub fn property(name: &CStr) -> Option<String> {
    tools()?.property(name)
}

/// How stacks shall be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackWalk {
    /// By ourselves; by the VM where the self-test fails.
    Auto,
    /// By the VM.
    ByVm,
}

/// See the head of the module.
pub struct JavaRuntime {
    /// None where the VM walks.
    layout: Option<&'static Layout>,
    java_version: u32,
    /// Asked by the drain alone.
    names: Mutex<Names>,
    threads_named_ns: AtomicU64,
}

/// Carries the clocks where SIGURG is not free. SIGPROF belongs to the VM's flight recorder and to other profilers. Nothing
/// uses this one, and it does not queue.
const FALLBACK_SIGNAL: libc::c_int = libc::SIGSTKFLT;
/// A name of a thread is believed for so long.
const THREAD_NAMES_LAST_NS: u64 = 1_000_000_000;

impl JavaRuntime {
    /// The runtime of this VM, or why it cannot be profiled. Made once: a later call gets the same one.
    ///
    /// # Safety
    /// `env` is the calling thread's.
    pub unsafe fn get(env: *mut JNIEnv, stack_walk: StackWalk) -> Result<Arc<Self>, String> {
        static RUNTIME: Mutex<Option<Arc<JavaRuntime>>> = Mutex::new(None);
        let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            return Ok(runtime.clone());
        }
        // SAFETY: the caller's promise.
        let made = Arc::new(unsafe { Self::make(env, stack_walk) }?);
        *runtime = Some(made.clone());
        Ok(made)
    }

    /// # Safety
    /// As for `get`.
    unsafe fn make(env: *mut JNIEnv, stack_walk: StackWalk) -> Result<Self, String> {
        let vm = VM.load(Ordering::Acquire);
        if vm.is_null() {
            return Err("the library was not loaded by a VM".to_owned());
        }
        // Without it every word of the table is a system call.
        if may_signal() {
            sys::install_fault_guard();
        }
        // SAFETY: the VM keeps its table for its whole life.
        let inside = unsafe { (**vm).v1_2.GetEnv } as usize;
        let library = Library::of(inside).ok_or("its library is not found")?;
        let structures = Structures::read(&library).ok_or("it is no HotSpot VM")?;
        let jvmti = tools().ok_or("it has no tool interface")?;
        let java_version = jvmti.java_version()?;
        switches::record_every_place(&structures);
        // The VM calls us, and handlers run our code, from here on.
        sys::pin_library();
        let places = ThreadPlaces::of(&structures)?;
        // SAFETY: the caller's promise.
        unsafe { java_threads::begin(jvmti, env, places) }?;
        let own_thread = threads_signal::of(sys::thread_id()).map_or(0, threads_signal::Row::java_thread);
        let mut names = Names::default();
        let layout = match stack_walk {
            StackWalk::ByVm => Err("it was asked for".to_owned()),
            StackWalk::Auto => tested_layout(&structures, java_version, own_thread, &mut names),
        };
        let layout = match layout {
            Ok(layout) => Some(layout),
            Err(why) => {
                // SAFETY: the caller's promise.
                unsafe { walk_by_vm(&library, &structures, jvmti, env, own_thread) }
                    .map_err(|lacks| format!("our own walk: {why}; the VM's: {lacks}"))?;
                if stack_walk == StackWalk::Auto {
                    *WARNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!(
                        "spanprof: stacks of this Java {java_version} cannot be walked by our own means ({why}); the VM walks \
                         them, which costs more and shows less"
                    ));
                }
                None
            }
        };
        Ok(Self { layout, java_version, names: Mutex::new(names), threads_named_ns: AtomicU64::new(0) })
    }

    fn stack_walk(&self) -> &'static str {
        if self.layout.is_some() {
            "own"
        } else {
            "vm"
        }
    }
}

/// The layout in force for handlers from here on, or why ours cannot be used.
fn tested_layout(
    structures: &Structures,
    java_version: u32,
    own_thread: usize,
    names: &mut Names,
) -> Result<&'static Layout, String> {
    if let Some(layout) = layout::published() {
        return Ok(layout);
    }
    let layout = Layout::of(structures, java_version).map_err(|what| format!("it does not tell of {what}"))?;
    self_test::judge(&layout, own_thread, names)?;
    Ok(layout::publish(layout))
}

/// Has the VM walk stacks from here on.
///
/// # Safety
/// `env` is the calling thread's.
unsafe fn walk_by_vm(
    library: &Library,
    structures: &Structures,
    jvmti: Jvmti,
    env: *mut JNIEnv,
    own_thread: usize,
) -> Result<(), String> {
    let function = library.symbol("AsyncGetCallTrace").ok_or("it has no AsyncGetCallTrace")?;
    if own_thread == 0 {
        return Err("it does not tell of the calling thread".to_owned());
    }
    let bound = |name: &str| {
        structures.address("CodeCache", name).and_then(|at| memory_signal::word(at).ok_or_else(|| name.to_owned()))
    };
    let anchor = structures.offset("JavaThread", "_anchor")? + structures.offset("JavaFrameAnchor", "_last_Java_sp")?;
    let places = call_trace_signal::Places {
        function,
        environment: (env as isize).wrapping_sub(own_thread as isize),
        code: (bound("_low_bound")?, bound("_high_bound")?),
        anchor_sp: anchor,
    };
    jvmti.set_callbacks(&java_threads::callbacks(true))?;
    jvmti.notify(Event::ClassLoad, true)?;
    jvmti.notify(Event::ClassPrepare, true)?;
    // SAFETY: the caller's promise.
    unsafe { method_ids::begin(jvmti, env) }?;
    call_trace_signal::publish(places);
    Ok(())
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

    fn fallback_signal(&self) -> libc::c_int {
        FALLBACK_SIGNAL
    }

    fn capture_other(&self) -> Option<CaptureOtherFn> {
        wall_signal::begin();
        // Without signals threads that wait are still seen, by our own walk.
        let is_possible = if may_signal() { wall_signal::install() } else { self.layout.is_some() };
        is_possible.then_some(wall_signal::capture_other as CaptureOtherFn)
    }

    fn others_walk_themselves(&self) -> bool {
        true
    }

    fn wait_for_answers(&self, patience: std::time::Duration) -> bool {
        wall_signal::wait_for_answers(patience)
    }

    fn frames_keep(&self) -> bool {
        // Those of our own walk have fingerprints; the VM gives ids of methods anew.
        self.layout.is_some()
    }

    fn looks_are_rare(&self, are_rare: bool) {
        wall_signal::looks_are_rare(are_rare);
    }

    fn threads(&self, out: &mut Vec<RuntimeThread>) {
        threads_signal::each_of_the_program(|thread_id| out.push(RuntimeThread { thread_id, handle: 0 }));
    }

    fn ended(&self, out: &mut Vec<Ended>) {
        // Threads take new names, and new threads take ids of ended ones: their names are read anew now and then.
        let now_ns = sys::monotonic_ns();
        if now_ns.saturating_sub(self.threads_named_ns.load(Ordering::Relaxed)) > THREAD_NAMES_LAST_NS {
            self.threads_named_ns.store(now_ns, Ordering::Relaxed);
            let position = Profiler::running().map_or(0, |profiler| profiler.ring_position());
            out.push(Ended { code: frame_word::THREAD, position });
        }
        if self.layout.is_none() {
            let given_again = method_ids::take_given_again();
            out.extend(given_again.into_iter().map(|position| Ended { code: frame_word::METHOD_ID, position }));
        }
    }

    fn resolve(&self, frame: RawFrame, position: u64, out: &mut Vec<Frame>) {
        let mark = |text: String| Frame { function: text.into(), ..Frame::default() };
        match frame_word::read(frame) {
            Place::Method { address, fingerprint, index } => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                out.extend(self.layout.and_then(|layout| names.frame(layout, address, fingerprint, index)));
            }
            Place::MethodId { id: 0, .. } => out.push(mark("[method_without_id]".to_owned())),
            Place::MethodId { id, index } => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                out.extend(names.frame_by_id(id, index, position));
            }
            Place::Stub(pc) => {
                // Where the VM walks, methods that it does not name end here too.
                let nameless = if self.layout.is_some() { "[stub]" } else { "[generated_code]" };
                out.push(names::stub(self.layout, pc).unwrap_or_else(|| mark(nameless.to_owned())));
            }
            Place::Thread(thread_id) => {
                let name = sys::thread_name(thread_id).unwrap_or_else(|| "native thread".to_owned());
                let function = thread_groups::of(&name).map_or_else(|| format!("[{name}]"), str::to_owned);
                out.push(Frame { frame_type: FrameType::Native, ..mark(function) });
            }
            Place::FramesInHeap => out.push(mark("[frames_in_heap]".to_owned())),
        }
    }

    fn stats(&self, out: &mut Vec<(&'static str, String)>) {
        let (threads, without_row) = threads_signal::counts();
        let (hits, misses) = walk_signal::counts();
        let broken = walk_signal::broken();
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner).len();
        out.push(("java.version", self.java_version.to_string()));
        out.push(("java.stack_walk", self.stack_walk().to_owned()));
        out.push(("java.degraded", if self.layout.is_some() { "" } else { "vm_stack_walk" }.to_owned()));
        out.push(("java.threads", threads.to_string()));
        out.push(("java.threads_without_row", without_row.to_string()));
        let (mounts, labelled, without_words) = virtual_threads::counts();
        out.push(("java.virtual_threads_labelled", labelled.to_string()));
        out.push(("java.virtual_threads_without_words", without_words.to_string()));
        out.push(("java.mounts_followed", mounts.to_string()));
        out.push(("java.threads_asked", wall_signal::asked_so_far().to_string()));
        out.push(("java.places_cached", hits.to_string()));
        out.push(("java.places_decoded", misses.to_string()));
        let refused = call_trace_signal::refused();
        out.push(("java.walks_broken", broken.iter().sum::<u64>().to_string()));
        out.push(("java.walks_refused", refused.iter().sum::<u64>().to_string()));
        let reasons = walk_signal::CAUSES.into_iter().zip(broken);
        let reasons = reasons.chain(call_trace_signal::REFUSALS.into_iter().zip(refused));
        out.extend(reasons.filter(|(_, count)| *count > 0).map(|(name, count)| (name, count.to_string())));
        out.push(("java.methods_named", names.to_string()));
    }
}
