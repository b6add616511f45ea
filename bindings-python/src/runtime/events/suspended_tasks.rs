//! Stacks of suspended asyncio tasks. A Python thread of the package reads them (`tasks.py`), since reading tasks requires the GIL, and
//! the wall sampler must not wait for it. Once per window it stores those of all tasks for the profile of threads, which the wall
//! sampler submits; while requests are open, it submits what their tasks await. Code objects that end meanwhile keep their names, as
//! those of every raw frame (`code_lifetime`).

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use spanprof_aggregate::context::opened_and_refused;
use spanprof_profiler::binding::{self, ffi_guard, open_request_of, submit_awaiting};
use spanprof_profiler::ProfilerHandle;
use spanprof_signal::{parking, Context, RawFrame};

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

/// Seconds between two calls of `store_suspended_tasks`, None when the profile of threads is off; and whether waits are measured.
#[pyfunction]
pub fn suspended_tasks_settings() -> (Option<f64>, bool) {
    ffi_guard((None, false), || {
        let running = ProfilerHandle::running().filter(ProfilerHandle::is_running);
        running.map_or((None, false), |profiler| {
            let config = profiler.config();
            (config.threads.then_some(config.upload_interval.as_secs_f64()), config.off_cpu)
        })
    })
}

/// Waits until a context is opened that is not one of the first `opened`, for `wake_tasks_thread`, or for `seconds`. Returns the number
/// of opened contexts. Other threads of the interpreter run meanwhile.
#[pyfunction]
#[pyo3(signature = (opened, seconds))]
pub fn wait_for_contexts(py: Python<'_>, opened: u64, seconds: Option<f64>) -> u64 {
    ffi_guard(opened, || {
        let timeout_ns = seconds.map(|seconds| (seconds * 1e9) as u64);
        py.detach(|| parking::park(parking::Sleeper::Tasks, timeout_ns, || opened_and_refused().0 != opened));
        opened_and_refused().0
    })
}

/// Ends a call of `wait_for_contexts`.
#[pyfunction]
pub fn wake_tasks_thread() {
    ffi_guard((), parking::unpark);
}

/// Whether the end of a request is awaited.
#[pyfunction]
pub fn has_open_requests() -> bool {
    ffi_guard(false, binding::has_open_requests)
}

/// The ids of the open requests that contexts belong to; 0 for those of none.
#[pyfunction]
pub fn open_requests_of(contexts: Vec<u64>) -> Vec<u64> {
    let request = |context| open_request_of(context).map_or(0, u64::from_be_bytes);
    ffi_guard(Vec::new(), || contexts.into_iter().map(request).collect())
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
        let tasks = tasks.iter().map(|(id, stack)| {
            let context = if *id == 0 { Context::None } else { Context::Id(*id) };
            (context, frames_of(stack))
        });
        replace(Box::into_raw(Box::new(StoredTasks { time_ns: spanprof_os::monotonic_ns(), tasks: tasks.collect() })));
    });
}

/// Submits that tasks awaited: the context id of each, its frames, leaf first, and the seconds that it represents.
#[pyfunction]
pub fn submit_awaiting_tasks(tasks: Vec<(u64, Vec<CodeAt<'_>>, f64)>) {
    ffi_guard((), || {
        for (context, stack, seconds) in &tasks {
            submit_awaiting(*context, &frames_of(stack), Duration::try_from_secs_f64(*seconds).unwrap_or_default());
        }
    });
}

fn frames_of(stack: &[CodeAt<'_>]) -> Vec<RawFrame> {
    let Some(interpreter) = interpreter::current() else { return Vec::new() };
    let reader = FrameReader::of_process(interpreter);
    let frame = |(code, offset): &CodeAt<'_>| {
        reader.frame_of_code(code.as_ptr() as usize, if *offset < 0 { -1 } else { offset / 2 })
    };
    stack.iter().filter_map(frame).collect()
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
