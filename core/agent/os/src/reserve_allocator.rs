//! The allocator of the bindings' libraries: the system's, and a reserve in static memory for a process without memory.
//!
//! The standard library ends the process after a failed allocation (`alloc::handle_alloc_error`). The program may survive one:
//! interpreters and VMs raise an exception. So a failed allocation of the profiler is served from the reserve. When half of it
//! is used, the drain thread ends profiling ([`is_reserve_low`]). While it is full, the profiler's own threads wait for memory;
//! if there is none within [`PATIENCE`], the process ends as before. A Rust program has its own allocator, and ends at its own
//! failures.
//!
//! The reserve takes address space but no resident memory until it is used. It is lock-free. Memory is reused when nothing of
//! it is in use.
//!
//! Fallible allocations everywhere are no alternative: most are in maps, strings and dependencies. CPython 3.11 with 8 to 96 MB
//! of address space left ended in each of seven runs without the reserve. A start requires `START_BYTES`,
//! and a thread 8 MiB, since the C library ends a process that has no memory for the thread-local storage of a thread.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::threads::listing::thread_id;
use crate::threads::own_threads::is_own;

/// Several times the buffers of one encoding.
const RESERVE_BYTES: usize = 8 << 20;
/// Largest supported alignment: a page.
const ALIGNMENT: usize = 4096;
const RETRY: Duration = Duration::from_millis(10);
/// Time for which an own thread waits for memory when the reserve is full.
const PATIENCE: Duration = Duration::from_secs(10);

static SERVED_BYTES: AtomicU64 = AtomicU64::new(0);
static IS_LOW: AtomicBool = AtomicBool::new(false);

/// Bytes that the profiler allocated from its reserve since the start of the process, because the system had none.
pub fn reserve_bytes_served() -> u64 {
    SERVED_BYTES.load(Ordering::Relaxed)
}

/// Whether more than half of the reserve was used since it was last empty.
pub fn is_reserve_low() -> bool {
    IS_LOW.load(Ordering::Relaxed)
}

#[repr(C, align(4096))]
struct Reserve<const BYTES: usize> {
    memory: UnsafeCell<[MaybeUninit<u8>; BYTES]>,
    /// Upper half: blocks in use. Lower half: bytes up to the end of the last block; 0 when none is in use.
    state: AtomicU64,
}

// SAFETY: each block of `memory` belongs to the one caller whose exchange of `state` reserved it.
unsafe impl<const BYTES: usize> Sync for Reserve<BYTES> {}

impl<const BYTES: usize> Reserve<BYTES> {
    /// The reserves of tests are smaller, and do not end profiling.
    const IS_OF_LIBRARY: bool = BYTES >= RESERVE_BYTES;

    const fn new() -> Self {
        assert!(BYTES <= u32::MAX as usize);
        Self { memory: UnsafeCell::new([MaybeUninit::uninit(); BYTES]), state: AtomicU64::new(0) }
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.align() > ALIGNMENT {
            return null_mut();
        }
        let mut start = 0;
        let next = |state: u64| {
            let (blocks, used) = (state >> 32, state as u32 as usize);
            start = used.next_multiple_of(layout.align());
            let end = start.checked_add(layout.size()).filter(|end| *end <= BYTES)?;
            Some((blocks + 1) << 32 | end as u64)
        };
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_err() {
            return null_mut();
        }
        if Self::IS_OF_LIBRARY && start + layout.size() > BYTES / 2 {
            IS_LOW.store(true, Ordering::Relaxed);
        }
        SERVED_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: `start` is below `BYTES`, or equal to it for a block of no bytes.
        unsafe { self.memory.get().cast::<u8>().add(start) }
    }

    fn contains(&self, block: *mut u8) -> bool {
        (block as usize).wrapping_sub(self.memory.get() as usize) < BYTES
    }

    fn give_back(&self) {
        let next = |state: u64| Some(if state >> 32 <= 1 { 0 } else { state - (1 << 32) });
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        if Self::IS_OF_LIBRARY && before.is_ok_and(|state| state >> 32 == 1) {
            IS_LOW.store(false, Ordering::Relaxed);
        }
    }
}

/// A global allocator with a reserve, for libraries inside programs that may survive a lack of memory.
///
/// ```
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: spanprof_os::ReserveAllocator<System> = spanprof_os::ReserveAllocator::new(System);
/// ```
pub struct ReserveAllocator<A, const BYTES: usize = RESERVE_BYTES> {
    inner: A,
    reserve: Reserve<BYTES>,
}

impl<A, const BYTES: usize> std::fmt::Debug for ReserveAllocator<A, BYTES> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ReserveAllocator").finish_non_exhaustive()
    }
}

impl<A: GlobalAlloc, const BYTES: usize> ReserveAllocator<A, BYTES> {
    /// The allocator `inner` with a reserve of `BYTES`, 8 MiB by default.
    pub const fn new(inner: A) -> Self {
        Self { inner, reserve: Reserve::new() }
    }

    /// # Safety
    /// As `GlobalAlloc::alloc`.
    #[cold]
    #[inline(never)]
    unsafe fn alloc_without_memory(&self, layout: Layout) -> *mut u8 {
        let mut waited = Duration::ZERO;
        loop {
            let block = self.reserve.take(layout);
            if !block.is_null() || waited >= PATIENCE || !is_own(thread_id()) {
                return block;
            }
            std::thread::sleep(RETRY);
            waited += RETRY;
            // SAFETY: the caller's contract.
            let block = unsafe { self.inner.alloc(layout) };
            if !block.is_null() {
                return block;
            }
        }
    }
}

// SAFETY: each block comes from `A` or from the reserve, which are distinguished by its address, and is returned there.
// Nothing unwinds.
unsafe impl<A: GlobalAlloc, const BYTES: usize> GlobalAlloc for ReserveAllocator<A, BYTES> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc`.
        let block = unsafe { self.inner.alloc(layout) };
        if !block.is_null() {
            return block;
        }
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc`.
        unsafe { self.alloc_without_memory(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc_zeroed`.
        let block = unsafe { self.inner.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        // SAFETY: the caller's contract of `alloc_zeroed` equals the one of `alloc`. The new block has `layout.size()` bytes.
        unsafe {
            let block = self.alloc_without_memory(layout);
            if !block.is_null() {
                // The reserve's memory may have been in use before.
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if self.reserve.contains(block) {
            return self.reserve.give_back();
        }
        // SAFETY: it came from `A`.
        unsafe { self.inner.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if !self.reserve.contains(block) {
            // SAFETY: it came from `A`, and the rest is the caller's contract.
            let moved = unsafe { self.inner.realloc(block, layout, bytes) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: the caller's contract; a failed reallocation leaves the old block valid, and the new one does not overlap it.
        unsafe {
            let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;

    /// The system's allocator, which fails on request.
    struct Failing(AtomicBool);

    // SAFETY: a null pointer is a valid result; all other calls go to the system's allocator.
    unsafe impl GlobalAlloc for Failing {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if self.0.load(Ordering::Relaxed) {
                return null_mut();
            }
            // SAFETY: the caller's contract.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller's contract.
            unsafe { System.dealloc(block, layout) }
        }
    }

    fn failing<const BYTES: usize>() -> ReserveAllocator<Failing, BYTES> {
        ReserveAllocator::new(Failing(AtomicBool::new(true)))
    }

    fn layout(bytes: usize, alignment: usize) -> Layout {
        Layout::from_size_align(bytes, alignment).unwrap()
    }

    #[test]
    fn failed_allocations_are_served_aligned_and_disjoint_until_the_reserve_is_full() {
        let allocator = failing::<8192>();
        let served_before = reserve_bytes_served();
        // SAFETY: blocks are written within their layouts and returned with them.
        unsafe {
            let small = allocator.alloc(layout(3, 1));
            let aligned = allocator.alloc(layout(4096, 4096));
            assert_eq!(aligned as usize % 4096, 0);
            assert_eq!(aligned as usize - small as usize, 4096);
            assert!(allocator.alloc(layout(1, 1)).is_null(), "full, and this thread is not the profiler's");
            assert!(allocator.alloc(layout(1, 8192)).is_null());
            allocator.dealloc(small, layout(3, 1));
            assert!(allocator.alloc(layout(1, 1)).is_null());
            aligned.write_bytes(7, 4096);
            allocator.dealloc(aligned, layout(4096, 4096));
            let again = allocator.alloc_zeroed(layout(8192, 8));
            assert_eq!(again, small, "nothing is in use");
            assert!((0..8192).all(|index| *again.add(index) == 0));
            allocator.dealloc(again, layout(8192, 8));
        }
        // Other tests may use reserves at the same time.
        assert!(reserve_bytes_served() - served_before >= 3 + 4096 + 8192);
        assert!(!is_reserve_low(), "only that of the library ends profiling");
    }

    #[test]
    fn a_block_moves_between_system_and_reserve_with_its_contents() {
        let allocator = failing::<8192>();
        // SAFETY: the block is accessed within its current layout, and reallocated and returned with it.
        unsafe {
            allocator.inner.0.store(false, Ordering::Relaxed);
            let block = allocator.alloc(layout(100, 8));
            assert!(!allocator.reserve.contains(block));
            (0..100).for_each(|index| block.add(index).write(index as u8));
            allocator.inner.0.store(true, Ordering::Relaxed);
            let grown = allocator.realloc(block, layout(100, 8), 1000);
            assert!(allocator.reserve.contains(grown));
            allocator.inner.0.store(false, Ordering::Relaxed);
            let shrunk = allocator.realloc(grown, layout(1000, 8), 50);
            assert!(!allocator.reserve.contains(shrunk));
            assert!((0..50).all(|index| *shrunk.add(index) == index as u8));
            allocator.dealloc(shrunk, layout(50, 8));
        }
        assert_eq!(allocator.reserve.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_that_take_and_return_blocks_never_share_one() {
        let allocator = failing::<65_536>();
        std::thread::scope(|scope| {
            for mark in 1..=4u8 {
                let allocator = &allocator;
                scope.spawn(move || {
                    for turn in 0..20_000usize {
                        let of_turn = layout(1 + turn % 200, 1 << (turn % 7));
                        // SAFETY: the block is accessed within its layout and returned with it.
                        unsafe {
                            let block = allocator.alloc(of_turn);
                            if block.is_null() {
                                continue; // The others keep the reserve from being reused.
                            }
                            block.write_bytes(mark, of_turn.size());
                            std::hint::black_box(block);
                            assert!((0..of_turn.size()).all(|index| *block.add(index) == mark));
                            allocator.dealloc(block, of_turn);
                        }
                    }
                });
            }
        });
        assert_eq!(allocator.reserve.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_own_thread_waits_for_memory_when_the_reserve_is_full() {
        let allocator = failing::<64>();
        let _own = crate::clocks::thread_clocks::Clocks::exempt_current_thread();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(100));
                allocator.inner.0.store(false, Ordering::Relaxed);
            });
            // SAFETY: the block is returned with its layout.
            unsafe {
                let block = allocator.alloc(layout(1000, 8));
                assert!(!block.is_null() && !allocator.reserve.contains(block));
                allocator.dealloc(block, layout(1000, 8));
            }
        });
    }
}
