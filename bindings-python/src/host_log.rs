//! Log lines for `logging.getLogger("spanprof")`. The core logs from any of its threads, which must neither wait for the
//! interpreter nor enter it (entering during finalization ends the process). A line is queued, and a pending call on the main
//! thread starts a Python thread that fetches it. Calls such as `start` and `stop` fetch lines themselves. Not here: the
//! queue, the messages and their rate (the core), the logging (`spanprof/host_log.py`).

use pyo3::prelude::*;
use spanprof_profiler::binding::{install_log, LogQueue};
use spanprof_profiler::{is_printed, LogLevel};

use crate::ffi::pending_call;

static QUEUE: LogQueue<Fetch> = LogQueue::empty();

#[derive(Default)]
struct Fetch {
    /// A pending call or a thread that fetches the lines is scheduled.
    is_scheduled: bool,
    /// The interpreter is about to be finalized: no pending call may be added.
    is_closed: bool,
}

/// Connects the core's log; called once when the module is imported.
pub fn install() {
    install_log(|level, line| {
        QUEUE.with(|pending| {
            if !pending.state.is_closed && pending.push(level, line.to_owned()) && !pending.state.is_scheduled {
                // Scheduled while the queue is locked, so that `close_log` cannot run in between.
                pending.state.is_scheduled = pending_call::schedule();
            }
        });
    });
}

/// Lets the main thread install the hooks that changed settings require.
pub fn follow_changed_settings() {
    QUEUE.with(|pending| {
        if !pending.state.is_closed {
            pending_call::note_changed_settings();
            pending_call::schedule();
        }
    });
}

/// The next line as `(level, text, is_printed)` with the levels of Python's logging, and whether it goes to standard error
/// without a logger; None when there is no more.
#[pyfunction]
pub fn take_log_line() -> Option<(u32, String, bool)> {
    QUEUE.with(|pending| {
        let line = pending.pop();
        pending.state.is_scheduled &= line.is_some();
        line.map(|(level, text)| {
            let is_printed = is_printed(level, &text);
            (if level == LogLevel::Info { 20 } else { 30 }, text, is_printed)
        })
    })
}

/// The lines could not be fetched now: the next line schedules another fetch.
#[pyfunction]
pub fn log_fetch_failed() {
    QUEUE.with(|pending| pending.state.is_scheduled = false);
}

/// The interpreter has no standard error, whatever descriptor 2 refers to.
#[pyfunction]
pub fn forget_standard_error() {
    spanprof_os::forget_standard_error();
}

/// Whether descriptor 2 still is standard error.
#[pyfunction]
pub fn has_standard_error() -> bool {
    spanprof_os::has_standard_error()
}

/// Writes a line to standard error, unless that is closed, replaced or not read.
#[pyfunction]
pub fn write_to_standard_error(py: Python<'_>, line: &str) {
    py.detach(|| spanprof_os::write_to_standard_error(line));
}

/// The interpreter is about to be finalized: later lines are dropped and no pending call is added.
#[pyfunction]
pub fn close_log() {
    QUEUE.with(|pending| pending.state.is_closed = true);
}
