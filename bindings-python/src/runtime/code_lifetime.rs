//! The ends of code objects: a notice from the interpreter for each, a copy of the names for those that were sampled, and
//! a queue to the drain. The thread that frees the code holds the GIL and never waits: no lock, no drain, at most one copy.
//!
//! The notice is `PyCode_AddWatcher` from 3.12 on; below it, and when all eight watchers are taken, a shim in
//! `PyCode_Type.tp_dealloc`, the one slot through which every code object ends. Both stay for the life of the process:
//! somebody may have chained to the shim, and a code-end costs one load when nothing was sampled.
//!
//! # Why no name is ever wrong
//! A raw frame carries its code's address X and the generation t of X's bucket, read in the walk. Call g the generation
//! of the bucket when X ends; the end queues the tombstone (X, g, names), and only then makes the generation g + 1
//! (rules of `sampled_code_signal`). Claim: `resolve(X, t)` gives the names of the code that was seen, or nothing.
//! 1. *The code has not ended.* It was seen at t, so every tombstone of X in the queue is of an earlier life, whose
//!    g' + 1 <= t. The resolver takes tombstones with g >= t only: none. It reads live memory, then checks that the
//!    bucket's generation did not change meanwhile. Unchanged means that X had not ended before the check: the memory
//!    was X's all the while (it is reused only after the notice returns, behind a fence).
//! 2. *The code has ended.* Its handler ran while X was alive (below), so t <= g, and its tombstone is the one with the
//!    smallest g >= t: later lives of the address are seen and end at g + 1 or above. If the tombstone is not yet in the
//!    queue, the generation is still g: the live read is of memory that the notice has not yet given up, as in 1; if it
//!    is queued during the read, the generation changes and the resolver starts over.
//! 3. *The handler's frames are alive.* It runs on the thread whose frames hold references to their codes. Only up to
//!    3.11 is a code's last reference dropped while its frame is still linked: such a code has reference count 0 or the
//!    link of a free list in its place, is not marked (its end cleared the mark), and is shown as `code_ended`.
//! 4. *The wall walk's frames are alive.* It holds no references; it counts the ends begun before and after. Let its mark
//!    come before the check, and the end's count before its look at the mark (all sequentially consistent): either the
//!    end sees the mark and queues a tombstone, or the walk sees the end and discards itself.
//! 5. *A tombstone is no longer to be had* (queue full, or kept its time). Its bucket remembers its generation; a frame of
//!    that or an older one in that bucket, without a tombstone, is `code_ended`. Nothing is guessed.
//! 6. *Another interpreter's code.* Watchers do not see it: threads of other interpreters are not walked.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicU8, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;

use super::interpreter::{self, Interpreter};
use super::layout::fixed;
use super::resolve::CodeInfo;
use super::sampled_code_signal::SAMPLED_CODE;

/// What is left of a code object that was sampled.
#[derive(Debug)]
pub struct Tombstone {
    /// Its address.
    pub code: u64,
    /// The generation of its bucket in its last moment: frames up to it may be of this code.
    pub generation: u32,
    /// Its names; `None` when they could not be read.
    pub info: Option<CodeInfo>,
}

/// How the interpreter tells us of the end of a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Notice {
    /// Not installed yet.
    Absent = 0,
    /// `PyCode_AddWatcher`.
    Watcher = 1,
    /// The shim in `tp_dealloc`.
    Deallocator = 2,
}

impl Notice {
    /// The word for it in `stats()`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Watcher => "watcher",
            Self::Deallocator => "deallocator",
        }
    }
}

/// Copies waiting for the drain take at most this much memory; it is reached only when the drain stands still.
const MAX_QUEUED_BYTES: usize = 4 << 20;

static FIRST_QUEUE: SegQueue<Tombstone> = SegQueue::new();
/// Null stands for the first queue; a forked child has one of its own.
static QUEUE: AtomicPtr<SegQueue<Tombstone>> = AtomicPtr::new(std::ptr::null_mut());
static QUEUED_BYTES: AtomicUsize = AtomicUsize::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);
static COPIED: AtomicU64 = AtomicU64::new(0);
static NOTICE: AtomicU8 = AtomicU8::new(Notice::Absent as u8);
static ORIGINAL_DEALLOCATOR: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type AddWatcher = unsafe extern "C" fn(unsafe extern "C" fn(c_int, *mut c_void) -> c_int) -> c_int;
type Deallocator = unsafe extern "C" fn(*mut c_void);

/// `PY_CODE_EVENT_DESTROY`.
const CODE_ENDS: c_int = 1;

/// Asks for the notices, once per process. Needs the GIL; `interpreter::publish` must have run.
pub fn install(interpreter: &Interpreter) -> Notice {
    if notice() != Notice::Absent {
        return notice();
    }
    let installed = if add_watcher(interpreter) { Notice::Watcher } else { swap_deallocator(interpreter) };
    NOTICE.store(installed as u8, Ordering::Release);
    installed
}

/// The notice in use.
pub fn notice() -> Notice {
    match NOTICE.load(Ordering::Acquire) {
        1 => Notice::Watcher,
        2 => Notice::Deallocator,
        _ => Notice::Absent,
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

fn swap_deallocator(interpreter: &Interpreter) -> Notice {
    let slot = (interpreter.code_type + fixed::DEALLOCATOR) as *const AtomicPtr<c_void>;
    // SAFETY: the type of code objects is static, writable data of the interpreter, its slot is an aligned pointer, and
    // the GIL keeps every reader of the slot out while it is swapped. The original is stored before the shim can run.
    unsafe {
        let original = (*slot).load(Ordering::Acquire);
        ORIGINAL_DEALLOCATOR.store(original, Ordering::Release);
        (*slot).store(deallocate as *mut c_void, Ordering::Release);
    }
    Notice::Deallocator
}

/// The watcher: called with the GIL, before anything of the code object is given up.
unsafe extern "C" fn on_code_event(event: c_int, code: *mut c_void) -> c_int {
    if event == CODE_ENDS {
        code_ends(code as u64);
    }
    0
}

/// The shim: called by the interpreter in place of the deallocator of code objects.
unsafe extern "C" fn deallocate(code: *mut c_void) {
    code_ends(code as u64);
    let original = ORIGINAL_DEALLOCATOR.load(Ordering::Acquire);
    // SAFETY: the pointer was taken out of `tp_dealloc` of the very type whose objects come here.
    unsafe { std::mem::transmute::<*mut c_void, Deallocator>(original)(code) }
}

#[inline]
fn code_ends(code: u64) {
    if SAMPLED_CODE.begin_end(code) {
        bury(code);
    }
}

#[cold]
fn bury(code: u64) {
    let queued = std::panic::catch_unwind(|| {
        let generation = SAMPLED_CODE.generation(code);
        if QUEUED_BYTES.load(Ordering::Relaxed) > MAX_QUEUED_BYTES {
            return false;
        }
        let info = interpreter::current().and_then(|interpreter| CodeInfo::read(&interpreter.layout, code as usize));
        let tombstone = Tombstone { code, generation, info };
        QUEUED_BYTES.fetch_add(tombstone.bytes(), Ordering::Relaxed);
        queue().push(tombstone);
        COPIED.fetch_add(1, Ordering::Relaxed);
        true
    })
    .unwrap_or(false);
    if !queued {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
    SAMPLED_CODE.end(code, !queued);
}

impl Tombstone {
    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.info.as_ref().map_or(0, CodeInfo::bytes)
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

/// In a forked child: the parent's drain may have been in the middle of taking something out, so its queue is left behind.
pub fn forget_after_fork() {
    QUEUE.store(Box::leak(Box::new(SegQueue::new())), Ordering::Release);
    QUEUED_BYTES.store(0, Ordering::Relaxed);
}

/// Tombstones made since the process began.
pub fn copied() -> u64 {
    COPIED.load(Ordering::Relaxed)
}

/// Tombstones that found no room.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}
