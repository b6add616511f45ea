//! Finds the executable segment of greenlet's library, with which the handler recognizes a sample inside a greenlet switch
//! (`walk::greenlet_switch`). Called by the package when a program imports greenlet.

use std::ffi::{c_int, c_void};

use pyo3::ffi;
use pyo3::prelude::*;

use super::walk::greenlet_switch;

/// Registers the library that contains `function`. Only the first registered library counts.
pub fn watch_switches(function: &Bound<'_, PyAny>) -> bool {
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
    unsafe { spanprof_os::iterate_loaded_objects(visit, &mut search) };
    if search.bytes != 0 {
        greenlet_switch::set_segment(search.begin, search.bytes);
    }
    greenlet_switch::is_watching()
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
