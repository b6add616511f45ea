//! The parts of CPython's C API that PyO3 does not expose. Outside `runtime`, the only modules of the binding that may use
//! `unsafe`. Not here: policy, and code that runs in signal handlers.
//!
//! Rule: functions here run with the GIL held unless documented otherwise, and none leaves a Python exception set.

pub mod otel_calls;
pub mod pending_call;
pub mod scope;
pub mod scope_calls;
mod scope_method;
pub mod symbols;
pub mod text;
mod trace_id;
pub mod variable;

/// The referent of a pointer that is null or points to a leaked box.
pub(crate) fn leaked<T: Sync>(pointer: *mut T) -> Option<&'static T> {
    // SAFETY: callers store only null or `Box::into_raw` of a box that is never freed.
    unsafe { pointer.as_ref() }
}
