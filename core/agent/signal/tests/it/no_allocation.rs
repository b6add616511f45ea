//! An allocator that counts calls from inside our handlers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator; counts calls while the handler is active on the same thread.
pub struct CountingAllocator;

static CALLS_IN_HANDLER: AtomicU64 = AtomicU64::new(0);

/// Allocations and frees by the handler.
pub fn calls_in_handler() -> u64 {
    CALLS_IN_HANDLER.load(Ordering::Relaxed)
}

fn count_if_in_handler() {
    // SAFETY: no arguments, no failure.
    let me = unsafe { libc::syscall(libc::SYS_gettid) as u32 };
    if spanprof_signal::slot_table::slots().iter().take(4).any(|slot| slot.thread_id() == me && !slot.is_quiescent()) {
        CALLS_IN_HANDLER.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: forwards every call to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_if_in_handler();
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_if_in_handler();
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
