//! The part of a thread's stack that its ticks found mapped, since a look costs system calls (`stack_space`).

use core::sync::atomic::{AtomicU64, Ordering};

/// The addresses of the lowest page and of the highest. Owner only.
pub(crate) struct MappedStack {
    lowest: AtomicU64,
    highest: AtomicU64,
}

impl MappedStack {
    /// Without a page.
    pub(crate) const fn new() -> Self {
        Self { lowest: AtomicU64::new(0), highest: AtomicU64::new(0) }
    }

    /// Forgets the pages.
    pub(crate) fn clear(&self) {
        self.highest.store(0, Ordering::Relaxed);
    }

    /// The lowest page, if `page` is one of them.
    pub(crate) fn lowest_below(&self, page: usize) -> Option<usize> {
        let (lowest, highest) = (self.lowest.load(Ordering::Relaxed), self.highest.load(Ordering::Relaxed));
        (lowest..=highest).contains(&(page as u64)).then_some(lowest as usize)
    }

    /// Adds the pages from `lowest` up to `page`. Others are forgotten, unless `page` is one of them.
    pub(crate) fn extend(&self, lowest: usize, page: usize) {
        if self.lowest_below(page).is_none() {
            self.highest.store(page as u64, Ordering::Relaxed);
        }
        self.lowest.store(lowest as u64, Ordering::Relaxed);
    }
}
