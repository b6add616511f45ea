//! Locks of the store and its caches.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ignores poisoning: every change under these locks is a push, a removal or a swap, so that values stay consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
