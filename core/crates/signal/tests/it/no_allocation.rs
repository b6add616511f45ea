//! An allocator that tells when the thread it serves is inside one of our handlers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

/// Serves from the system and looks at the handler's flag.
pub struct Watching;

static FORBIDDEN: AtomicU64 = AtomicU64::new(0);

/// Allocations and frees that happened while their own thread was inside the handler.
pub fn forbidden() -> u64 {
    FORBIDDEN.load(Ordering::Relaxed)
}

fn note() {
    // SAFETY: no arguments, no failure.
    let me = unsafe { libc::syscall(libc::SYS_gettid) as u32 };
    if spanprof_signal::handler::slots().iter().take(4).any(|slot| slot.thread_id() == me && !slot.is_quiet()) {
        FORBIDDEN.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: passes every call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}
