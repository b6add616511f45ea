//! Detects samples inside a greenlet switch. greenlet replaces a thread's frames and its context in separate stores. In
//! between, the thread has the frames of one greenlet and the context of another. A sample taken there keeps its stack, gets no
//! context and is counted, because a missing label is better than a wrong one. Runs in handlers, except [`install`].
//!
//! Compared with greenlet's code segment: the interrupted instruction, and the return address of a leaf function (greenlet
//! copies parts of the C stack with the C library's `memcpy`).
//!
//! Not covered: once per greenlet, for about 100 ns after its end, its context is still set over its parent's frames. Nor the
//! wall walk, which reads no registers: it errs if the thread is preempted between the two stores, which are a few instructions
//! apart.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use spanprof_signal::Memory;

use super::activation_signal::InterruptedRegisters;

/// Executable segment of greenlet's library; empty until [`install`].
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static SAMPLES: AtomicU64 = AtomicU64::new(0);

/// Number of samples taken inside a switch.
pub fn samples() -> u64 {
    SAMPLES.load(Ordering::Relaxed)
}

/// Whether the thread was interrupted inside a switch.
#[inline]
pub fn is_switching(memory: &impl Memory, registers: Option<&InterruptedRegisters<'_>>) -> bool {
    let bytes = BYTES.load(Ordering::Acquire) as u64;
    if bytes == 0 {
        return false;
    }
    let begin = BEGIN.load(Ordering::Relaxed) as u64;
    let is_inside = |address: u64| address.wrapping_sub(begin) < bytes;
    let Some(registers) = registers else { return false };
    let switching =
        is_inside(registers.program_counter()) || registers.return_address_of_a_leaf(memory).is_some_and(is_inside);
    if switching {
        SAMPLES.fetch_add(1, Ordering::Relaxed);
    }
    switching
}

/// Registers the library that contains `function`. Only the first registered library counts.
pub fn install(function: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the GIL is held; an object that is not a built-in function yields null and an exception, which is cleared.
    let address = unsafe {
        let function = ffi::PyCFunction_GetFunction(function.as_ptr());
        if function.is_none() {
            ffi::PyErr_Clear();
        }
        function.map_or(0, |function| function as usize)
    };
    let mut search = SegmentSearch { address, begin: 0, bytes: 0 };
    // SAFETY: the callback receives `search`, and no reference outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    if search.bytes == 0 || BYTES.load(Ordering::Relaxed) != 0 {
        return BYTES.load(Ordering::Relaxed) != 0;
    }
    BEGIN.store(search.begin, Ordering::Relaxed);
    // Release: a handler that sees the length also sees the start.
    BYTES.store(search.bytes, Ordering::Release);
    true
}

struct SegmentSearch {
    address: usize,
    begin: usize,
    bytes: usize,
}

/// Stops at the executable segment that contains the address.
unsafe extern "C" fn visit(library: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: the loader passes one library's headers, and `search` from the caller.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<SegmentSearch>()) };
    for index in 0..usize::from(library.dlpi_phnum) {
        // SAFETY: `dlpi_phnum` is the number of headers.
        let segment = unsafe { &*library.dlpi_phdr.add(index) };
        let begin = (library.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        let bytes = segment.p_memsz as usize;
        let is_code = segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0;
        if is_code && search.address.wrapping_sub(begin) < bytes {
            (search.begin, search.bytes) = (begin, bytes);
            return 1;
        }
    }
    0
}
