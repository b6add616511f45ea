//! The core's few lines on their way to `System.Logger`: queued on any thread, fetched by a daemon thread of the package,
//! which waits here while the profiler runs. A full queue drops the new line. Not here: what is said (the core).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use spanprof::{LogLevel, Profiler};

use crate::convert;

const MAX_WAITING: usize = 64;
/// How long who asks waits for lines when the profiler does not run.
const WHEN_STOPPED: Duration = Duration::from_millis(200);
static WAITING: Mutex<Waiting> = Mutex::new(Waiting { lines: VecDeque::new(), stops: 0, held: 0 });
static COME: Condvar = Condvar::new();

struct Waiting {
    lines: VecDeque<(LogLevel, String)>,
    /// How often the profiler was stopped.
    stops: u64,
    /// Threads that stop the profiler and log its last lines themselves: a daemon thread could take them and be gone with
    /// the VM before they are logged.
    held: u32,
}

/// Connects the core's log, once per process.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spanprof::keep_panics();
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

/// Says what needs no action.
pub fn note(line: &str) {
    queue(LogLevel::Info, line);
}

fn queue(level: LogLevel, line: &str) {
    let mut waiting = lock();
    if waiting.lines.len() < MAX_WAITING {
        waiting.lines.push_back((level, convert::message(line)));
    }
    drop(waiting);
    COME.notify_all();
}

/// Wakes who waits for lines of a profiler that was stopped.
pub fn stopped() {
    lock().stops += 1;
    COME.notify_all();
}

/// Whether lines may still come.
pub fn is_running() -> bool {
    Profiler::running().is_some_and(|profiler| profiler.is_running())
}

/// All lines that wait, flat: `info` or `warning`, then the text. Waits for the first for at most `patience`, and only for
/// a moment when the profiler does not run for the caller.
pub fn take(patience: Duration, runs_for_caller: impl FnOnce() -> bool) -> Vec<String> {
    // A stop after this line ends the wait, a stop before it shortens the wait.
    let stops = lock().stops;
    // Not under the lock, which whatever ends with the last handle of a profiler might need.
    let patience = if runs_for_caller() { patience } else { patience.min(WHEN_STOPPED) };
    let none_yet = |waiting: &mut Waiting| (waiting.lines.is_empty() || waiting.held > 0) && waiting.stops == stops;
    let (mut waiting, _) = COME.wait_timeout_while(lock(), patience, none_yet).unwrap_or_else(PoisonError::into_inner);
    let lines = if waiting.held > 0 { VecDeque::new() } else { std::mem::take(&mut waiting.lines) };
    drop(waiting);
    flat(lines)
}

/// Lines are for the caller alone until [`release`]; gives those that wait already.
pub fn hold() -> Vec<String> {
    let mut waiting = lock();
    waiting.held += 1;
    let lines = std::mem::take(&mut waiting.lines);
    drop(waiting);
    flat(lines)
}

/// Gives the lines that came since [`hold`].
pub fn release() -> Vec<String> {
    let mut waiting = lock();
    waiting.held = waiting.held.saturating_sub(1);
    let lines = std::mem::take(&mut waiting.lines);
    drop(waiting);
    COME.notify_all();
    flat(lines)
}

fn flat(lines: VecDeque<(LogLevel, String)>) -> Vec<String> {
    let word = |level| if level == LogLevel::Info { "info" } else { "warning" };
    lines.into_iter().flat_map(|(level, line)| [word(level).to_owned(), line]).collect()
}

fn lock() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}
