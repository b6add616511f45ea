//! Queue of log lines for `logging.getLogger("spanprof")`. The core logs from any of its threads, which must neither wait for
//! the interpreter nor enter it (entering during finalization ends the process). A line is queued, and a pending call on the
//! main thread starts a Python thread that fetches it. Calls such as `start` and `stop` fetch lines themselves. Not here: the
//! logging (`spanprof/host_log.py`), the messages and their rate (the core).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use spanprof::LogLevel;

use crate::ffi;

/// Limit of queued lines; further ones are dropped, so that blocked logging in the host does not grow the queue.
const MAX_LINES: usize = 64;

#[derive(Default)]
struct PendingLines {
    lines: VecDeque<(LogLevel, String)>,
    /// A pending call or a thread that fetches the lines is scheduled.
    fetch_scheduled: bool,
    /// The interpreter is about to be finalized: no pending call may be added.
    closed: bool,
}

/// The lines of one process. A forked child has its own queue: the parent logs its lines itself, and the thread that held the
/// lock does not exist in the child.
struct ProcessLogQueue {
    fork_generation: u32,
    lines: Mutex<PendingLines>,
}

static QUEUE: AtomicPtr<ProcessLogQueue> = AtomicPtr::new(std::ptr::null_mut());

/// Connects the core's log; called once when the module is imported.
pub fn install() {
    spanprof::keep_panics();
    spanprof::set_log_callback(Some(Arc::new(queue)));
}

fn pending_lines() -> MutexGuard<'static, PendingLines> {
    let fork_generation = spanprof::sys::fork_generation();
    loop {
        let present = QUEUE.load(Ordering::Acquire);
        // Queues are leaked: at the fork, a thread of the parent may have held the lock.
        if let Some(queue) =
            ffi::leaked::<ProcessLogQueue>(present).filter(|queue| queue.fork_generation == fork_generation)
        {
            return queue.lines.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let fresh = Box::into_raw(Box::new(ProcessLogQueue { fork_generation, lines: Mutex::default() }));
        // Of two concurrent threads one wins; the empty queue of the other leaks too.
        let _ = QUEUE.compare_exchange(present, fresh, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Logs a warning of the binding.
pub fn warn(line: &str) {
    queue(LogLevel::Warning, line);
}

fn queue(level: LogLevel, line: &str) {
    let mut pending = pending_lines();
    if pending.closed || pending.lines.len() >= MAX_LINES {
        return;
    }
    pending.lines.push_back((level, line.to_owned()));
    if !pending.fetch_scheduled {
        // Scheduled while the queue is locked, so that `close_log` cannot run in between.
        pending.fetch_scheduled = ffi::pending_call::schedule();
    }
}

/// The next line as `(level, text)` with the levels of Python's logging; None when there is no more.
#[pyfunction]
pub fn take_log_line() -> Option<(u32, String)> {
    let mut pending = pending_lines();
    let Some((level, line)) = pending.lines.pop_front() else {
        pending.fetch_scheduled = false;
        return None;
    };
    let level = match level {
        LogLevel::Info => 20,
        LogLevel::Warning => 30,
    };
    Some((level, line))
}

/// The lines could not be fetched now: the next line schedules another fetch.
#[pyfunction]
pub fn log_fetch_failed() {
    pending_lines().fetch_scheduled = false;
}

/// The interpreter is about to be finalized: later lines are dropped and no pending call is added.
#[pyfunction]
pub fn close_log() {
    pending_lines().closed = true;
}
