//! `std::sync::Mutex` whose waits are measured.

use std::fmt;
use std::sync;

use super::guard::LockGuard;
use super::wait::{acquire, attempted};
use super::{LockResult, TryLockResult};

/// [`std::sync::Mutex`] whose waits appear in the profiles `contentions` and `delay`; see [the module](super).
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: sync::Mutex<T>,
}

/// The acquired [`Mutex`].
pub type MutexGuard<'a, T> = LockGuard<sync::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: sync::Mutex::new(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// The value too, if the mutex is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Acquires the mutex; waits while another thread has it.
    ///
    /// # Errors
    /// The guard too, if the mutex is poisoned.
    ///
    /// # Panics
    /// As [`std::sync::Mutex::lock`], if the calling thread has the mutex.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        acquire(|| self.inner.try_lock(), || self.inner.lock())
    }

    /// Acquires the mutex if it is free. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if it is not free; the guard, if it is poisoned.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        attempted(self.inner.try_lock())
    }

    /// Whether a thread panicked while it had the mutex.
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Makes a poisoned mutex usual again.
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// The value, without acquiring: no other reference to the mutex exists.
    ///
    /// # Errors
    /// The reference too, if the mutex is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}
