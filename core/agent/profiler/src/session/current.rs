//! The session of this process, and the lock of its changes.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use arc_swap::ArcSwapOption;
use spanprof_os::PerProcess;

use super::Session;

/// The running session.
pub static CURRENT: ArcSwapOption<Session> = ArcSwapOption::const_empty();
/// Held during start, stop and update. Each forked child has its own.
pub static LIFECYCLE_LOCK: PerProcess<Mutex<()>> = PerProcess::empty();

pub fn with_lifecycle_lock<T>(body: impl FnOnce() -> T) -> T {
    LIFECYCLE_LOCK.with(|lock| {
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        body()
    })
}

/// As [`with_lifecycle_lock`]; does nothing while another thread holds the lock. For the profiler's own threads, for which
/// `stop` waits under the lock.
pub fn try_with_lifecycle_lock(body: impl FnOnce()) {
    LIFECYCLE_LOCK.with(|lock| {
        let guard = match lock.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        body();
        drop(guard);
    });
}

/// The session of this process.
pub fn current_session() -> Option<Arc<Session>> {
    CURRENT.load_full().filter(|session| session.is_of_this_process())
}
