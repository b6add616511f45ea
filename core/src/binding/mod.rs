//! The binding kit: the code of a language binding that is the same in every language. A binding adds the conversion of values,
//! the scheduling of its log and its `Runtime`. Not here: anything that names a language.

mod ffi_guard;
mod log_queue;

pub use crate::host_log::log;
pub use ffi_guard::{count_failed_call, ffi_guard, ffi_guard_result, panics};
pub use log_queue::{dropped_log_lines, install_log, LogQueue, PendingLines};
