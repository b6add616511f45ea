//! The profiler's few lines, handed to the host's own logger. Never called from a signal handler or while a lock of the
//! engine is held. Until a callback is set, warnings go to standard error: a program without a logger sees what was lost.

use arc_swap::ArcSwapOption;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// How the line at the end of each run begins.
pub const OUTCOME_PREFIX: &str = "spanprof: stopped";

/// How loud a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Something works as configured.
    Info,
    /// Something was lost or ignored.
    Warning,
}

/// Receives lines on any thread; must not panic and must not block for long.
pub type LogCallback = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// No lock: a forked child would find it held by a thread of its parent that was logging.
static CALLBACK: ArcSwapOption<LogCallback> = ArcSwapOption::const_empty();
static WAS_SET: AtomicBool = AtomicBool::new(false);

/// Sets where lines go; `None`: nowhere.
pub fn set_log_callback(callback: Option<LogCallback>) {
    WAS_SET.store(true, Ordering::Release);
    CALLBACK.store(callback.map(Arc::new));
}

/// Hands one line to the host.
pub(crate) fn log(level: LogLevel, line: &str) {
    if let Some(callback) = CALLBACK.load_full() {
        callback(level, line);
    } else if level == LogLevel::Warning && !WAS_SET.load(Ordering::Acquire) {
        // A closed standard error is no reason to fail.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}
