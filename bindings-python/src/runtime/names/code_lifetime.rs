//! Tracks the end of code objects. The interpreter calls a hook when it frees one; the hook copies the names of a sampled code
//! object and queues the copy, a tombstone, for the drain. The freeing thread holds the GIL and never waits: no lock, no drain,
//! at most one copy.
//!
//! The hook is `PyCode_AddWatcher` from 3.12 on. Up to 3.11, and when all eight watchers are in use, it is a shim in
//! `PyCode_Type.tp_dealloc`, which frees every code object. Both stay installed until the process ends, because other code
//! may have chained to the shim. While nothing is sampled, the hook costs one load per freed code object.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.11 | no watchers; `tp_dealloc` of `PyCode_Type` (`Objects/codeobject.c`) is a writable slot | `swap_deallocator` |
//! | 3.12 | `PyCode_AddWatcher` (`Include/cpython/code.h`), `CODE_MAX_WATCHERS` 8 (`Include/internal/pycore_code.h`) | `add_watcher` |
//!
//! # Why no name is ever wrong
//! A raw frame holds the address X of its code object and the generation t of X's bucket, read during the walk. Let g be the
//! generation of the bucket when X ends. The hook queues the tombstone (X, g, names), and only then increments the generation
//! to g + 1 (rules of `sampled_code`). Claim: `resolve(X, t)` returns the names of the sampled code object, or nothing.
//! 1. *The code object is live.* It was sampled at t, so every queued tombstone of X is of an earlier lifetime with
//!    g' + 1 <= t. The resolver accepts only tombstones with g >= t: none. It reads live memory, then checks that the bucket's
//!    generation is unchanged. If it is, X had not ended before the check, and the memory belonged to X during the read. It is
//!    reused only after the hook returns, after a fence.
//! 2. *The code object has ended.* The handler ran while X was live (below), so t <= g, and its tombstone is the one with the
//!    smallest g >= t: later lifetimes of the address are sampled and end at g + 1 or above. If the tombstone is not yet
//!    queued, the generation is still g, and the read is of memory that the hook has not yet released, as in 1. If it is
//!    queued during the read, the generation changes and the resolver retries.
//! 3. *Frames of the handler's walk are live.* It runs on the thread whose frames hold references to their code objects. Only
//!    up to 3.11 is the last reference dropped while the frame is still linked. Such a code object has reference count 0 or a
//!    free-list pointer in its place, is not marked (its end cleared the mark), and is shown as `code_ended`.
//! 4. *Frames of the wall walk are live.* It holds no references, but compares the count of ended code objects before and
//!    after. The walk marks before it checks the count; the end counts before it checks the mark (all sequentially
//!    consistent). So either the end sees the mark and queues a tombstone, or the walk sees the end and is discarded.
//! 5. *A tombstone was lost* (queue full) or has expired. Its bucket stores the generation. A frame of that or an older
//!    generation in the bucket, without a tombstone, is `code_ended`. Nothing is guessed.
//! 6. *Code of another interpreter.* Watchers do not report it, and threads of other interpreters are not walked.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicU8, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

use super::code_info::CodeObjectInfo;
use crate::runtime::interpreter::layout::fixed;
use crate::runtime::interpreter::{self, Interpreter};
use crate::runtime::walk::sampled_code::SAMPLED_CODE;

/// The names of a sampled code object that has ended.
#[derive(Debug)]
pub struct Tombstone {
    /// Address of the code object.
    pub code: u64,
    /// Generation of its bucket when it ended: frames up to this generation may be of this code object.
    pub generation: u32,
    /// The names; `None` when they could not be read.
    pub info: Option<CodeObjectInfo>,
}

/// How the interpreter reports the end of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CodeEndHook {
    /// Not installed yet.
    Absent = 0,
    /// `PyCode_AddWatcher`.
    Watcher = 1,
    /// The shim in `tp_dealloc`.
    Deallocator = 2,
}

impl CodeEndHook {
    /// Its name in `stats()`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Watcher => "watcher",
            Self::Deallocator => "deallocator",
        }
    }
}

/// Memory limit of queued tombstones; reached only when the drain is stalled.
const MAX_QUEUED_BYTES: usize = 4 << 20;

static FIRST_QUEUE: SegQueue<Tombstone> = SegQueue::new();
/// Null means the first queue; a forked child allocates its own.
static QUEUE: AtomicPtr<SegQueue<Tombstone>> = AtomicPtr::new(std::ptr::null_mut());
static QUEUED_BYTES: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static COPIED: AtomicU64 = AtomicU64::new(0);
static HOOK: AtomicU8 = AtomicU8::new(CodeEndHook::Absent as u8);
static ORIGINAL_DEALLOCATOR: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type AddWatcher = unsafe extern "C" fn(unsafe extern "C" fn(c_int, *mut c_void) -> c_int) -> c_int;
type Deallocator = unsafe extern "C" fn(*mut c_void);

/// `PY_CODE_EVENT_DESTROY`.
const CODE_DESTROY_EVENT: c_int = 1;

/// Installs the hook, once per process. Requires the GIL; `interpreter::publish` must have run.
pub fn install(interpreter: &Interpreter) -> CodeEndHook {
    if installed_hook() != CodeEndHook::Absent {
        return installed_hook();
    }
    let installed = if add_watcher(interpreter) { CodeEndHook::Watcher } else { swap_deallocator(interpreter) };
    HOOK.store(installed as u8, Ordering::Release);
    installed
}

fn installed_hook() -> CodeEndHook {
    match HOOK.load(Ordering::Acquire) {
        1 => CodeEndHook::Watcher,
        2 => CodeEndHook::Deallocator,
        _ => CodeEndHook::Absent,
    }
}

fn add_watcher(interpreter: &Interpreter) -> bool {
    if !interpreter.layout.has_code_watchers {
        return false;
    }
    let Some(function) = interpreter::symbol(c"PyCode_AddWatcher") else { return false };
    // SAFETY: CPython 3.12 to 3.15 declare the function with exactly this C type; the GIL is held.
    unsafe {
        let add = std::mem::transmute::<*mut c_void, AddWatcher>(function);
        if add(on_code_event) >= 0 {
            return true;
        }
        pyo3::ffi::PyErr_Clear();
    }
    false
}

fn swap_deallocator(interpreter: &Interpreter) -> CodeEndHook {
    let slot = (interpreter.code_type + fixed::DEALLOCATOR) as *const AtomicPtr<c_void>;
    // SAFETY: the type of code objects is static, writable data of the interpreter, and its slot is an aligned pointer. The GIL
    // excludes every reader of the slot during the swap. The original is stored before the shim can run.
    unsafe {
        let original = (*slot).load(Ordering::Acquire);
        ORIGINAL_DEALLOCATOR.store(original, Ordering::Release);
        (*slot).store(deallocate as *mut c_void, Ordering::Release);
    }
    CodeEndHook::Deallocator
}

/// The watcher: called with the GIL, before any field of the code object is released.
unsafe extern "C" fn on_code_event(event: c_int, code: *mut c_void) -> c_int {
    if event == CODE_DESTROY_EVENT {
        on_code_end(code as u64);
    }
    0
}

/// The shim: called by the interpreter in place of the deallocator of code objects.
unsafe extern "C" fn deallocate(code: *mut c_void) {
    on_code_end(code as u64);
    let original = ORIGINAL_DEALLOCATOR.load(Ordering::Acquire);
    // SAFETY: the pointer was read from `tp_dealloc` of the type that this shim serves.
    unsafe { std::mem::transmute::<*mut c_void, Deallocator>(original)(code) }
}

#[inline]
fn on_code_end(code: u64) {
    if SAMPLED_CODE.begin_end(code) {
        queue_tombstone(code);
    }
}

#[cold]
fn queue_tombstone(code: u64) {
    let queued = spanprof_profiler::binding::ffi_guard(false, || {
        let generation = SAMPLED_CODE.generation(code);
        if QUEUED_BYTES.load(Ordering::Relaxed) > MAX_QUEUED_BYTES {
            return false;
        }
        let info =
            interpreter::current().and_then(|interpreter| CodeObjectInfo::read(&interpreter.layout, code as usize));
        let tombstone = Tombstone { code, generation, info };
        QUEUED_BYTES.fetch_add(tombstone.bytes(), Ordering::Relaxed);
        queue().push(tombstone);
        COPIED.fetch_add(1, Ordering::Relaxed);
        true
    });
    if !queued {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
    SAMPLED_CODE.end(code, !queued);
}

impl Tombstone {
    /// Approximate memory use.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.info.as_ref().map_or(0, CodeObjectInfo::bytes)
    }
}

/// The next tombstone, oldest first. Called by the drain.
pub fn next() -> Option<Tombstone> {
    let tombstone = queue().pop()?;
    QUEUED_BYTES.fetch_sub(tombstone.bytes(), Ordering::Relaxed);
    Some(tombstone)
}

fn queue() -> &'static SegQueue<Tombstone> {
    // SAFETY: null, or a box leaked by `forget_after_fork`.
    unsafe { QUEUE.load(Ordering::Acquire).as_ref() }.unwrap_or(&FIRST_QUEUE)
}

/// In a forked child: replaces the queue, because the parent's drain may have been removing an entry at the fork.
pub fn forget_after_fork() {
    QUEUE.store(Box::leak(Box::new(SegQueue::new())), Ordering::Release);
    QUEUED_BYTES.store(0, Ordering::Relaxed);
}

/// Number of tombstones queued since the process started.
pub fn copied() -> u64 {
    COPIED.load(Ordering::Relaxed)
}

/// Number of tombstones lost because the queue was full.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}
