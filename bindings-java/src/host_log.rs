//! The core's few lines on their way to `System.Logger`: queued on any thread, fetched by a daemon thread of the package,
//! which waits here. A full queue drops the new line. Not here: what is said (the core).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

use spanprof::LogLevel;

const MAX_WAITING: usize = 64;
static WAITING: Mutex<VecDeque<(LogLevel, String)>> = Mutex::new(VecDeque::new());
static COME: Condvar = Condvar::new();

/// Connects the core's log, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spanprof::set_log_callback(Some(Arc::new(queue)));
    });
}

/// Says why this process is not profiled, once.
pub fn warn_once(line: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| queue(LogLevel::Warning, line));
}

/// Says by which lesser means this process is profiled.
pub fn warn(line: &str) {
    queue(LogLevel::Warning, line);
}

fn queue(level: LogLevel, line: &str) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() < MAX_WAITING {
        waiting.push_back((level, line.to_owned()));
    }
    drop(waiting);
    COME.notify_all();
}

/// All lines that wait, flat: `info` or `warning`, then the text. Waits for the first for at most `patience`.
pub fn take(patience: Duration) -> Vec<String> {
    let waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let none_yet = |waiting: &mut VecDeque<_>| waiting.is_empty();
    let (mut waiting, _) = COME.wait_timeout_while(waiting, patience, none_yet).unwrap_or_else(PoisonError::into_inner);
    let lines = std::mem::take(&mut *waiting);
    let word = |level| if level == LogLevel::Info { "info" } else { "warning" };
    lines.into_iter().flat_map(|(level, line)| [word(level).to_owned(), line]).collect()
}
