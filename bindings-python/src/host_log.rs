//! The profiler's few lines on their way to `logging.getLogger("spanprof")`. The core may speak on any thread, also while
//! it is being waited for, so a line is only queued there: it is handed over by the call that is under way, or else by a
//! short-lived thread. Not here: what is said, and how often (the core).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use spanprof::LogLevel;

/// Lines that wait; more are dropped, since a host whose logging blocks must not make us grow.
const MAX_WAITING: usize = 64;

#[derive(Default)]
struct Waiting {
    lines: VecDeque<(LogLevel, String)>,
    /// A thread is on its way to hand them over.
    courier: bool,
}

/// Replaced, never unlocked, in a forked child: the parent's thread that held it does not exist there.
static WAITING: AtomicPtr<Mutex<Waiting>> = AtomicPtr::new(std::ptr::null_mut());

/// Connects the core's log; called once when the module is imported.
pub fn install() {
    forget_waiting();
    spanprof::set_log_callback(Some(Arc::new(queue)));
}

/// In a forked child: lines and couriers of the parent are the parent's.
pub fn after_fork_in_child() {
    forget_waiting();
}

fn forget_waiting() {
    // The old queue leaks on purpose: another thread of the parent may have held it.
    WAITING.store(Box::into_raw(Box::default()), Ordering::Release);
}

fn waiting() -> Option<&'static Mutex<Waiting>> {
    crate::ffi::leaked(WAITING.load(Ordering::Acquire))
}

fn queue(level: LogLevel, line: &str) {
    let Some(waiting) = waiting() else { return };
    let mut queue = waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.lines.len() >= MAX_WAITING {
        return;
    }
    queue.lines.push_back((level, line.to_owned()));
    if !queue.courier {
        queue.courier = true;
        let started = std::thread::Builder::new().name("spanprof-log".to_owned()).spawn(|| {
            // None while the interpreter shuts down: nobody is left to read the lines.
            Python::try_attach(hand_over);
        });
        if started.is_err() {
            queue.courier = false;
        }
    }
}

/// Hands what waits to Python's logging, on this thread. A logger that raises loses the line, nothing else.
pub fn hand_over(py: Python<'_>) {
    loop {
        let line = {
            let Some(waiting) = waiting() else { return };
            let mut queue = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let line = queue.lines.pop_front();
            if line.is_none() {
                queue.courier = false;
            }
            line
        };
        let Some((level, line)) = line else { return };
        let method = match level {
            LogLevel::Info => "info",
            LogLevel::Warning => "warning",
        };
        let said = py
            .import("logging")
            .and_then(|logging| logging.call_method1("getLogger", ("spanprof",)))
            .and_then(|logger| logger.call_method1(method, ("%s", line)));
        drop(said);
    }
}
