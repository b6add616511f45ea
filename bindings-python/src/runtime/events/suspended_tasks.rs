//! Stacks of suspended asyncio tasks, for the profile of threads. A Python thread of the package stores them once per window
//! (`tasks.py`), since reading tasks requires the GIL, and the wall sampler must not wait for it. The wall sampler submits the
//! stored stacks. Code objects that end meanwhile keep their names, as those of every raw frame (`code_lifetime`).

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use pyo3::prelude::*;
use spanprof_profiler::binding::ffi_guard;
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{Context, RawFrame};

use crate::runtime::interpreter;
use crate::runtime::walk::frame::FrameReader;

/// Stored stacks are valid for this number of upload intervals.
const VALID_INTERVALS: u64 = 3;

struct StoredTasks {
    time_ns: u64,
    tasks: Vec<(Context, Vec<RawFrame>)>,
}

/// Taken out while it is read, so that there is no lock that a fork could leave held. Null: none.
static STORED: AtomicPtr<StoredTasks> = AtomicPtr::new(ptr::null_mut());
/// Kernel id of the thread that stores; 0: none.
static STORING_THREAD: AtomicU32 = AtomicU32::new(0);

/// Seconds between two calls of `store_suspended_tasks`; None when the profile of threads is off.
#[pyfunction]
pub fn suspended_tasks_interval() -> Option<f64> {
    ffi_guard(None, || {
        let profiler = ProfilerHandle::running().filter(ProfilerHandle::is_running)?;
        let config = profiler.config();
        config.threads.then_some(config.upload_interval.as_secs_f64())
    })
}

/// Marks the calling thread as the one that stores: it is not a thread of the program.
#[pyfunction]
pub fn begin_storing_tasks() {
    STORING_THREAD.store(spanprof_os::thread_id(), Ordering::Relaxed);
}

/// A code object, and the offset of the last instruction; -1 before the first.
type CodeAt<'py> = (Bound<'py, PyAny>, i64);

/// Stores the suspended tasks: the context id of each (0: none), and its frames, leaf first.
#[pyfunction]
pub fn store_suspended_tasks(tasks: Vec<(u64, Vec<CodeAt<'_>>)>) {
    ffi_guard((), || {
        let Some(interpreter) = interpreter::current() else { return };
        let reader = FrameReader::of_process(interpreter);
        let frame = |(code, offset): &CodeAt<'_>| {
            reader.frame_of_code(code.as_ptr() as usize, if *offset < 0 { -1 } else { offset / 2 })
        };
        let tasks = tasks.iter().map(|(id, stack)| {
            let context = if *id == 0 { Context::None } else { Context::Id(*id) };
            (context, stack.iter().filter_map(frame).collect())
        });
        replace(Box::into_raw(Box::new(StoredTasks { time_ns: spanprof_os::monotonic_ns(), tasks: tasks.collect() })));
    });
}

/// Submits the stored stacks.
pub fn submit(submit: &mut dyn FnMut(Context, &[RawFrame])) {
    let stored = STORED.swap(ptr::null_mut(), Ordering::AcqRel);
    if stored.is_null() {
        return;
    }
    // SAFETY: a box of `store_suspended_tasks`; the swap took it out, so that this function owns it.
    let tasks = unsafe { Box::from_raw(stored) };
    let interval_ns = ProfilerHandle::running().map_or(0, |it| it.config().upload_interval.as_nanos() as u64);
    if spanprof_os::monotonic_ns().saturating_sub(tasks.time_ns) > VALID_INTERVALS * interval_ns {
        return;
    }
    for (context, frames) in &tasks.tasks {
        submit(*context, frames);
    }
    let tasks = Box::into_raw(tasks);
    if STORED.compare_exchange(ptr::null_mut(), tasks, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: the box that the swap took out of `STORED`; it was not stored again, since the exchange failed.
        drop(unsafe { Box::from_raw(tasks) });
    }
}

/// The kernel id of the thread that stores; 0: none.
pub fn storing_thread() -> u32 {
    STORING_THREAD.load(Ordering::Relaxed)
}

/// In a forked child: forgets the tasks of the parent. They are not freed: the fork may have happened inside malloc.
pub fn forget_after_fork() {
    STORED.store(ptr::null_mut(), Ordering::Release);
    STORING_THREAD.store(0, Ordering::Relaxed);
}

fn replace(stored: *mut StoredTasks) {
    let old = STORED.swap(stored, Ordering::AcqRel);
    if !old.is_null() {
        // SAFETY: a box of `store_suspended_tasks`; the swap took it out, so that this function owns it.
        drop(unsafe { Box::from_raw(old) });
    }
}
