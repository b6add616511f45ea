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

/// Text and place of the last panic, until somebody logs it.
static PANIC: ArcSwapOption<String> = ArcSwapOption::const_empty();

/// Keeps panics for the log; else they are printed on standard error. Only for a shared library that has Rust's standard
/// library to itself: in a Rust program the panic hook belongs to the program.
pub fn keep_panics() {
    // A panic inside a hook ends the process: no callback is called there.
    std::panic::set_hook(Box::new(|panic| PANIC.store(Some(Arc::new(panic.to_string().replace('\n', " "))))));
}

/// Takes the last panic that was kept.
pub fn take_panic() -> Option<String> {
    PANIC.load().as_ref()?;
    PANIC.swap(None).map(|text| String::clone(&text))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fork_tests::in_child;

    #[test]
    fn a_panic_is_kept_as_one_line_and_taken_once() {
        // The hook is the process's.
        in_child(|| {
            keep_panics();
            assert_eq!(take_panic(), None);
            let _ = std::panic::catch_unwind(|| panic!("once\non purpose"));
            let text = take_panic().unwrap();
            assert!(text.starts_with("panicked at ") && text.ends_with(": once on purpose"), "{text}");
            assert_eq!(take_panic(), None);
        });
    }
}
