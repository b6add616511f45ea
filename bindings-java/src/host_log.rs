//! Queue of the core's log lines for `System.Logger`: filled on any thread, read by a daemon thread of the package, which
//! waits here while the profiler runs. A full queue drops the new line. Not here: the content of the lines (the core).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use spanprof::{LogLevel, Profiler};

use crate::convert;

const MAX_LINES: usize = 64;
/// Maximum wait for lines while the profiler does not run.
const STOPPED_TIMEOUT: Duration = Duration::from_millis(200);
static QUEUE: Mutex<LogQueue> = Mutex::new(LogQueue { lines: VecDeque::new(), stops: 0, reservations: 0 });
static LINES_ADDED: Condvar = Condvar::new();

struct LogQueue {
    lines: VecDeque<(LogLevel, String)>,
    /// Number of stops of the profiler.
    stops: u64,
    /// Threads that stop the profiler and log its last lines themselves. The daemon thread could take these lines and end
    /// with the VM before it logs them.
    reservations: u32,
}

/// Installs the core's log callback, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spanprof::keep_panics();
        spanprof::set_log_callback(Some(Arc::new(queue)));
    });
}

/// Logs the reason why this process is not profiled; later calls have no effect.
pub fn warn_once(line: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| queue(LogLevel::Warning, line));
}

/// Logs a warning, such as about degraded profiling.
pub fn warn(line: &str) {
    queue(LogLevel::Warning, line);
}

/// Logs a line that needs no action.
pub fn note(line: &str) {
    queue(LogLevel::Info, line);
}

fn queue(level: LogLevel, line: &str) {
    let mut log_queue = lock();
    if log_queue.lines.len() < MAX_LINES {
        log_queue.lines.push_back((level, convert::message(line)));
    }
    drop(log_queue);
    LINES_ADDED.notify_all();
}

/// Wakes threads that wait for lines: the profiler was stopped.
pub fn stopped() {
    lock().stops += 1;
    LINES_ADDED.notify_all();
}

/// Whether the profiler runs, so that more lines may come.
pub fn is_running() -> bool {
    Profiler::running().is_some_and(|profiler| profiler.is_running())
}

/// Takes all queued lines: `info` or `warning`, then the text. Waits for the first one up to `timeout`, and at most
/// `STOPPED_TIMEOUT` if the profiler does not run for the caller.
pub fn take(timeout: Duration, is_profiling_caller: impl FnOnce() -> bool) -> Vec<String> {
    // A stop after this line ends the wait; a stop before it shortens the timeout.
    let stops = lock().stops;
    // Not under the lock: dropping the last handle of a profiler may log.
    let timeout = if is_profiling_caller() { timeout } else { timeout.min(STOPPED_TIMEOUT) };
    let must_wait = |log_queue: &mut LogQueue| {
        (log_queue.lines.is_empty() || log_queue.reservations > 0) && log_queue.stops == stops
    };
    let (mut log_queue, _) =
        LINES_ADDED.wait_timeout_while(lock(), timeout, must_wait).unwrap_or_else(PoisonError::into_inner);
    let lines = if log_queue.reservations > 0 { VecDeque::new() } else { std::mem::take(&mut log_queue.lines) };
    drop(log_queue);
    to_strings(lines)
}

/// Reserves lines for the caller until [`release`]; returns the queued ones.
pub fn hold() -> Vec<String> {
    let mut log_queue = lock();
    log_queue.reservations += 1;
    let lines = std::mem::take(&mut log_queue.lines);
    drop(log_queue);
    to_strings(lines)
}

/// Returns the lines since [`hold`] and ends the reservation.
pub fn release() -> Vec<String> {
    let mut log_queue = lock();
    log_queue.reservations = log_queue.reservations.saturating_sub(1);
    let lines = std::mem::take(&mut log_queue.lines);
    drop(log_queue);
    LINES_ADDED.notify_all();
    to_strings(lines)
}

fn to_strings(lines: VecDeque<(LogLevel, String)>) -> Vec<String> {
    let level_name = |level| if level == LogLevel::Info { "info" } else { "warning" };
    lines.into_iter().flat_map(|(level, line)| [level_name(level).to_owned(), line]).collect()
}

fn lock() -> MutexGuard<'static, LogQueue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}
