//! Lists the threads of the interpreter: walks the list of thread states with guarded reads and without the GIL, and reads the
//! kernel id of each. Called by the wall sampler. Not here: walking their frames (`capture::other_thread`).
//!
//! Up to 3.10 a thread state holds only its `pthread_t`: the address of the C library's thread descriptor. [`calibrate`] finds
//! the offset of the kernel id in this descriptor; the descriptors of two threads must agree on it.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.10 | `thread_id` is the `pthread_t` (`Include/cpython/pystate.h`) | `ThreadId::Pthread`, `calibrate` |
//! | 3.11 | `native_thread_id` is the kernel's id | `ThreadId::Kernel` |
//! | 3.15 | a thread without Python code has a base frame | `is_python_leaf` |

use std::sync::atomic::Ordering;

use spanprof_aggregate::runtime::RuntimeThread;
use spanprof_signal::{guarded, Memory};

use super::interpreter::layout::{fixed, ThreadId};
use super::interpreter::Interpreter;
use super::walk::frame::FrameReader;
use super::walk::kernel_thread_id::kernel_thread_id;

/// Bounds a list that becomes cyclic while it changes.
const MAX_THREADS: usize = 65_536;
/// The C library's thread descriptor holds the thread id within this many bytes.
const DESCRIPTOR_BYTES: usize = 2048;

/// Finds the offset of the kernel's thread id in the thread descriptor, if the layout needs it. False: no wall profile on this
/// interpreter.
pub fn calibrate(interpreter: &Interpreter) -> bool {
    let ThreadId::Pthread(_) = interpreter.layout.thread.id else { return true };
    let here = offsets_of_own_id();
    let Ok(thread) = std::thread::Builder::new().spawn(offsets_of_own_id) else { return false };
    let Ok(there) = thread.join() else { return false };
    match here.iter().find(|offset| there.contains(offset)) {
        Some(&offset) => {
            interpreter.descriptor_id.store(offset, Ordering::Release);
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

/// Whether `leaf` is the leaf of a stack to walk. From 3.15 on a thread that runs no Python code still has a base frame.
fn is_python_leaf<M: Memory>(reader: &FrameReader<'_, M>, leaf: usize) -> bool {
    // In 3.11 and 3.12 the leaf of a running thread may be any word.
    let has_base_frame = reader.interpreter.layout.version >= (3, 15);
    let is_base_frame = || reader.read(leaf).is_some_and(|link| link.is_entry && link.previous == 0);
    leaf != 0 && !(has_base_frame && is_base_frame())
}

/// Appends the threads that have Python frames now.
pub fn list(interpreter: &Interpreter, out: &mut Vec<RuntimeThread>) {
    let Some(first_thread) = interpreter.first_thread else { return };
    // SAFETY: the main interpreter's state lives until finalization, which stops the profiler first; the function loads one
    // field of it.
    let mut thread = unsafe { first_thread(interpreter.main as *mut _) } as usize;
    let reader = FrameReader::of_process(interpreter);
    let begin = out.len();
    for _ in 0..MAX_THREADS {
        if thread == 0 || !reader.is_ours(thread) {
            break;
        }
        let has_frames = reader.start(thread).is_some_and(|start| is_python_leaf(&reader, start.leaf));
        if let (true, Some(thread_id)) = (has_frames, kernel_thread_id(&reader, thread)) {
            out.push(RuntimeThread { thread_id, handle: thread as u64 });
        }
        match reader.word(thread, fixed::NEXT_THREAD) {
            Some(next) => thread = next,
            None => break,
        }
    }
    // Before the new thread runs, its state may still hold the id of the creating thread.
    let mut threads = out.split_off(begin);
    threads.sort_unstable_by_key(|thread| thread.thread_id);
    threads.dedup_by_key(|thread| thread.thread_id);
    out.append(&mut threads);
}
