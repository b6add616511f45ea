//! The profiler's few lines on their way to `logging.getLogger("spanprof")`. The core may speak on any of its threads, which
//! must never wait for the interpreter nor enter it (entering while it shuts down ends the process): a line is queued, and
//! the main thread is asked to let a Python thread fetch it. Calls such as `start` and `stop` fetch lines themselves. Not
//! here: the logging (`spanprof/host_log.py`), what is said and how often (the core).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use spanprof::LogLevel;

use crate::ffi;

/// Lines that wait; more are dropped, since a host whose logging blocks must not make us grow.
const MAX_WAITING: usize = 64;

#[derive(Default)]
struct Waiting {
    lines: VecDeque<(LogLevel, String)>,
    /// Somebody is on the way to fetch them.
    asked: bool,
    /// The interpreter is about to end: it may not be asked for anything.
    closed: bool,
}

/// The lines of one process. A forked child has its own: lines of the parent, and who fetches them, are the parent's, and
/// the thread that held the lock does not exist there.
struct Queue {
    fork_generation: u32,
    waiting: Mutex<Waiting>,
}

static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());

/// Connects the core's log; called once when the module is imported.
pub fn install() {
    spanprof::keep_panics();
    spanprof::set_log_callback(Some(Arc::new(queue)));
}

fn waiting() -> MutexGuard<'static, Waiting> {
    let fork_generation = spanprof::sys::fork_generation();
    loop {
        let present = QUEUE.load(Ordering::Acquire);
        // Queues leak on purpose: a thread of the parent may have been inside.
        if let Some(queue) = ffi::leaked::<Queue>(present).filter(|queue| queue.fork_generation == fork_generation) {
            return queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let fresh = Box::into_raw(Box::new(Queue { fork_generation, waiting: Mutex::default() }));
        // Of two threads that come at once one is first; the other's queue, empty, leaks too.
        let _ = QUEUE.compare_exchange(present, fresh, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Logs a warning of the binding's own.
pub fn warn(line: &str) {
    queue(LogLevel::Warning, line);
}

fn queue(level: LogLevel, line: &str) {
    let mut waiting = waiting();
    if waiting.closed || waiting.lines.len() >= MAX_WAITING {
        return;
    }
    waiting.lines.push_back((level, line.to_owned()));
    if !waiting.asked {
        // Asked while the queue is locked: `close_log` cannot come in between.
        waiting.asked = ffi::pending::ask_main_thread();
    }
}

/// The next line as `(level, text)` with the levels of Python's logging; None when there is no more.
#[pyfunction]
pub fn take_log_line() -> Option<(u32, String)> {
    let mut waiting = waiting();
    let Some((level, line)) = waiting.lines.pop_front() else {
        waiting.asked = false;
        return None;
    };
    let level = match level {
        LogLevel::Info => 20,
        LogLevel::Warning => 30,
    };
    Some((level, line))
}

/// Nobody could be sent now: the next line asks again.
#[pyfunction]
pub fn log_not_fetched() {
    waiting().asked = false;
}

/// The interpreter is about to end: from here on it is not asked for anything.
#[pyfunction]
pub fn close_log() {
    waiting().closed = true;
}
