//! Calls a runtime's walk of another thread, for the wall sampler.

use spanprof_signal::walk_fault::WalkGuard;
use spanprof_signal::{CaptureOtherFn, Captured, RawStack};

/// Walks another thread of the process. Wall sampler's thread only.
pub fn walk_other_thread(capture: CaptureOtherFn, handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    thread_local!(static OWN_ID: u32 = crate::threads::listing::thread_id());
    let _guard = WalkGuard::begin(OWN_ID.with(|id| *id));
    // SAFETY: a CaptureOtherFn reads foreign memory only through guarded loads, so the thread may run or end
    // meanwhile. As the type requires, only the wall sampler calls it.
    unsafe { capture(handle, thread_id, stack) }
}
