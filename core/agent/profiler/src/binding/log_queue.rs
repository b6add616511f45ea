//! Queue of log lines for the host's logger. The core logs on any of its threads, which must neither wait for the language's
//! runtime nor enter it. A line is queued, and a thread of the language fetches it. Not here: when that thread fetches (the
//! binding), the lines and their rate (the core).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

use crate::host_log::{is_printed, keep_panics, set_log_callback, LogLevel};
use spanprof_os::PerProcess;

/// Limit of queued lines; further ones are dropped, so that blocked logging in the host does not grow the queue.
const MAX_LINES: usize = 64;

static DROPPED_LINES: AtomicU64 = AtomicU64::new(0);

/// Number of lines dropped since the library was loaded, because their queue was full.
pub fn dropped_log_lines() -> u64 {
    DROPPED_LINES.load(Ordering::Relaxed)
}

/// Sets the function that queues the core's log lines, once per loaded library; also keeps panics for the log, and remembers
/// standard error.
pub fn install_log(queue: fn(LogLevel, &str)) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spanprof_os::remember_standard_error();
        keep_panics();
        set_log_callback(Some(Arc::new(queue)));
    });
}

/// Lines that are not fetched yet.
#[derive(Default)]
pub struct PendingLines<T> {
    lines: VecDeque<(LogLevel, String)>,
    /// State of the binding, which decides when the lines are fetched.
    pub state: T,
}

impl<T> PendingLines<T> {
    /// Whether no line is queued.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Appends a line; false when the queue is full, and the line is dropped.
    pub fn push(&mut self, level: LogLevel, line: String) -> bool {
        let has_room = self.lines.len() < MAX_LINES;
        if has_room {
            self.lines.push_back((level, line));
        } else {
            DROPPED_LINES.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Takes the oldest line.
    pub fn pop(&mut self) -> Option<(LogLevel, String)> {
        self.lines.pop_front()
    }

    /// Takes all lines, flat: `warning`, `outcome` for information that is printed without a logger, or `info`; then the text.
    pub fn take(&mut self) -> Vec<String> {
        let kind = |level, line: &str| match level {
            LogLevel::Warning => "warning",
            LogLevel::Info if is_printed(level, line) => "outcome",
            LogLevel::Info => "info",
        };
        self.lines.drain(..).flat_map(|(level, line)| [kind(level, &line).to_owned(), line]).collect()
    }
}

#[derive(Default)]
struct SharedLines<T> {
    pending: Mutex<PendingLines<T>>,
    changed: Condvar,
}

/// The queue of a process, with `T` as state of the binding. A forked child has its own: the parent logs its lines itself.
pub struct LogQueue<T = ()>(PerProcess<SharedLines<T>>);

impl<T: Default> LogQueue<T> {
    pub const fn empty() -> Self {
        Self(PerProcess::empty())
    }

    /// Runs `body` with the queue locked, then wakes threads in [`LogQueue::wait_while`].
    pub fn with<R>(&self, body: impl FnOnce(&mut PendingLines<T>) -> R) -> R {
        self.0.with(|shared| {
            let result = body(&mut shared.pending.lock().unwrap_or_else(PoisonError::into_inner));
            shared.changed.notify_all();
            result
        })
    }

    /// Waits while `must_wait` returns true, for `timeout` at most; then runs `body` with the queue locked.
    pub fn wait_while<R>(
        &self,
        timeout: Duration,
        must_wait: impl FnMut(&mut PendingLines<T>) -> bool,
        body: impl FnOnce(&mut PendingLines<T>) -> R,
    ) -> R {
        self.0.with(|shared| {
            let pending = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = shared.changed.wait_timeout_while(pending, timeout, must_wait);
            body(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_os::testing::in_child;

    #[test]
    fn a_full_queue_drops_the_new_line_and_counts_it() {
        let queue = LogQueue::<()>::empty();
        let push = |line: &str| queue.with(|pending| pending.push(LogLevel::Warning, line.to_owned()));
        assert!((0..MAX_LINES).all(|at| push(&at.to_string())));
        assert!(!push("one too many"));
        assert_eq!(dropped_log_lines(), 1);
        assert_eq!(queue.with(PendingLines::pop), Some((LogLevel::Warning, "0".to_owned())));
        let lines = queue.with(PendingLines::take);
        assert_eq!((lines.len(), &lines[..2]), (2 * (MAX_LINES - 1), &["warning", "1"].map(str::to_owned)[..]));
        assert!(queue.with(|pending| pending.is_empty()));
    }

    #[test]
    fn lines_are_taken_with_their_kind() {
        let queue = LogQueue::<()>::empty();
        let (first, last, lost) = ("spanprof: first window", "spanprof: stopped after 1 s", "spanprof: lost");
        queue.with(|pending| {
            pending.push(LogLevel::Info, first.to_owned());
            pending.push(LogLevel::Info, last.to_owned());
            pending.push(LogLevel::Warning, lost.to_owned());
            assert_eq!(pending.take(), ["info", first, "outcome", last, "warning", lost]);
        });
    }

    #[test]
    fn a_forked_child_has_an_empty_queue_while_a_thread_of_the_parent_holds_the_lock() {
        spanprof_os::install_fork_hook();
        static QUEUE: LogQueue<u32> = LogQueue::empty();
        QUEUE.with(|pending| {
            pending.state = 1;
            pending.push(LogLevel::Info, "of the parent".to_owned());
            in_child(|| {
                assert_eq!(QUEUE.with(|pending| (pending.state, pending.take())), (0, Vec::new()));
                QUEUE.with(|pending| pending.push(LogLevel::Info, "of the child".to_owned()));
                assert_eq!(QUEUE.with(PendingLines::take), ["info", "of the child"]);
            });
            assert_eq!(pending.take(), ["info", "of the parent"]);
        });
    }

    #[test]
    fn a_waiting_thread_gets_a_line_of_another_thread() {
        let queue = LogQueue::<()>::empty();
        std::thread::scope(|scope| {
            let lines = scope.spawn(|| queue.wait_while(Duration::from_secs(60), |p| p.is_empty(), PendingLines::take));
            queue.with(|pending| pending.push(LogLevel::Info, "a line".to_owned()));
            assert_eq!(lines.join().unwrap(), ["info", "a line"]);
        });
        assert!(queue.wait_while(Duration::from_millis(1), |p| p.is_empty(), PendingLines::take).is_empty());
    }
}
