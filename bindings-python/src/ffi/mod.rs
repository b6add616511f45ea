//! The parts of CPython's C API that PyO3 does not expose. Outside `runtime`, the only modules of the binding that may use
//! `unsafe`. Not here: policy, and code that runs in signal handlers.
//!
//! Rule: functions here run with the GIL held unless documented otherwise, and none leaves a Python exception set.

mod acquire_arguments;
mod heap_type;
pub mod interruption;
mod lock_type;
pub mod lock_types;
pub mod otel_calls;
pub mod pending_call;
mod recursive_lock_type;
pub mod scope;
pub mod scope_calls;
mod scope_method;
pub mod symbols;
pub mod text;
mod thread_lock;
pub mod trace_id;
pub mod variable;
mod wait_timer;
