//! The guard of an acquired lock, and the wait that is recorded after its release.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};

use spanprof_profiler::binding::PendingWaits;

/// An acquired lock: the guard `G` of the standard library, and the wait that preceded it. The lock is released when the
/// guard is dropped.
///
/// A wait of at least the threshold (`lock.threshold` in the statistics) is recorded; a shorter one is sampled, and its sample
/// represents the shorter waits without one. Its stack is captured before the thread blocks, and its sample is submitted after the release, so that no
/// other thread waits for the profiler.
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard<G> {
    // Dropped in this order: the wait is submitted after the release.
    pub(super) inner: G,
    pub(super) wait: WaitOfGuard,
}

/// Submits the wait of a guard when it is dropped.
#[derive(Default)]
pub(super) struct WaitOfGuard(pub PendingWaits);

impl Drop for WaitOfGuard {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            std::mem::take(&mut self.0).submit(0);
        }
    }
}

impl<G> LockGuard<G> {
    /// Of a lock that was free.
    #[inline(always)]
    pub(super) fn without_wait(inner: G) -> Self {
        Self { inner, wait: WaitOfGuard::default() }
    }

    /// As [`LockGuard::without_wait`], for a lock that may be poisoned.
    #[inline(always)]
    pub(super) fn of(acquired: LockResult<G>, wait: WaitOfGuard) -> LockResult<Self> {
        match acquired {
            Ok(inner) => Ok(Self { inner, wait }),
            Err(poisoned) => Err(PoisonError::new(Self { inner: poisoned.into_inner(), wait })),
        }
    }
}

impl<G: Deref> Deref for LockGuard<G> {
    type Target = G::Target;

    #[inline(always)]
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for LockGuard<G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

impl<G: fmt::Debug> fmt::Debug for LockGuard<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}

impl<G: fmt::Display> fmt::Display for LockGuard<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(formatter)
    }
}
