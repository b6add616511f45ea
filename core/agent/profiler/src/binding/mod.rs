//! The binding kit: the code of a language binding that is the same in every language. A binding adds the conversion of values,
//! the scheduling of its log and its `Runtime`. Not here: anything that names a language.

mod description;
mod event_sampling;
mod ffi_guard;
mod lifecycle;
mod lock_waits;
mod log_queue;
mod self_walk;

pub use crate::collect::wall::{objects_in_use, WallCollection};
pub use crate::host_log::log;
pub use crate::lifecycle::require_memory;
pub use crate::pull::{HttpRequest, HttpResponse, MAX_BODY_BYTES, PULL_PREFIX};
pub use description::{Binding, KeyCase};
pub use event_sampling::{sample_event, SampledEvent};
pub use ffi_guard::{count_failed_call, ffi_guard, ffi_guard_argument, ffi_guard_result, panics};

/// Begins the line of a start that failed.
pub const NOT_PROFILED: &str = "this process is not profiled";
/// Begins the line of a change that failed.
pub const NOT_CHANGED: &str = "the settings did not change";
pub use lifecycle::{
    adopt_resource, begin_client_span, begin_request, begin_root_span, config_keys, count_unrecorded_await,
    end_client_span, end_request, end_root_span, flush, follows_requests, forget_request, has_open_requests,
    is_running, name_request, open_request_of, profile_types, pull, send_capture, serve_pulls, setting, start, stop,
    submit_awaiting, update, with_running,
};
pub use lock_waits::{
    awaits_are_reported, lock_waits_are_reported, set_lock_waits_reported, submit_lock_wait, LockWait, PendingWaits,
    WaitStart,
};
pub use log_queue::{dropped_log_lines, install_log, LogQueue, PendingLines};
pub use self_walk::{self_walks_requested, LastStack, SelfWalks, WalkResponse, WalkReview, WalkTarget};
pub use spanprof_os::random::fraction as random_fraction;
pub use spanprof_os::ReserveAllocator;
