//! Code that exchanges a thread's frames and context by hand: greenlet. Between its first store and its last one a thread
//! has the frames of one greenlet and the context of another. A sample taken there keeps its stack, is given no context, and
//! is counted: a label on the wrong request is worse than none. Runs in handlers, but for [`watch`].
//!
//! What is looked at: the interrupted instruction, and the word that a leaf function returns to (greenlet copies parts of the
//! C stack with the C library's `memcpy`).
//!
//! Not covered: the hundred nanoseconds in which a greenlet that has ended still has its context over its parent's frames, once
//! in its life; and the wall walk, which sees no registers: it errs when the thread loses its processor between the two stores,
//! which lie a few instructions apart.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_signal::HandlerContext;

use super::activation_signal::Registers;

/// Executable part of the library that switches; empty until [`watch`].
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static MET: AtomicU64 = AtomicU64::new(0);

/// Samples that were taken inside a switch.
pub fn met() -> u64 {
    MET.load(Ordering::Relaxed)
}

/// Whether the thread was interrupted inside a switch.
#[inline]
pub fn is_switching(context: &HandlerContext) -> bool {
    let bytes = BYTES.load(Ordering::Acquire) as u64;
    if bytes == 0 {
        return false;
    }
    let begin = BEGIN.load(Ordering::Relaxed) as u64;
    let is_inside = |address: u64| address.wrapping_sub(begin) < bytes;
    let Some(registers) = Registers::of(context) else { return false };
    let switching = is_inside(registers.program_counter) || registers.return_address_of_a_leaf().is_some_and(is_inside);
    if switching {
        MET.fetch_add(1, Ordering::Relaxed);
    }
    switching
}

/// Watches the library that `function` lies in from now on. One library: the first one named.
pub fn watch(function: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the GIL is held; not a built-in function gives null and an exception, which is cleared.
    let address = unsafe {
        let function = ffi::PyCFunction_GetFunction(function.as_ptr());
        if function.is_none() {
            ffi::PyErr_Clear();
        }
        function.map_or(0, |function| function as usize)
    };
    let mut found = Found { address, begin: 0, bytes: 0 };
    // SAFETY: the callback gets `found` back and nothing outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    if found.bytes == 0 || BYTES.load(Ordering::Relaxed) != 0 {
        return BYTES.load(Ordering::Relaxed) != 0;
    }
    BEGIN.store(found.begin, Ordering::Relaxed);
    // Release: a handler that sees the length sees the beginning.
    BYTES.store(found.bytes, Ordering::Release);
    true
}

struct Found {
    address: usize,
    begin: usize,
    bytes: usize,
}

/// Stops at the executable segment that holds the address.
unsafe extern "C" fn visit(library: *mut libc::dl_phdr_info, _size: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader hands over one library's headers, and `found` as it was given.
    let (library, found) = unsafe { (&*library, &mut *found.cast::<Found>()) };
    for index in 0..usize::from(library.dlpi_phnum) {
        // SAFETY: the loader says how many headers there are.
        let segment = unsafe { &*library.dlpi_phdr.add(index) };
        let begin = (library.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        let bytes = segment.p_memsz as usize;
        let is_code = segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0;
        if is_code && found.address.wrapping_sub(begin) < bytes {
            (found.begin, found.bytes) = (begin, bytes);
            return 1;
        }
    }
    0
}
