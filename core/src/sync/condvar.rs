//! `std::sync::Condvar` for the mutex of this module. Its waits are idle time: they are not measured.

use std::sync;
use std::time::Duration;

use super::guard::LockGuard;
use super::mutex::MutexGuard;
use super::{LockResult, PoisonError, WaitTimeoutResult};

/// [`std::sync::Condvar`] for [`Mutex`](super::Mutex); see [the module](super).
#[derive(Debug, Default)]
pub struct Condvar {
    inner: sync::Condvar,
}

impl Condvar {
    /// Without waiting threads.
    pub const fn new() -> Self {
        Self { inner: sync::Condvar::new() }
    }

    /// Releases the mutex, waits for a notification, and acquires the mutex again. May return without a notification.
    ///
    /// # Errors
    /// The guard too, if the mutex is poisoned.
    ///
    /// # Panics
    /// As [`std::sync::Condvar::wait`], if used with more than one mutex.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let LockGuard { inner, wait } = guard;
        LockGuard::of(self.inner.wait(inner), wait)
    }

    /// As [`Condvar::wait`], until `condition` is false.
    ///
    /// # Errors
    /// As [`Condvar::wait`].
    pub fn wait_while<'a, T, F>(&self, guard: MutexGuard<'a, T>, condition: F) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        let LockGuard { inner, wait } = guard;
        LockGuard::of(self.inner.wait_while(inner, condition), wait)
    }

    /// As [`Condvar::wait`], for about `timeout` at most.
    ///
    /// # Errors
    /// As [`Condvar::wait`].
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let LockGuard { inner, wait } = guard;
        match self.inner.wait_timeout(inner, timeout) {
            Ok((inner, result)) => Ok((LockGuard { inner, wait }, result)),
            Err(poisoned) => {
                let (inner, result) = poisoned.into_inner();
                Err(PoisonError::new((LockGuard { inner, wait }, result)))
            }
        }
    }

    /// As [`Condvar::wait_while`], for about `timeout` at most.
    ///
    /// # Errors
    /// As [`Condvar::wait`].
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let LockGuard { inner, wait } = guard;
        match self.inner.wait_timeout_while(inner, timeout, condition) {
            Ok((inner, result)) => Ok((LockGuard { inner, wait }, result)),
            Err(poisoned) => {
                let (inner, result) = poisoned.into_inner();
                Err(PoisonError::new((LockGuard { inner, wait }, result)))
            }
        }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.inner.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.inner.notify_all();
    }
}
