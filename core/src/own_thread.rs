//! The profiler's own threads: exempt from sampling, accounted as the profiler's CPU time, and safe to start in forked
//! children.

use std::ffi::CStr;
use std::io::Error;

use crate::sys::{self, Clocks};
pub(crate) use sys::StartedThread;

/// Starts a thread. `body` catches its own panics where they need handling.
pub(crate) fn start(
    name: &'static CStr,
    stack_bytes: usize,
    body: impl FnOnce() + Send + 'static,
) -> Result<StartedThread, Error> {
    let exempt_body = move || {
        let _exempt = Clocks::exempt_current_thread();
        body();
    };
    sys::start_thread(name, stack_bytes, Box::new(exempt_body))
}
