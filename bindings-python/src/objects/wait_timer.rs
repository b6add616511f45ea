//! Waits that the package times: of semaphores and of asyncio tasks. Not here: the wait itself (`events::lock_waits`).

use pyo3::prelude::*;
use spanprof_profiler::binding::{LockWait, PendingWaits};

use super::lock_type;
use crate::runtime::events::lock_waits::begin_lock_wait;

/// A wait in progress.
#[pyclass(module = "spanprof._spanprof")]
pub struct WaitTimer {
    wait: Option<Box<LockWait>>,
}

/// Begins a wait in the caller of the Python function that calls this; None while waits are not reported.
#[pyfunction]
pub fn begin_wait() -> Option<WaitTimer> {
    begin_lock_wait(1).map(|wait| WaitTimer { wait: Some(wait) })
}

#[pymethods]
impl WaitTimer {
    /// Ends the wait. Its sample is submitted when `lock` is released, if this is a native lock, which the caller holds; else
    /// now.
    #[pyo3(signature = (lock=None))]
    fn end(&mut self, lock: Option<&Bound<'_, PyAny>>) {
        let Some(wait) = self.wait.take() else { return };
        let mut waits = PendingWaits::default();
        let ended_ns = spanprof_os::monotonic_ns();
        let is_kept = lock.is_some_and(|lock| {
            lock_type::with_pending_waits(lock, |of_lock| {
                of_lock.drop_within(&wait);
                std::mem::swap(of_lock, &mut waits);
            })
        });
        if let Some(wait) = wait.end(ended_ns) {
            waits.push(wait);
        }
        match lock {
            Some(lock) if is_kept => drop(lock_type::with_pending_waits(lock, |of_lock| *of_lock = waits)),
            _ => waits.submit(0),
        }
    }
}
