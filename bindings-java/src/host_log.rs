//! The core's log lines for `System.Logger`: queued on any thread, read by a daemon thread of the package, which waits here
//! while the profiler runs. Not here: the queue and the text of the lines (the core).

use std::time::Duration;

use spanprof_profiler::binding::{install_log, LogQueue, PendingLines};

use crate::convert::BINDING;

/// Maximum wait for lines while the profiler does not run.
const STOPPED_TIMEOUT: Duration = Duration::from_millis(200);
static QUEUE: LogQueue<Readers> = LogQueue::empty();

#[derive(Default)]
struct Readers {
    /// Number of stops of the profiler.
    stops: u64,
    /// Threads that stop the profiler and log its last lines themselves. The daemon thread could take these lines and end
    /// with the VM before it logs them.
    reservations: u32,
}

/// Connects the core's log, once per process.
pub fn install() {
    install_log(|level, line| {
        let line = BINDING.message(line);
        QUEUE.with(|pending| pending.push(level, line));
    });
}

/// Wakes threads that wait for lines: the profiler was stopped.
pub fn stopped() {
    QUEUE.with(|pending| pending.state.stops += 1);
}

/// Takes all queued lines: `info` or `warning`, then the text. Waits for the first one up to `timeout`, and at most
/// `STOPPED_TIMEOUT` if the profiler does not run for the caller.
pub fn take(timeout: Duration, is_profiling_caller: impl FnOnce() -> bool) -> Vec<String> {
    // A stop after this line ends the wait; a stop before it shortens the timeout.
    let stops = QUEUE.with(|pending| pending.state.stops);
    // Not under the lock: dropping the last handle of a profiler may log.
    let timeout = if is_profiling_caller() { timeout } else { timeout.min(STOPPED_TIMEOUT) };
    let must_wait = |pending: &mut PendingLines<Readers>| {
        (pending.is_empty() || pending.state.reservations > 0) && pending.state.stops == stops
    };
    let unless_reserved = |pending: &mut PendingLines<Readers>| match pending.state.reservations {
        0 => pending.take(),
        _ => Vec::new(),
    };
    QUEUE.wait_while(timeout, must_wait, unless_reserved)
}

/// Reserves lines for the caller until [`release`]; returns the queued ones.
pub fn hold() -> Vec<String> {
    QUEUE.with(|pending| {
        pending.state.reservations += 1;
        pending.take()
    })
}

/// Returns the lines since [`hold`] and ends the reservation.
pub fn release() -> Vec<String> {
    QUEUE.with(|pending| {
        pending.state.reservations = pending.state.reservations.saturating_sub(1);
        pending.take()
    })
}
