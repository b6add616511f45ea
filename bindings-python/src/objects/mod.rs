//! Types and functions of the package that are implemented with CPython's C API, because their cost per call matters or
//! they must look like what they replace: scopes, locks, `os._exit`, and the calls of the OpenTelemetry link. May use `unsafe` as `ffi` does, by its rule.

mod acquire_arguments;
pub mod exit_function;
mod lock_type;
pub mod lock_types;
pub mod otel_calls;
mod recursive_lock_type;
pub mod scope;
pub mod scope_calls;
mod scope_method;
mod thread_lock;
mod wait_timer;
