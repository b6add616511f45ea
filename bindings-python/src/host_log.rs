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

/// Replaced, never unlocked, in a forked child: the parent's thread that held it does not exist there.
static WAITING: AtomicPtr<Mutex<Waiting>> = AtomicPtr::new(std::ptr::null_mut());

/// Connects the core's log; called once when the module is imported.
pub fn install() {
    forget_waiting();
    spanprof::set_log_callback(Some(Arc::new(queue)));
}

/// In a forked child: lines of the parent, and who fetches them, are the parent's.
pub fn after_fork_in_child() {
    forget_waiting();
}

fn forget_waiting() {
    // The old queue leaks on purpose: another thread of the parent may have held it.
    WAITING.store(Box::into_raw(Box::default()), Ordering::Release);
}

fn waiting() -> Option<MutexGuard<'static, Waiting>> {
    let waiting: &'static Mutex<Waiting> = ffi::leaked(WAITING.load(Ordering::Acquire))?;
    Some(waiting.lock().unwrap_or_else(PoisonError::into_inner))
}

fn queue(level: LogLevel, line: &str) {
    let Some(mut waiting) = waiting() else { return };
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
    let mut waiting = waiting()?;
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
    if let Some(mut waiting) = waiting() {
        waiting.asked = false;
    }
}

/// The interpreter is about to end: from here on it is not asked for anything.
#[pyfunction]
pub fn close_log() {
    if let Some(mut waiting) = waiting() {
        waiting.closed = true;
    }
}
