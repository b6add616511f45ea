//! The allocator hooks of CPython's MEM and OBJ domains and of numpy's arrays: select allocations for the heap profile and observe when sampled
//! objects are freed. Each hook passes its arguments on to the allocator that was there before. Not here: installing the
//! hooks (`allocator_hooks`, `array_handler`), the profile itself (`spanprof_signal::heap`).
//!
//! # Rules
//! 1. Callers hold the GIL, which serializes the count of bytes. A caller without it, or an interpreter with a GIL of its own,
//!    can lose counts, nothing else.
//! 2. A hook calls no function of the interpreter but the saved allocator and one that reads a pthread key. It does not
//!    allocate, lock, access thread-local storage or change errno.
//! 3. The context argument is the saved allocator's own. A thread that reads the interpreter's table while it is replaced
//!    (cpython#128679) may thus combine old and new fields.
//! 4. An object is removed from the live set before the saved allocator frees it: its address may be in use again at once.
//! 5. An allocation is counted once: pymalloc passes large requests to the RAW domain, which has no hook.

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use spanprof_signal::heap::HEAP;

use super::capture_signal::walk_calling_thread;

/// The functions that allocate, in both kinds of allocators.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct AllocationFunctions {
    /// First argument of each function.
    pub context: *mut c_void,
    /// Allocates bytes.
    pub malloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    /// Allocates zeroed elements.
    pub calloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    /// Resizes an object, or allocates one for a null pointer.
    pub realloc: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void,
}

/// `PyMemAllocatorEx` (`Include/cpython/pymem.h`, 3.9 to 3.15).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DomainAllocator {
    /// All functions but the last.
    pub functions: AllocationFunctions,
    /// Frees an object or a null pointer.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void),
}

/// numpy's `PyDataMemAllocator` (`numpy/ndarraytypes.h`, 1.22 to 2.5).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ArrayAllocator {
    /// All functions but the last.
    pub functions: AllocationFunctions,
    /// Frees the data of an array; its size is the last argument.
    pub free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

/// Index of the MEM domain in [`SAVED`].
pub const MEM: usize = 0;
/// Index of the OBJ domain in [`SAVED`].
pub const OBJ: usize = 1;
/// The data of numpy's arrays; its allocator is [`SAVED_ARRAYS`].
pub const ARRAYS: usize = 2;

/// The allocator below each hook, leaked. Stored before the hook is installed.
pub static SAVED: [AtomicPtr<DomainAllocator>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
/// As [`SAVED`], for numpy's arrays.
pub static SAVED_ARRAYS: AtomicPtr<ArrayAllocator> = AtomicPtr::new(std::ptr::null_mut());

/// The hooks of a domain, with the context of the allocator below.
pub fn hooks<const DOMAIN: usize>(context: *mut c_void) -> DomainAllocator {
    DomainAllocator { functions: allocation_hooks::<DOMAIN>(context), free: free::<DOMAIN> }
}

/// The hooks of numpy's arrays, with the context of the allocator below.
pub fn array_hooks(context: *mut c_void) -> ArrayAllocator {
    ArrayAllocator { functions: allocation_hooks::<ARRAYS>(context), free: free_array }
}

fn allocation_hooks<const DOMAIN: usize>(context: *mut c_void) -> AllocationFunctions {
    AllocationFunctions { context, malloc: malloc::<DOMAIN>, calloc: calloc::<DOMAIN>, realloc: realloc::<DOMAIN> }
}

#[inline(always)]
fn saved<const DOMAIN: usize>() -> &'static AllocationFunctions {
    match DOMAIN {
        ARRAYS => &saved_arrays().functions,
        _ => &saved_domain::<DOMAIN>().functions,
    }
}

#[inline(always)]
fn saved_domain<const DOMAIN: usize>() -> &'static DomainAllocator {
    // SAFETY: a hook runs only after its domain's allocator was leaked and stored here; Acquire pairs with that store.
    unsafe { &*SAVED[DOMAIN].load(Ordering::Acquire) }
}

#[inline(always)]
fn saved_arrays() -> &'static ArrayAllocator {
    // SAFETY: as in `saved_domain`.
    unsafe { &*SAVED_ARRAYS.load(Ordering::Acquire) }
}

unsafe extern "C" fn malloc<const DOMAIN: usize>(context: *mut c_void, bytes: usize) -> *mut c_void {
    if HEAP.is_sample(bytes) {
        return sampled_malloc::<DOMAIN>(context, bytes);
    }
    // SAFETY: the arguments of this call are those of the saved allocator, in the same domain.
    unsafe { (saved::<DOMAIN>().malloc)(context, bytes) }
}

unsafe extern "C" fn calloc<const DOMAIN: usize>(context: *mut c_void, elements: usize, size: usize) -> *mut c_void {
    // The caller has checked that the product is at most PY_SSIZE_T_MAX.
    if HEAP.is_sample(elements.wrapping_mul(size)) {
        return sampled_calloc::<DOMAIN>(context, elements, size);
    }
    // SAFETY: as in `malloc`.
    unsafe { (saved::<DOMAIN>().calloc)(context, elements, size) }
}

/// A free of the old object and an allocation of the new one.
unsafe extern "C" fn realloc<const DOMAIN: usize>(context: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    let is_sample = HEAP.is_sample(bytes);
    if is_sample || HEAP.may_be_live(old as usize) {
        return sampled_realloc::<DOMAIN>(context, old, bytes, is_sample);
    }
    // SAFETY: as in `malloc`.
    unsafe { (saved::<DOMAIN>().realloc)(context, old, bytes) }
}

unsafe extern "C" fn free<const DOMAIN: usize>(context: *mut c_void, object: *mut c_void) {
    if HEAP.may_be_live(object as usize) {
        return sampled_free::<DOMAIN>(context, object);
    }
    // SAFETY: as in `malloc`.
    unsafe { (saved_domain::<DOMAIN>().free)(context, object) }
}

unsafe extern "C" fn free_array(context: *mut c_void, data: *mut c_void, bytes: usize) {
    if HEAP.may_be_live(data as usize) {
        HEAP.freed(data as usize);
    }
    // SAFETY: as in `malloc`.
    unsafe { (saved_arrays().free)(context, data, bytes) }
}

// The rare cases are functions of their own that cannot unwind, so that a hook is a jump without a stack frame in the
// frequent case.

#[cold]
#[inline(never)]
extern "C" fn sampled_malloc<const DOMAIN: usize>(context: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let object = unsafe { (saved::<DOMAIN>().malloc)(context, bytes) };
    record(object, bytes)
}

#[cold]
#[inline(never)]
extern "C" fn sampled_calloc<const DOMAIN: usize>(context: *mut c_void, elements: usize, size: usize) -> *mut c_void {
    // SAFETY: as in `malloc`.
    let object = unsafe { (saved::<DOMAIN>().calloc)(context, elements, size) };
    record(object, elements.wrapping_mul(size))
}

#[cold]
#[inline(never)]
extern "C" fn sampled_realloc<const DOMAIN: usize>(
    context: *mut c_void,
    old: *mut c_void,
    bytes: usize,
    is_sample: bool,
) -> *mut c_void {
    let was_live = HEAP.freed(old as usize);
    // SAFETY: as in `malloc`.
    let object = unsafe { (saved::<DOMAIN>().realloc)(context, old, bytes) };
    if object.is_null() && was_live {
        HEAP.count_lost();
    }
    if is_sample {
        record(object, bytes);
    }
    object
}

#[cold]
#[inline(never)]
extern "C" fn sampled_free<const DOMAIN: usize>(context: *mut c_void, object: *mut c_void) {
    HEAP.freed(object as usize);
    // SAFETY: as in `malloc`.
    unsafe { (saved_domain::<DOMAIN>().free)(context, object) }
}

fn record(object: *mut c_void, bytes: usize) -> *mut c_void {
    HEAP.record(object as usize, bytes, walk_calling_thread);
    object
}
