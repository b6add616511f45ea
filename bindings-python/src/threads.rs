//! Registers threads of the program that the package's hooks do not see start, and names threads. Threads that C code or `_thread`
//! starts are registered when they enter their first scope; a scan of the process finds others, up to half a second later.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use spanprof_aggregate::thread_names::set_thread_name;
use spanprof_profiler::binding::{self, ffi_guard, with_running};
use spanprof_profiler::ProfilerHandle;

use crate::convert;

/// Starts of the profiler in this process and its parents; each registers anew.
static STARTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The last start for which this thread was registered.
    static REGISTERED_FOR: Cell<u32> = const { Cell::new(0) };
}

/// The profiler has started, or was restarted in a forked child.
pub fn profiler_started() {
    STARTS.fetch_add(1, Ordering::Relaxed);
}

/// Registers the calling thread before it runs code of the program.
#[pyfunction]
pub fn register_current_thread() {
    REGISTERED_FOR.set(STARTS.load(Ordering::Relaxed));
    ffi_guard((), || with_running(ProfilerHandle::register_current_thread));
}

/// As [`register_current_thread`], unless that was done.
#[inline]
pub fn register_new_thread() {
    if REGISTERED_FOR.get() != STARTS.load(Ordering::Relaxed) {
        register_current_thread();
    }
}

/// The language's name of the thread with this kernel id.
#[pyfunction]
pub fn name_thread(thread_id: u32, name: &Bound<'_, PyAny>) {
    ffi_guard((), || {
        if binding::is_running() {
            set_thread_name(thread_id, spanprof_os::monotonic_ns(), &convert::text_of(name));
        }
    });
}
