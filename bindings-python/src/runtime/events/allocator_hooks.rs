//! The allocator hooks of CPython's RAW, MEM and OBJ domains and of numpy's arrays: select allocations for the heap profile and
//! observe when sampled objects are freed. Each hook passes its arguments on to the allocator that was there before. Not here:
//! installing the hooks (`hook_installation`, `array_handler`), the profile itself (`spanprof_signal::heap`).
//!
//! # Rules
//! 1. Callers of the RAW domain need no GIL, so hooks run on several threads at once. Their stack is the one of the calling
//!    thread, or the frame `[no_thread_state]`.
//! 2. A hook calls no function of the interpreter but the saved allocator and one that reads a pthread key. It does not
//!    allocate, lock, access thread-local storage or change errno.
//! 3. The context argument is the saved allocator's own. A thread that reads the interpreter's table while it is replaced
//!    (cpython#128679) may thus combine old and new fields.
//! 4. An object is removed from the live set before the saved allocator frees it: its address may be in use again at once.
//! 5. An allocation is counted once, although pymalloc passes requests above [`LARGEST_SMALL`] bytes to the RAW domain: with
//!    `SMALL_ONLY`, the hooks of MEM and OBJ leave these requests to the hook of RAW. pymalloc also passes each resize of
//!    such an object to RAW, even to a small size: that one is counted by MEM or OBJ ([`PASSING`]).
//! 6. Above pymalloc, MEM and OBJ have no hook of `free` ([`FREED_IN_RAW`]): a sampled small request becomes one of the
//!    smallest size that it passes to RAW. pymalloc passes the free of such an object to RAW too, and the hook there finds it.
//!    Without memory for this size the request is repeated with its own, and is no sample.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 to 3.15 | pymalloc serves requests of 1 to 512 bytes (`SMALL_REQUEST_THRESHOLD`, `Objects/obmalloc.c`, since 3.13 `Include/internal/pycore_obmalloc.h`) | `LARGEST_SMALL`; verified at each installation |

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use spanprof_signal::heap::{thread_pointer, HEAP};
use spanprof_unwind::Registers;

use crate::runtime::capture::walk_native_callers;

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

/// The RAW domain: `PYMEM_DOMAIN_RAW` and its index in [`SAVED`].
pub const RAW: usize = 0;
/// The MEM domain.
pub const MEM: usize = 1;
/// The OBJ domain.
pub const OBJ: usize = 2;
/// The data of numpy's arrays; its allocator is [`SAVED_ARRAYS`].
pub const ARRAYS: usize = 3;

/// pymalloc passes larger requests to the RAW domain, bytes.
pub const LARGEST_SMALL: usize = 512;

/// The allocator below each hook, leaked. Stored before the hook is installed.
pub static SAVED: [AtomicPtr<DomainAllocator>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];
/// The allocator below the hooks of numpy's arrays, leaked. Stored before the hooks are installed.
pub static SAVED_ARRAYS: AtomicPtr<ArrayAllocator> = AtomicPtr::new(std::ptr::null_mut());

/// The thread whose MEM or OBJ hook passes on a small request that the hook of RAW must not count, by its thread pointer; 0 for
/// none. The GIL serializes writers; an interpreter with a GIL of its own can make the request count twice.
static PASSING: AtomicU64 = AtomicU64::new(0);

/// The thread that observes which hooks it reaches, by its thread pointer; 0 for none.
static OBSERVER: AtomicU64 = AtomicU64::new(0);
/// The domains whose hooks it reached, as bits.
static REACHED: AtomicUsize = AtomicUsize::new(0);
/// The address that the hook of RAW returned to it last.
static REACHED_OBJECT: AtomicUsize = AtomicUsize::new(0);

/// The domains whose allocator returns the addresses of RAW unchanged for large requests, as bits: it frees them there.
static FREED_IN_RAW: AtomicUsize = AtomicUsize::new(0);

/// The domains whose hooks `call` reaches on this thread: bit [`RAW`] and so on. One caller at a time, which holds the GIL.
pub fn reached_by(call: impl FnOnce()) -> usize {
    REACHED.store(0, Ordering::Relaxed);
    OBSERVER.store(thread_pointer(), Ordering::Relaxed);
    HEAP.probe(call);
    OBSERVER.store(0, Ordering::Relaxed);
    REACHED.load(Ordering::Relaxed)
}

/// Whether the hook of RAW returned the object at this address last to the caller of [`reached_by`].
pub fn is_object_of_raw(object: *mut c_void) -> bool {
    REACHED_OBJECT.load(Ordering::Relaxed) == object as usize
}

/// The hooks of a domain above its allocator. `SMALL_ONLY`: these hooks count requests of at most [`LARGEST_SMALL`] bytes. The
/// allocator below passes larger ones to the RAW domain, and the hook there counts them; with `is_freed_in_raw`, it also returns
/// the address of RAW.
pub fn hooks<const DOMAIN: usize, const SMALL_ONLY: bool>(
    below: &DomainAllocator,
    is_freed_in_raw: bool,
) -> DomainAllocator {
    if is_freed_in_raw {
        FREED_IN_RAW.fetch_or(1 << DOMAIN, Ordering::Relaxed)
    } else {
        FREED_IN_RAW.fetch_and(!(1 << DOMAIN), Ordering::Relaxed)
    };
    DomainAllocator {
        functions: allocation_hooks::<DOMAIN, SMALL_ONLY>(below.functions.context),
        free: if is_freed_in_raw { below.free } else { free::<DOMAIN> },
    }
}

/// The hooks of numpy's arrays, with the context of the allocator below.
pub fn array_hooks(context: *mut c_void) -> ArrayAllocator {
    ArrayAllocator { functions: allocation_hooks::<ARRAYS, false>(context), free: free_array }
}

fn allocation_hooks<const DOMAIN: usize, const SMALL_ONLY: bool>(context: *mut c_void) -> AllocationFunctions {
    AllocationFunctions {
        context,
        malloc: malloc::<DOMAIN, SMALL_ONLY>,
        calloc: calloc::<DOMAIN, SMALL_ONLY>,
        realloc: realloc::<DOMAIN, SMALL_ONLY>,
    }
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
    // SAFETY: the hook of arrays runs only after their allocator was leaked and stored here; Acquire pairs with that store.
    unsafe { &*SAVED_ARRAYS.load(Ordering::Acquire) }
}

/// Counts a request if this hook is the one that counts it; false when it needs [`select`].
#[inline(always)]
fn deduct<const SMALL_ONLY: bool>(bytes: usize) -> bool {
    SMALL_ONLY && bytes > LARGEST_SMALL || HEAP.deduct(bytes)
}

unsafe extern "C" fn malloc<const DOMAIN: usize, const SMALL_ONLY: bool>(
    context: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    if !deduct::<SMALL_ONLY>(bytes) {
        return sampled_malloc::<DOMAIN, SMALL_ONLY>(context, bytes);
    }
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    unsafe { (saved::<DOMAIN>().malloc)(context, bytes) }
}

unsafe extern "C" fn calloc<const DOMAIN: usize, const SMALL_ONLY: bool>(
    context: *mut c_void,
    elements: usize,
    size: usize,
) -> *mut c_void {
    // The caller has checked that the product is at most PY_SSIZE_T_MAX.
    let bytes = elements.wrapping_mul(size);
    if !deduct::<SMALL_ONLY>(bytes) {
        return sampled_calloc::<DOMAIN, SMALL_ONLY>(context, elements, size);
    }
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    unsafe { (saved::<DOMAIN>().calloc)(context, elements, size) }
}

/// A free of the old object and an allocation of the new one.
unsafe extern "C" fn realloc<const DOMAIN: usize, const SMALL_ONLY: bool>(
    context: *mut c_void,
    old: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    if DOMAIN == RAW && is_passed_on() {
        // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
        return unsafe { (saved::<DOMAIN>().realloc)(context, old, bytes) };
    }
    let is_counted = deduct::<SMALL_ONLY>(bytes);
    if !is_counted || HEAP.may_be_live(old as usize) {
        return sampled_realloc::<DOMAIN, SMALL_ONLY>(context, old, bytes, is_counted);
    }
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    pass_on(SMALL_ONLY && bytes <= LARGEST_SMALL, || unsafe { (saved::<DOMAIN>().realloc)(context, old, bytes) })
}

/// Calls the saved allocator, during which the hook of RAW counts nothing if `is_counted` here.
#[inline(always)]
fn pass_on(is_counted: bool, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if is_counted {
        PASSING.store(thread_pointer(), Ordering::Relaxed);
    }
    let object = call();
    if is_counted {
        PASSING.store(0, Ordering::Relaxed);
    }
    object
}

/// In the hook of RAW: whether the hook of MEM or OBJ above counts this request.
#[inline(always)]
fn is_passed_on() -> bool {
    let passing = PASSING.load(Ordering::Relaxed);
    passing != 0 && passing == thread_pointer()
}

unsafe extern "C" fn free<const DOMAIN: usize>(context: *mut c_void, object: *mut c_void) {
    if HEAP.may_be_live(object as usize) {
        return sampled_free::<DOMAIN>(context, object);
    }
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    unsafe { (saved_domain::<DOMAIN>().free)(context, object) }
}

unsafe extern "C" fn free_array(context: *mut c_void, data: *mut c_void, bytes: usize) {
    if HEAP.may_be_live(data as usize) {
        HEAP.freed(data as usize);
    }
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    unsafe { (saved_arrays().free)(context, data, bytes) }
}

// The rare cases are functions of their own that cannot unwind, so that a hook is a jump without a stack frame in the
// frequent case.

#[cold]
#[inline(never)]
extern "C" fn sampled_malloc<const DOMAIN: usize, const SMALL_ONLY: bool>(
    context: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    let interval = select::<DOMAIN>(bytes);
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    let malloc = |bytes| unsafe { (saved::<DOMAIN>().malloc)(context, bytes) };
    let object = allocate::<DOMAIN, SMALL_ONLY>(bytes, interval, malloc);
    if DOMAIN == RAW && is_observer() {
        REACHED_OBJECT.store(object as usize, Ordering::Relaxed);
    }
    object
}

#[cold]
#[inline(never)]
extern "C" fn sampled_calloc<const DOMAIN: usize, const SMALL_ONLY: bool>(
    context: *mut c_void,
    elements: usize,
    size: usize,
) -> *mut c_void {
    let bytes = elements.wrapping_mul(size);
    let interval = select::<DOMAIN>(bytes);
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    allocate::<DOMAIN, SMALL_ONLY>(bytes, interval, |bytes| unsafe { (saved::<DOMAIN>().calloc)(context, 1, bytes) })
}

#[cold]
#[inline(never)]
extern "C" fn sampled_realloc<const DOMAIN: usize, const SMALL_ONLY: bool>(
    context: *mut c_void,
    old: *mut c_void,
    bytes: usize,
    is_counted: bool,
) -> *mut c_void {
    let interval = if is_counted { None } else { select::<DOMAIN>(bytes) };
    let was_live = HEAP.freed(old as usize);
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    let resize = |bytes| unsafe { (saved::<DOMAIN>().realloc)(context, old, bytes) };
    let object = allocate::<DOMAIN, SMALL_ONLY>(bytes, interval, resize);
    if object.is_null() && was_live {
        HEAP.count_lost();
    }
    object
}

/// Allocates, and records the sample. `interval`: of its selection.
#[inline(always)]
fn allocate<const DOMAIN: usize, const SMALL_ONLY: bool>(
    bytes: usize,
    interval: Option<u64>,
    call: impl Fn(usize) -> *mut c_void,
) -> *mut c_void {
    let is_small = SMALL_ONLY && bytes <= LARGEST_SMALL;
    if let Some(interval) = interval {
        // Rule 6.
        let is_enlarged = is_small && FREED_IN_RAW.load(Ordering::Relaxed) & 1 << DOMAIN != 0;
        let requested = if is_enlarged { LARGEST_SMALL + 1 } else { bytes };
        let object = pass_on(is_small, || call(requested));
        if !object.is_null() || !is_enlarged {
            let registers = Registers::here();
            HEAP.record_sample(object as usize, bytes, interval, |stack| walk_native_callers(&registers, stack));
            return object;
        }
        HEAP.count_lost();
    }
    pass_on(is_small, || call(bytes))
}

#[cold]
#[inline(never)]
extern "C" fn sampled_free<const DOMAIN: usize>(context: *mut c_void, object: *mut c_void) {
    HEAP.freed(object as usize);
    // SAFETY: the hook of a domain passes its arguments to the saved allocator of this domain.
    unsafe { (saved_domain::<DOMAIN>().free)(context, object) }
}

fn is_observer() -> bool {
    let observer = OBSERVER.load(Ordering::Relaxed);
    observer != 0 && observer == thread_pointer()
}

/// Before the allocation that did not pass. `None`: it is not a sample.
fn select<const DOMAIN: usize>(bytes: usize) -> Option<u64> {
    if is_observer() {
        REACHED.fetch_or(1 << DOMAIN, Ordering::Relaxed);
    }
    let interval = HEAP.select(bytes);
    // A request of rule 6 was counted above. The countdown is drawn again if it ended here, and has the same distribution.
    if DOMAIN == RAW && is_passed_on() {
        return None;
    }
    interval
}
