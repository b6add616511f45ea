//! The core's log lines for the host's logger: queued on any thread, taken by `lib/` on a timer and at each call. Not here:
//! the queue and the text of the lines (the core).

use spanprof_profiler::binding::{install_log, LogQueue, PendingLines};

use crate::convert::BINDING;

static QUEUE: LogQueue = LogQueue::empty();

/// Connects the core's log, once per process.
pub fn install() {
    install_log(|level, line| {
        let line = BINDING.message(line);
        QUEUE.with(|pending| pending.push(level, line));
    });
}

/// Takes all queued lines, flat.
pub fn take() -> Vec<String> {
    QUEUE.with(PendingLines::take)
}
