//! The door to a runtime's walk of another thread, for the wall sampler.

use spanprof_signal::walking::Walking;
use spanprof_signal::{CaptureOtherFn, Captured, RawStack};

/// Walks another thread of the process. On the wall sampler's thread only.
pub fn walk_other_thread(capture: CaptureOtherFn, handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    thread_local!(static OWN_ID: u32 = super::thread_id());
    let _told = Walking::begin(OWN_ID.with(|id| *id));
    // SAFETY: a CaptureOtherFn reads foreign memory through guarded loads alone, so that the thread may run or end
    // meanwhile; the wall sampler is its only caller, as the type demands.
    unsafe { capture(handle, thread_id, stack) }
}
