//! The walk of a JavaScript thread by itself, for the wall sampler and for blocked event loops. Runs in the handler of the signal
//! that requests it. Not here: the requests (`threads::self_walks`).

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{guarded, DropReason, HandlerContext, RawFrame, RawStack};

use crate::runtime::walk::turn_stacks::ThreadActivity;
use crate::runtime::walk::{context, js_thread, synthetic_frame};

/// The epoch of a walk that is never valid.
const NO_EPOCH: u64 = u64::MAX;

/// Walks the interrupted thread; the epoch is its `address_epoch`.
///
/// # Safety
/// The contract of `spanprof_signal::self_walk::WalkSelfFn`.
pub unsafe fn walk_self(handler: &HandlerContext, in_system_call: bool, stack: &mut RawStack<'_>) -> u64 {
    let Some(thread) = js_thread::by_thread_id(handler.thread_id) else { return NO_EPOCH };
    let Some(waits) = thread.waits() else { return NO_EPOCH };
    stack.context = context::read(thread);
    if !handler.has_stack(super::WALK_BYTES) {
        stack.push(RawFrame::reason(DropReason::StackTooSmall));
        return NO_EPOCH;
    }
    let epoch = thread.address_epoch.load(Ordering::Relaxed);
    // SAFETY: the kernel's context of this signal, in the handler of the thread itself.
    unsafe { super::walk_interrupted(thread, handler.ucontext, stack) };
    let activity = match is_waiting_for_events(stack.frames()) {
        // SAFETY: the kernel's context of this signal.
        true => ThreadActivity::Idle { is_interrupted: unsafe { guarded::reports_interruption(handler.ucontext) } },
        false if in_system_call => ThreadActivity::Waiting,
        false => ThreadActivity::Running,
    };
    // SAFETY: in a handler of the thread; the clocks' handler and this one exclude each other.
    unsafe { waits.record(activity, stack.frames(), stack.context) };
    if let (ThreadActivity::Idle { .. }, Some(leaf)) = (activity, stack.frames().first().copied()) {
        // The frames below are Node's own, and always the same.
        stack.clear();
        stack.push(leaf);
        stack.push(synthetic_frame::IDLE);
    }
    epoch
}

/// Upper bound of the size of libc's wait functions.
const WAIT_BYTES: usize = 192;

/// Addresses of libc's wait functions, looked up outside handlers.
static WAITS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Looks up the addresses for `is_waiting_for_events`. Outside handlers.
pub fn look_up_waits() {
    let waits: [*const (); 2] = [libc::epoll_wait as *const (), libc::epoll_pwait as *const ()];
    for (slot, wait) in WAITS.iter().zip(waits) {
        slot.store(wait as u64, Ordering::Relaxed);
    }
}

/// Whether the outermost event loop waits; `spawnSync` runs one of its own below JavaScript frames.
fn is_waiting_for_events(frames: &[RawFrame]) -> bool {
    let pc = frames.first().copied().and_then(RawFrame::native_pc).unwrap_or(0);
    let is_wait = WAITS.iter().any(|wait| {
        let start = wait.load(Ordering::Relaxed);
        start != 0 && pc.wrapping_sub(start) < WAIT_BYTES as u64
    });
    is_wait && !frames.iter().any(|frame| synthetic_frame::is_code(*frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_run_by_javascript_is_not_idle() {
        look_up_waits();
        let wait = RawFrame::native(libc::epoll_wait as *const () as u64 + 20);
        let (native, code) = (RawFrame::native(0x5000), RawFrame { code: 0x7000, at: 4 });
        assert!(is_waiting_for_events(&[wait, native]));
        for other in [&[wait, native, code][..], &[native, wait], &[]] {
            assert!(!is_waiting_for_events(other));
        }
    }
}
