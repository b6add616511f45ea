//! A value that handlers read while a normal thread replaces it as a whole, such as unwind tables. Readers never wait; the owner
//! frees a replaced value once no read is in progress.
//!
//! A reader counts itself, and then loads the pointer. The owner replaces the pointer, and then looks at the count by a
//! read-modify-write: a reader that counts itself later reads what the owner wrote, and thus loads the new value. Reads take
//! microseconds, so that the owner sees no reader at nearly every look.

use core::ptr::null_mut;

use crate::atomics::{AtomicPtr, AtomicUsize, Ordering};

/// See the module.
pub struct Published<T> {
    current: AtomicPtr<T>,
    readers: AtomicUsize,
}

impl<T> Published<T> {
    /// Without a value.
    #[cfg(not(loom))]
    #[allow(clippy::new_without_default, reason = "a static")]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(null_mut()), readers: AtomicUsize::new(0) }
    }

    /// Without a value.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { current: AtomicPtr::new(null_mut()), readers: AtomicUsize::new(0) }
    }

    /// The value, which is not freed before the result is dropped. `None` before the first one.
    #[inline]
    pub fn borrow(&self) -> Option<BorrowedValue<'_, T>> {
        self.readers.fetch_add(1, Ordering::AcqRel);
        let borrowed = BorrowedValue { published: self, value: self.current.load(Ordering::Acquire) };
        (!borrowed.value.is_null()).then_some(borrowed)
    }

    /// Replaces the value; returns the one before, which reads in progress may still use. Normal threads only.
    ///
    /// # Safety
    /// `value` is valid until it has been replaced and [`Self::is_unused`] has returned true.
    pub unsafe fn replace(&self, value: *mut T) -> *mut T {
        self.current.swap(value, Ordering::AcqRel)
    }

    /// Whether no read is in progress: no replaced value is used any more.
    pub fn is_unused(&self) -> bool {
        self.readers.fetch_add(0, Ordering::AcqRel) == 0
    }

    /// In a forked child: the reads of the parent's other threads do not exist.
    pub fn forget_readers(&self) {
        self.readers.store(0, Ordering::Release);
    }
}

/// A read in progress.
pub struct BorrowedValue<'p, T> {
    published: &'p Published<T>,
    value: *mut T,
}

impl<T> BorrowedValue<'_, T> {
    /// The value.
    #[inline]
    pub fn get(&self) -> &T {
        // SAFETY: not null, checked by `borrow`; valid while this read is counted, by the contract of `replace`.
        unsafe { &*self.value }
    }
}

impl<T> Drop for BorrowedValue<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.published.readers.fetch_sub(1, Ordering::AcqRel);
    }
}
