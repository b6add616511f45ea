//! The binding's FFI door: everything of CPython's C API that PyO3 does not reach, and the one place of the binding
//! outside `runtime` where `unsafe` may stand. Not here: policy, and anything a signal handler runs.
//!
//! Law: functions here run with the GIL held unless they say otherwise, and none of them leaves a Python exception set.

pub mod otel_calls;
pub mod pending;
pub mod scope;
pub mod scope_calls;
mod scope_method;
pub mod symbols;
pub mod text;
mod trace_id;
pub mod variable;

/// The catching door of the raw entry points: a panic becomes `fallback`, is counted, and never crosses into C.
pub(crate) fn catching<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => {
            crate::error::count_panic();
            fallback
        }
    }
}

/// The value behind a pointer that is null or was leaked for good.
pub(crate) fn leaked<T: Sync>(pointer: *mut T) -> Option<&'static T> {
    // SAFETY: callers store only null or `Box::into_raw` of a box that nobody frees.
    unsafe { pointer.as_ref() }
}
