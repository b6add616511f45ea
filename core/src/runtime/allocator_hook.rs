//! The global allocator of Rust programs with a heap profile: counts allocations, records the selected ones, and removes
//! them from the live set when they are freed. Every call goes to the allocator below. Not here: the profile itself
//! (`spanprof_signal::heap`), the walk (`walk::calling_thread`).
//!
//! # Rules
//! 1. A hook does not allocate, lock or change errno.
//! 2. Its thread-local storage needs no first access (`thread_sampling`).
//! 3. An object is removed from the live set before the allocator below frees it: its address may be in use again at once.
//! 4. A reallocation is a free of the old object and an allocation of the new one, also if the address stays.
//! 5. The rare cases are functions of their own, so that the frequent case needs no stack frame.
//!
//! Stacks are walked by unwind tables, without allocation;
//! `_Unwind_Backtrace` takes the dynamic linker's lock. Each thread has a countdown in thread-local storage, and 16 buffers serve
//! concurrent samples. The profiler's own threads are not sampled. An unsampled allocation and its free cost up to 1.1 ns.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::heap::HEAP;
use spanprof_signal::{RawFrame, RawStack, SelectedAllocation, ThreadSampling};
use spanprof_unwind::Registers;

use super::walk::calling_thread::{set_entry_frames, walk_callers, walk_calling_thread};
use spanprof_os::thread_sampling::{deduct, select, set_own_sampling};

/// End of the path of this file in debug information: the functions in it are inlined in an optimized program.
pub const ALLOCATOR_HOOK_FILE: &str = file!();

/// A global allocator that samples the program's allocations for the heap profile. It calls another allocator for each
/// request, and counts its bytes. It samples nothing while no profiler runs with `heap`.
///
/// ```
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: spanprof::alloc::Profiled<System> = spanprof::alloc::Profiled::new(System);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Profiled<A> {
    inner: A,
}

impl<A> Profiled<A> {
    /// Samples the allocations of `inner`.
    pub const fn new(inner: A) -> Self {
        Self { inner }
    }
}

// SAFETY: each call is passed to `A` with its arguments, exactly once, and returns its result. The hooks neither unwind nor
// access the objects.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Profiled<A> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if deduct(layout.size()) {
            // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc`.
            return unsafe { self.inner.alloc(layout) };
        }
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc`.
        unsafe { count_alloc(&self.inner, layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if deduct(layout.size()) {
            // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc_zeroed`.
            return unsafe { self.inner.alloc_zeroed(layout) };
        }
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { count_alloc_zeroed(&self.inner, layout) }
    }

    #[inline(always)]
    unsafe fn realloc(&self, object: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let is_counted = deduct(bytes);
        if is_counted && !HEAP.may_be_live(object as usize) {
            // SAFETY: the caller fulfills the contract of `GlobalAlloc::realloc`.
            return unsafe { self.inner.realloc(object, layout, bytes) };
        }
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::realloc`.
        unsafe { realloc_live(&self.inner, object, layout, bytes, is_counted) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        if !HEAP.may_be_live(object as usize) {
            // SAFETY: the caller fulfills the contract of `GlobalAlloc::dealloc`.
            return unsafe { self.inner.dealloc(object, layout) };
        }
        // SAFETY: the caller fulfills the contract of `GlobalAlloc::dealloc`.
        unsafe { dealloc_live(&self.inner, object, layout) }
    }
}

/// # Safety
/// As `GlobalAlloc::alloc`.
#[cold]
#[inline(never)]
unsafe fn count_alloc<A: GlobalAlloc>(inner: &A, layout: Layout) -> *mut u8 {
    let selected = select(layout.size());
    // SAFETY: the caller's contract.
    let object = unsafe { inner.alloc(layout) };
    record(object, layout.size(), selected, &Registers::here())
}

/// # Safety
/// As `GlobalAlloc::alloc_zeroed`.
#[cold]
#[inline(never)]
unsafe fn count_alloc_zeroed<A: GlobalAlloc>(inner: &A, layout: Layout) -> *mut u8 {
    let selected = select(layout.size());
    // SAFETY: the caller's contract.
    let object = unsafe { inner.alloc_zeroed(layout) };
    record(object, layout.size(), selected, &Registers::here())
}

/// # Safety
/// As `GlobalAlloc::realloc`.
#[cold]
#[inline(never)]
unsafe fn realloc_live<A: GlobalAlloc>(
    inner: &A,
    old: *mut u8,
    layout: Layout,
    bytes: usize,
    is_counted: bool,
) -> *mut u8 {
    let selected = if is_counted { None } else { select(bytes) };
    let was_live = HEAP.may_be_live(old as usize) && HEAP.freed(old as usize);
    // SAFETY: the caller's contract.
    let object = unsafe { inner.realloc(old, layout, bytes) };
    if object.is_null() && was_live {
        HEAP.count_lost();
    }
    record(object, bytes, selected, &Registers::here())
}

/// # Safety
/// As `GlobalAlloc::dealloc`.
#[cold]
#[inline(never)]
unsafe fn dealloc_live<A: GlobalAlloc>(inner: &A, object: *mut u8, layout: Layout) {
    HEAP.freed(object as usize);
    // SAFETY: the caller's contract.
    unsafe { inner.dealloc(object, layout) }
}

fn record(object: *mut u8, bytes: usize, selected: Option<SelectedAllocation>, start: &Registers) -> *mut u8 {
    match selected {
        None => {}
        Some(SelectedAllocation::Sample(interval)) => {
            HEAP.record_sample(object as usize, bytes, interval, |stack| walk_calling_thread(start, stack));
        }
        Some(SelectedAllocation::Probe) => store_probe(start),
    }
    object
}

/// Calls of the last probe, leaf first; 0 ends the list.
static PROBE: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

fn store_probe(start: &Registers) {
    let mut frames = [RawFrame::default(); PROBE.len()];
    let mut stack = RawStack::new(&mut frames);
    walk_callers(start, &mut stack, |_| false);
    for (entry, frame) in PROBE.iter().zip(stack.frames()) {
        entry.store(frame.code, Ordering::Relaxed);
    }
}

/// Determines whether a [`Profiled`] is the global allocator, and the functions that lie between an allocation and its hook:
/// the compiler generates them, and walks leave them out. They are the callers that two allocations in different functions
/// have in common. Called under the lifecycle lock, after the unwind tables are loaded.
pub fn probe_allocator() -> bool {
    let entries: Vec<[Vec<u64>; 2]> = [ProbedCall::Alloc, ProbedCall::AllocZeroed, ProbedCall::Realloc]
        .map(|request| [probe_from::<1>(request), probe_from::<2>(request)])
        .into();
    let common = entries.iter().flat_map(|[one, other]| {
        one.iter().zip(other).take_while(|(one, other)| one == other).map(|(address, _)| *address)
    });
    set_entry_frames(common);
    entries.iter().all(|[one, _]| !one.is_empty())
}

#[derive(Clone, Copy)]
enum ProbedCall {
    Alloc,
    AllocZeroed,
    Realloc,
}

/// The stack of an allocation in a function per `CALLER`; empty when no hook was called.
#[inline(never)]
fn probe_from<const CALLER: usize>(request: ProbedCall) -> Vec<u64> {
    PROBE.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
    let layout = Layout::new::<[u64; 2]>();
    // SAFETY: a layout of a size above 0; the object is freed below with the layout of its last allocation.
    unsafe {
        let old = std::alloc::alloc(layout);
        let before = set_own_sampling(ThreadSampling::Probe);
        let (object, size) = match request {
            ProbedCall::Alloc => (std::alloc::alloc(layout), layout.size()),
            ProbedCall::AllocZeroed => (std::alloc::alloc_zeroed(layout), layout.size()),
            ProbedCall::Realloc if !old.is_null() => {
                (std::alloc::realloc(old, layout, 2 * layout.size()), 2 * layout.size())
            }
            ProbedCall::Realloc => (std::ptr::null_mut(), 0),
        };
        // Different functions have different code, so that no linker merges them.
        black_box((CALLER, object));
        set_own_sampling(before);
        let was_moved = matches!(request, ProbedCall::Realloc) && !object.is_null();
        if !was_moved && !old.is_null() {
            std::alloc::dealloc(old, layout);
        }
        if !object.is_null() {
            std::alloc::dealloc(object, Layout::from_size_align_unchecked(size, layout.align()));
        }
    }
    PROBE.iter().map(|entry| entry.load(Ordering::Relaxed)).take_while(|address| *address != 0).collect()
}
