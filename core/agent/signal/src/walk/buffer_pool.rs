//! Preallocated buffers for code that may not allocate and runs on several threads at once: a thread claims one, uses it
//! alone and returns it. No thread waits; a claim fails when all buffers are in use.

#[cfg(not(loom))]
use core::cell::UnsafeCell;
#[cfg(loom)]
use loom::cell::UnsafeCell;

use crate::atomics::{AtomicBool, Ordering};

pub struct PooledBuffer<T> {
    in_use: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `value` is accessed only by the owner of a `ClaimedBuffer`, of which one exists at a time: the thread that
// changed `in_use` from false to true. Its release store and the acquire exchange of the next owner order their accesses.
unsafe impl<T: Send> Sync for PooledBuffer<T> {}

impl<T> PooledBuffer<T> {
    /// A buffer that is not in use.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { in_use: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// A buffer that is not in use.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { in_use: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
}

/// Exclusive use of a buffer, until dropped.
pub struct ClaimedBuffer<'a, T>(&'a PooledBuffer<T>);

impl<T> ClaimedBuffer<'_, T> {
    /// Runs `body` with the buffer.
    #[inline]
    pub fn with<R>(&mut self, body: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(not(loom))]
        // SAFETY: this claim is the only one of this buffer, and `&mut self` excludes a second use of it.
        return body(unsafe { &mut *self.0.value.get() });
        #[cfg(loom)]
        // SAFETY: this claim is the only one of this buffer, and `&mut self` excludes a second use of it.
        return self.0.value.with_mut(|value| body(unsafe { &mut *value }));
    }
}

impl<T> Drop for ClaimedBuffer<'_, T> {
    fn drop(&mut self) {
        self.0.in_use.store(false, Ordering::Release);
    }
}

/// Claims a buffer of `pool`; `None` when all are in use. `hint` selects the first one that is tried: threads with
/// different hints rarely share one.
pub fn claim_buffer<T>(pool: &[PooledBuffer<T>], hint: usize) -> Option<ClaimedBuffer<'_, T>> {
    let (before, after) = pool.split_at_checked(hint.checked_rem(pool.len())?)?;
    let claim = |buffer: &&PooledBuffer<T>| {
        buffer.in_use.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    after.iter().chain(before).find(claim).map(ClaimedBuffer)
}

/// Returns every buffer, in a forked child: its threads that used one exist only in the parent.
pub fn return_all<T>(pool: &[PooledBuffer<T>]) {
    for buffer in pool {
        buffer.in_use.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_claim_gets_another_buffer_and_fails_when_all_are_in_use() {
        let pool = [0, 1, 2].map(PooledBuffer::new);
        let mut claims: Vec<_> = (0..3).map(|_| claim_buffer(&pool, 1).unwrap()).collect();
        let mut values: Vec<_> = claims.iter_mut().map(|claim| claim.with(|value| *value)).collect();
        values.sort_unstable();
        assert_eq!(values, [0, 1, 2]);
        assert!(claim_buffer(&pool, 7).is_none());
        claims.pop();
        assert!(claim_buffer(&pool, 7).is_some());
        std::mem::forget(claims);
        return_all(&pool);
        assert_eq!((0..3).map_while(|hint| claim_buffer(&pool, hint).map(std::mem::forget)).count(), 3);
    }

    #[test]
    fn a_pool_without_buffers_has_none() {
        assert!(claim_buffer::<u8>(&[], 0).is_none());
    }
}
