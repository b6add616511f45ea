//! Our own threads: exempt from sampling, their CPU time counted as the profiler's own, and fit for forked children. Called
//! by whatever of the facade runs on a thread of its own.

use std::ffi::CStr;
use std::io::Error;

use crate::sys::{self, Clocks};
pub(crate) use sys::StartedThread;

/// Starts one. `body` catches its own panics, where they mean anything.
pub(crate) fn start(
    name: &'static CStr,
    stack_bytes: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<StartedThread, Error> {
    let exempt = move || {
        let _first_and_last = Clocks::exempt_current_thread();
        body();
    };
    sys::start_thread(name, stack_bytes, Box::new(exempt))
}
