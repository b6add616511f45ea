//! The hooks of Node's allocator of array buffers: select allocations for the heap profile and observe when sampled memory is
//! freed. Each hook passes its arguments on to Node's function. Not here: installing the hooks (`array_buffers`), the profile
//! itself (`spanprof_signal::heap`).
//!
//! # Rules
//! 1. Allocations run on JavaScript threads, inside V8. Frees run on any thread, V8's own too. A hook calls nothing but the
//!    core and Node's function: no V8, no allocation, no lock, no thread-local storage.
//! 2. Memory is removed from the live set before it is freed: its address may be in use again at once.
//! 3. A reallocation is a free of the old memory and an allocation of the new one.
//! 4. The rare cases are functions of their own, so that the frequent case needs no stack frame.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::heap::{thread_pointer, HEAP};

use crate::runtime::capture::walk_allocation;
use crate::runtime::walk::synthetic_frame;

pub type Allocate = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
pub type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);
pub type Reallocate = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize) -> *mut c_void;

/// Node's functions: virtual functions of `node::NodeArrayBufferAllocator`.
#[derive(Clone, Copy)]
pub struct NodeAllocator {
    pub allocate: Allocate,
    pub allocate_uninitialized: Allocate,
    pub free: Free,
    /// Not in V8 13.6 (Node.js 24) and later, where no hook of it is installed.
    pub reallocate: Option<Reallocate>,
}

/// Leaked; stored before the first hook is installed.
pub static NODE_ALLOCATOR: AtomicPtr<NodeAllocator> = AtomicPtr::new(std::ptr::null_mut());

/// Size of the allocations that a self-test counts, bytes; 0 for none.
static OBSERVED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The thread pointer of the self-test's thread.
static OBSERVER: AtomicU64 = AtomicU64::new(0);
static OBSERVED: AtomicUsize = AtomicUsize::new(0);

/// Number of hook calls on this thread with this size during the last run of `call`, which can run more than once. One caller
/// at a time.
pub fn hook_calls(bytes: usize, mut call: impl FnMut()) -> usize {
    OBSERVER.store(thread_pointer(), Ordering::Relaxed);
    OBSERVED_BYTES.store(bytes, Ordering::Relaxed);
    HEAP.probe(|| {
        OBSERVED.store(0, Ordering::Relaxed);
        call();
    });
    OBSERVED_BYTES.store(0, Ordering::Relaxed);
    OBSERVED.load(Ordering::Relaxed)
}

#[inline(always)]
fn node() -> &'static NodeAllocator {
    // SAFETY: a hook runs only after the functions were leaked and stored here; Acquire pairs with that store.
    unsafe { &*NODE_ALLOCATOR.load(Ordering::Acquire) }
}

pub extern "C" fn allocate(allocator: *mut c_void, bytes: usize) -> *mut c_void {
    if !HEAP.deduct(bytes) {
        return sampled_allocate(node().allocate, allocator, bytes);
    }
    // SAFETY: the arguments of this call, which V8 or Node.js makes to the function that the hook replaces.
    unsafe { (node().allocate)(allocator, bytes) }
}

pub extern "C" fn allocate_uninitialized(allocator: *mut c_void, bytes: usize) -> *mut c_void {
    if !HEAP.deduct(bytes) {
        return sampled_allocate(node().allocate_uninitialized, allocator, bytes);
    }
    // SAFETY: the arguments of this call, which V8 or Node.js makes to the function that the hook replaces.
    unsafe { (node().allocate_uninitialized)(allocator, bytes) }
}

pub extern "C" fn free(allocator: *mut c_void, data: *mut c_void, bytes: usize) {
    if HEAP.may_be_live(data as usize) {
        return sampled_free(allocator, data, bytes);
    }
    // SAFETY: the arguments of this call, which V8 or Node.js makes to the function that the hook replaces.
    unsafe { (node().free)(allocator, data, bytes) }
}

pub extern "C" fn reallocate(allocator: *mut c_void, data: *mut c_void, old_bytes: usize, bytes: usize) -> *mut c_void {
    let selected = if HEAP.deduct(bytes) { None } else { select(bytes) };
    let was_live = HEAP.may_be_live(data as usize) && HEAP.freed(data as usize);
    // SAFETY: the arguments of this call, which V8 or Node.js makes to the function that the hook replaces. Without
    // this function in Node.js, this hook is not installed.
    let Some(new) = node().reallocate.map(|reallocate| unsafe { reallocate(allocator, data, old_bytes, bytes) }) else {
        return std::ptr::null_mut();
    };
    if new.is_null() && was_live && bytes > 0 {
        HEAP.count_lost();
    }
    record(new, bytes, selected)
}

#[cold]
#[inline(never)]
extern "C" fn sampled_allocate(allocate: Allocate, allocator: *mut c_void, bytes: usize) -> *mut c_void {
    let selected = select(bytes);
    // SAFETY: the arguments of this call, which V8 or Node.js makes to the function that the hook replaces.
    let data = unsafe { allocate(allocator, bytes) };
    record(data, bytes, selected)
}

#[cold]
#[inline(never)]
extern "C" fn sampled_free(allocator: *mut c_void, data: *mut c_void, bytes: usize) {
    HEAP.freed(data as usize);
    // SAFETY: the arguments of this call, which V8 or Node.js makes to the function that the hook replaces.
    unsafe { (node().free)(allocator, data, bytes) }
}

/// Before the allocation. `None`: it is not a sample.
fn select(bytes: usize) -> Option<u64> {
    let observed = OBSERVED_BYTES.load(Ordering::Relaxed);
    if observed != 0 && observed == bytes && OBSERVER.load(Ordering::Relaxed) == thread_pointer() {
        OBSERVED.fetch_add(1, Ordering::Relaxed);
    }
    HEAP.select(bytes)
}

/// After the allocation.
fn record(data: *mut c_void, bytes: usize, selected: Option<u64>) -> *mut c_void {
    if let Some(interval) = selected {
        HEAP.record_sample(data as usize, bytes, interval, |stack| {
            walk_allocation(synthetic_frame::ARRAY_BUFFER, stack)
        });
    }
    data
}
