//! The profiler's log lines, passed to the host's logger. Never called from a signal handler or with a lock of the engine
//! held. Until a callback is set, warnings and the outcome of a run with a destination go to standard error, so that a program
//! without a logger reports losses, and what became of its profiles.

use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// Beginning of the outcome line at the end of each run.
pub const OUTCOME_PREFIX: &str = "spanprof: stopped";

/// End of the outcome line of a run whose profiles the program takes itself.
pub const NO_DESTINATION: &str = "no destination";

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// The profiler works as configured.
    Info,
    /// A sample, a profile or a setting was lost or ignored.
    Warning,
}

/// Receives lines on any thread; must not panic and must not block for long.
pub type LogCallback = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// Lock-free: a child forked while a thread of the parent logs would inherit a held lock.
static CALLBACK: ArcSwapOption<LogCallback> = ArcSwapOption::const_empty();
static IS_CALLBACK_SET: AtomicBool = AtomicBool::new(false);

/// Sets the destination of log lines; `None` discards them.
pub fn set_log_callback(callback: Option<LogCallback>) {
    IS_CALLBACK_SET.store(true, Ordering::Release);
    CALLBACK.store(callback.map(Arc::new));
}

/// Message and location of the last panic, until it is logged.
static PANIC: ArcSwapOption<String> = ArcSwapOption::const_empty();

/// Keeps panics for the log instead of printing them to standard error. Only for a shared library with its own copy of
/// Rust's standard library: in a Rust program the panic hook belongs to the program.
pub fn keep_panics() {
    // A panic inside the hook aborts the process, so the hook calls no callback.
    std::panic::set_hook(Box::new(|panic| PANIC.store(Some(Arc::new(panic.to_string().replace('\n', " "))))));
}

/// Takes the last panic that was kept.
pub fn take_panic() -> Option<String> {
    PANIC.load().as_ref()?;
    PANIC.swap(None).map(|text| String::clone(&text))
}

/// Passes one line to the host.
pub fn log(level: LogLevel, line: &str) {
    if let Some(callback) = CALLBACK.load_full() {
        callback(level, line);
    } else if is_printed(level, line) && !IS_CALLBACK_SET.load(Ordering::Acquire) {
        spanprof_os::remember_standard_error();
        spanprof_os::write_to_standard_error(line);
    }
}

/// Whether a line goes to standard error where the program has no logger for it.
pub fn is_printed(level: LogLevel, line: &str) -> bool {
    level == LogLevel::Warning || (line.starts_with(OUTCOME_PREFIX) && !line.ends_with(NO_DESTINATION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_os::testing::in_child;

    #[test]
    fn without_a_callback_warnings_and_the_outcome_are_printed() {
        assert!(is_printed(LogLevel::Warning, "spanprof: 3 samples lost"));
        assert!(is_printed(LogLevel::Info, "spanprof: stopped after 1.2 s: 118 samples"));
        assert!(!is_printed(LogLevel::Info, "spanprof: stopped after 1.2 s: 118 samples; no destination"));
        assert!(!is_printed(LogLevel::Info, "spanprof: first window: 118 samples"));
    }

    #[test]
    fn a_panic_is_kept_as_one_line_and_taken_once() {
        // In a child: the panic hook is global.
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
