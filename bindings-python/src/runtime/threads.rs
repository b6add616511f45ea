//! Lists the threads of the interpreter: walks the list of thread states with guarded reads and without the GIL, and reads the
//! kernel id of each. Called by the wall sampler. Not here: walking their frames (`capture_other`).
//!
//! Up to 3.10 a thread state holds only its `pthread_t`: the address of the C library's thread descriptor. [`calibrate`] finds
//! the offset of the kernel id in this descriptor; the descriptors of two threads must agree on it.

use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof::runtime::RuntimeThread;
use spanprof_signal::guarded;

use super::frame_signal;
use super::interpreter::Interpreter;
use super::layout::{fixed, InterpreterLayout, ThreadId};

/// Bounds a list that becomes cyclic while it changes.
const MAX_THREADS: usize = 65_536;
/// The C library's thread descriptor holds the thread id within this many bytes.
const DESCRIPTOR_BYTES: usize = 2048;

/// Offset of the kernel's thread id in the C library's thread descriptor; 0 while unknown.
static ID_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Finds the offset of the kernel's thread id in the thread descriptor, if the layout needs it. False: no wall profile on this
/// interpreter.
pub fn calibrate(layout: &InterpreterLayout) -> bool {
    let ThreadId::Pthread(_) = layout.thread.id else { return true };
    let here = offsets_of_own_id();
    let Ok(there) = std::thread::spawn(offsets_of_own_id).join() else { return false };
    match here.iter().find(|offset| there.contains(offset)) {
        Some(&offset) => {
            ID_OFFSET.store(offset, Ordering::Release);
            true
        }
        None => false,
    }
}

/// Offsets in this thread's descriptor that hold its kernel id.
fn offsets_of_own_id() -> Vec<usize> {
    // SAFETY: both only identify the calling thread.
    let (descriptor, id) = unsafe { (libc::pthread_self() as usize, libc::syscall(libc::SYS_gettid) as u32) };
    (4..DESCRIPTOR_BYTES)
        .step_by(4)
        .filter(|&offset| guarded::read_u64(descriptor + offset).map(|word| word as u32) == Some(id))
        .collect()
}

/// The kernel's id of the thread whose state is at `thread`; `None` when it is unavailable.
pub fn kernel_thread_id(layout: &InterpreterLayout, thread: usize) -> Option<u32> {
    let word = frame_signal::thread_id_word(&layout.thread, thread)?;
    let id = match layout.thread.id {
        ThreadId::Kernel(_) => word,
        ThreadId::Pthread(_) => {
            let offset = ID_OFFSET.load(Ordering::Acquire);
            if offset == 0 {
                return None;
            }
            guarded::read_u64((word as usize).checked_add(offset)?)? & 0xffff_ffff
        }
    };
    u32::try_from(id).ok().filter(|&id| id != 0 && id <= i32::MAX as u32)
}

/// Whether `leaf` is the leaf of a stack to walk. From 3.15 on a thread that runs no Python code still has a base frame.
fn is_python_leaf(interpreter: &Interpreter, leaf: usize) -> bool {
    leaf != 0 && !frame_signal::read(interpreter, leaf).is_some_and(|link| link.is_entry && link.previous == 0)
}

/// Appends the threads that have Python frames now.
pub fn list(interpreter: &Interpreter, out: &mut Vec<RuntimeThread>) {
    let Some(first_thread) = interpreter.first_thread else { return };
    // SAFETY: the main interpreter's state lives until finalization, which stops the profiler first; the function loads one
    // field of it.
    let mut thread = unsafe { first_thread(interpreter.main as *mut _) } as usize;
    let begin = out.len();
    for _ in 0..MAX_THREADS {
        if thread == 0 || !frame_signal::is_ours(interpreter, thread) {
            break;
        }
        let has_frames =
            frame_signal::start(interpreter, thread).is_some_and(|start| is_python_leaf(interpreter, start.leaf));
        if let (true, Some(thread_id)) = (has_frames, kernel_thread_id(&interpreter.layout, thread)) {
            out.push(RuntimeThread { thread_id, handle: thread as u64 });
        }
        match thread.checked_add(fixed::NEXT_THREAD).and_then(guarded::read_u64) {
            Some(next) => thread = next as usize,
            None => break,
        }
    }
    // Before the new thread runs, its state may still hold the id of the creating thread.
    let mut threads = out.split_off(begin);
    threads.sort_unstable_by_key(|thread| thread.thread_id);
    threads.dedup_by_key(|thread| thread.thread_id);
    out.append(&mut threads);
}
