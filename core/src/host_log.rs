//! The few lines that the profiler says, handed to the host's own logger. Never called from a signal handler or while a
//! lock of the engine is held.

use arc_swap::ArcSwapOption;
use std::sync::Arc;

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

/// No lock: a forked child would find it held by a thread of its parent that was saying something.
static CALLBACK: ArcSwapOption<LogCallback> = ArcSwapOption::const_empty();

/// Sets where lines go; `None`: nowhere.
pub fn set_log_callback(callback: Option<LogCallback>) {
    CALLBACK.store(callback.map(Arc::new));
}

/// Hands one line to the host.
pub(crate) fn log(level: LogLevel, line: &str) {
    if let Some(callback) = CALLBACK.load_full() {
        callback(level, line);
    }
}
