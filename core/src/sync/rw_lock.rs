//! `std::sync::RwLock` whose waits are measured.

use std::fmt;
use std::sync;

use super::guard::LockGuard;
use super::wait::{acquire, attempted};
use super::{LockResult, TryLockResult};

/// [`std::sync::RwLock`] whose waits appear in the profiles `contentions` and `delay`; see [the module](super).
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    inner: sync::RwLock<T>,
}

/// A [`RwLock`] that is acquired for reading.
pub type RwLockReadGuard<'a, T> = LockGuard<sync::RwLockReadGuard<'a, T>>;

/// A [`RwLock`] that is acquired for writing.
pub type RwLockWriteGuard<'a, T> = LockGuard<sync::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { inner: sync::RwLock::new(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// The value too, if the lock is poisoned.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Acquires the lock for reading; waits while a writer has it.
    ///
    /// # Errors
    /// The guard too, if the lock is poisoned.
    ///
    /// # Panics
    /// As [`std::sync::RwLock::read`], if the calling thread has the lock.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        acquire(|| self.inner.try_read(), || self.inner.read())
    }

    /// Acquires the lock for writing; waits while another thread has it.
    ///
    /// # Errors
    /// The guard too, if the lock is poisoned.
    ///
    /// # Panics
    /// As [`std::sync::RwLock::write`], if the calling thread has the lock.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        acquire(|| self.inner.try_write(), || self.inner.write())
    }

    /// Acquires the lock for reading if no writer has it. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if it is not free; the guard, if it is poisoned.
    #[inline]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        attempted(self.inner.try_read())
    }

    /// Acquires the lock for writing if it is free. Never waits.
    ///
    /// # Errors
    /// `WouldBlock` if it is not free; the guard, if it is poisoned.
    #[inline]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        attempted(self.inner.try_write())
    }

    /// Whether a thread panicked while it had the lock for writing.
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Makes a poisoned lock usual again.
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// The value, without acquiring: no other reference to the lock exists.
    ///
    /// # Errors
    /// The reference too, if the lock is poisoned.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}
