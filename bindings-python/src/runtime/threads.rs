//! The threads of the interpreter, seen from outside: the list of thread states walked with guarded reads and no GIL, and
//! the kernel's id of each. Called by the wall sampler. Not here: walking their frames (`capture_other`).
//!
//! Up to 3.10 a thread state names its `pthread_t` only. That is the address of the C library's record of the thread,
//! which holds the kernel's id at an offset that [`calibrate`] finds on two threads of ours and that must agree.

use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof::runtime::RuntimeThread;
use spanprof_signal::guarded;

use super::frame_signal;
use super::interpreter::Interpreter;
use super::layout::{fixed, Layout, ThreadId};

/// Bounds a list that leads back into itself while it changes.
const MAX_THREADS: usize = 65_536;
/// The C library's record of a thread keeps its id within this many bytes.
const RECORD_BYTES: usize = 2048;

/// Offset of the kernel's thread id in the C library's record; 0 while unknown.
static RECORD_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Finds where the C library keeps the kernel's thread id, if the layout needs it. False: no wall profile on this
/// interpreter.
pub fn calibrate(layout: &Layout) -> bool {
    let ThreadId::Pthread(_) = layout.thread.id else { return true };
    let here = offsets_of_own_id();
    let Ok(there) = std::thread::spawn(offsets_of_own_id).join() else { return false };
    match here.iter().find(|offset| there.contains(offset)) {
        Some(&offset) => {
            RECORD_OFFSET.store(offset, Ordering::Release);
            true
        }
        None => false,
    }
}

/// Places in this thread's record that hold its kernel id.
fn offsets_of_own_id() -> Vec<usize> {
    // SAFETY: both only name the calling thread.
    let (record, id) = unsafe { (libc::pthread_self() as usize, libc::syscall(libc::SYS_gettid) as u32) };
    (4..RECORD_BYTES)
        .step_by(4)
        .filter(|&offset| guarded::read_u64(record + offset).map(|word| word as u32) == Some(id))
        .collect()
}

/// The kernel's id of the thread whose state is at `thread`; `None` when it is not (or no longer) known.
pub fn kernel_thread_id(layout: &Layout, thread: usize) -> Option<u32> {
    let word = frame_signal::thread_id_word(&layout.thread, thread)?;
    let id = match layout.thread.id {
        ThreadId::Kernel(_) => word,
        ThreadId::Pthread(_) => {
            let offset = RECORD_OFFSET.load(Ordering::Acquire);
            if offset == 0 {
                return None;
            }
            guarded::read_u64((word as usize).checked_add(offset)?)? & 0xffff_ffff
        }
    };
    u32::try_from(id).ok().filter(|&id| id != 0 && id <= i32::MAX as u32)
}

/// Whether a leaf begins a stack to walk. From 3.15 on a thread outside Python still has a frame: the base of all others.
fn is_of_python(interpreter: &Interpreter, leaf: usize) -> bool {
    leaf != 0 && !frame_signal::read(interpreter, leaf).is_some_and(|link| link.is_entry && link.previous == 0)
}

/// Appends the threads that have Python frames now.
pub fn list(interpreter: &Interpreter, out: &mut Vec<RuntimeThread>) {
    let Some(first_thread) = interpreter.first_thread else { return };
    // SAFETY: the main interpreter's state lives until the interpreter is finalised, which stops us first; the function
    // loads one field of it.
    let mut thread = unsafe { first_thread(interpreter.main as *mut _) } as usize;
    let begin = out.len();
    for _ in 0..MAX_THREADS {
        if thread == 0 || !frame_signal::is_ours(interpreter, thread) {
            break;
        }
        let has_frames =
            frame_signal::start(interpreter, thread).is_some_and(|start| is_of_python(interpreter, start.leaf));
        if let (true, Some(thread_id)) = (has_frames, kernel_thread_id(&interpreter.layout, thread)) {
            out.push(RuntimeThread { thread_id, handle: thread as u64 });
        }
        match thread.checked_add(fixed::NEXT_THREAD).and_then(guarded::read_u64) {
            Some(next) => thread = next as usize,
            None => break,
        }
    }
    // A state that is being handed from the creating thread to the created one names the creator.
    let mut found = out.split_off(begin);
    found.sort_unstable_by_key(|thread| thread.thread_id);
    found.dedup_by_key(|thread| thread.thread_id);
    out.append(&mut found);
}
