//! The parts of CPython's C API that PyO3 does not expose. Outside `runtime`, the only modules of the binding that may use
//! `unsafe`. Not here: policy, and code that runs in signal handlers.
//!
//! Rule: functions here run with the GIL held unless documented otherwise, and none leaves a Python exception set.

pub mod context_value;
pub mod heap_type;
pub mod interruption;
pub mod lifetime;
pub mod pending_call;
pub mod symbols;
pub mod text;
pub mod thread;
pub mod trace_id;
pub mod variable;
