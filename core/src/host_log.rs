//! The few lines that the profiler says, handed to the host's own logger. Never called from a signal handler or while a
//! lock of the engine is held.

use std::sync::{Arc, Mutex, PoisonError};

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

static CALLBACK: Mutex<Option<LogCallback>> = Mutex::new(None);

/// Sets where lines go; `None`: nowhere.
pub fn set_log_callback(callback: Option<LogCallback>) {
    *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner) = callback;
}

/// Hands one line to the host.
pub(crate) fn log(level: LogLevel, line: &str) {
    let callback = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(callback) = callback {
        callback(level, line);
    }
}
