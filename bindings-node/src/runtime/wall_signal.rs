//! Self-walks for the wall sampler (`spanprof::binding::SelfWalks`): a JavaScript thread walks its own stack in the handler. A
//! thread whose CPU clock has not advanced since its last walk gets no signal, so that an idle process stays idle.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof::binding::{SelfWalks, WalkResponse, WalkReview, WalkTarget};
use spanprof::sys;
use spanprof_signal::{Captured, DropReason, HandlerContext, RawFrame, RawStack};

use super::js_thread_signal;
use super::turn_stacks_signal::{ObservedWaits, ThreadActivity};
use super::{capture_signal, context_signal, synthetic_frame};

/// Maximum number of walks before the sample is dropped because code moved after each.
const MAX_WALKS: u32 = 3;
/// The epoch of a walk that is never valid.
const NO_EPOCH: u64 = u64::MAX;

/// A wall sampler starts. Installs the handler if signals are allowed; false without them, or when the signal is in use.
pub fn begin(may_signal: bool) -> bool {
    look_up_waits();
    SelfWalks::of_process().begin(may_signal, walk_self, super::FALLBACK_SIGNAL)
}

/// Whether every thread was waiting for events during its last walk. Otherwise only further ticks find waits inside a turn of
/// an event loop.
pub fn all_are_idle() -> bool {
    let mut threads = js_thread_signal::all().iter().filter(|thread| thread.thread_id.load(Ordering::Acquire) != 0);
    threads.all(|thread| thread.waits().is_none_or(ObservedWaits::is_idle))
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`]. `SignalBlocked` until the thread has responded.
///
/// # Safety
/// Outside handlers; the lock of `SelfWalks` excludes the other callers, which are the wall sampler and `block_watch`.
pub unsafe fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let thread = usize::try_from(handle).ok().and_then(|index| js_thread_signal::all().get(index));
    let Some(thread) = thread.filter(|thread| thread.thread_id.load(Ordering::Acquire) == thread_id) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let epoch = thread.address_epoch.load(Ordering::Relaxed);
    let target = WalkTarget { thread_id, identity: handle, epoch };
    let mut walks = SelfWalks::of_process();
    // Where code may have moved since the walk, the thread is walked again.
    let review = |response: &WalkResponse<'_>| match response.walk.epoch == epoch {
        true => WalkReview::Accept,
        false if response.discarded + 1 < MAX_WALKS => WalkReview::Repeat,
        false => WalkReview::Drop(DropReason::MovedDuringWalk),
    };
    if let Some(captured) = walks.take_response(thread_id, Some(handle), stack, review) {
        return captured;
    }
    let Some(cpu_ns) = sys::thread_cpu_ns(thread_id) else { return Captured::Dropped(DropReason::NoThreadState) };
    if walks.repeat(target, cpu_ns, stack).is_none() {
        return Captured::Dropped(walks.request(target));
    }
    thread.waits().into_iter().for_each(ObservedWaits::repeat_last);
    Captured::Walked
}

/// Walks the interrupted thread; the epoch is its `address_epoch`.
///
/// # Safety
/// The contract of `spanprof_signal::self_walk::WalkSelfFn`.
unsafe fn walk_self(handler: &HandlerContext, in_system_call: bool, stack: &mut RawStack<'_>) -> u64 {
    let Some(thread) = js_thread_signal::by_thread_id(handler.thread_id) else { return NO_EPOCH };
    let Some(waits) = thread.waits() else { return NO_EPOCH };
    let epoch = thread.address_epoch.load(Ordering::Relaxed);
    stack.context = context_signal::read(thread);
    // SAFETY: the kernel's context of this signal, in the handler of the thread itself.
    unsafe { capture_signal::walk_interrupted(thread, handler.ucontext, stack) };
    let activity = match is_waiting_for_events(stack.frames()) {
        true => ThreadActivity::Idle,
        false if in_system_call => ThreadActivity::Waiting,
        false => ThreadActivity::Running,
    };
    // SAFETY: in a handler of the thread; the clocks' handler and this one exclude each other.
    unsafe { waits.record(activity, stack.frames(), stack.context) };
    if let (ThreadActivity::Idle, Some(leaf)) = (activity, stack.frames().first().copied()) {
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
fn look_up_waits() {
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

    #[test]
    fn a_walk_from_before_code_moved_is_repeated_and_the_third_one_drops_the_sample() {
        const PENDING: Captured = Captured::Dropped(DropReason::SignalBlocked);
        assert!(begin(true));
        let (thread, thread_id) = (js_thread_signal::claim().unwrap(), sys::thread_id());
        thread.thread_id.store(thread_id, Ordering::Release);
        let handle = js_thread_signal::all().iter().position(|other| std::ptr::eq(other, thread)).unwrap() as u64;
        let mut capture = |moves| {
            let mut frames = [RawFrame::default(); 64];
            let mut stack = RawStack::new(&mut frames);
            thread.address_epoch.fetch_add(moves, Ordering::Relaxed);
            // More than the return from the handler takes: the thread has run.
            let until_ns = sys::current_thread_cpu_ns() + 100_000;
            while sys::current_thread_cpu_ns() < until_ns {}
            // SAFETY: no other thread samples. A signal to the calling thread is delivered before the sending call returns.
            let captured = unsafe { capture_other(handle, thread_id, &mut stack) };
            assert_eq!(captured == Captured::Walked, !stack.is_empty());
            captured
        };
        assert_eq!([0, 0].map(&mut capture), [PENDING, Captured::Walked]);
        let moved = Captured::Dropped(DropReason::MovedDuringWalk);
        assert_eq!([0, 1, 1, 1].map(&mut capture), [PENDING, PENDING, PENDING, moved]);
        assert_eq!([0, 1, 0].map(&mut capture), [PENDING, PENDING, Captured::Walked]);
        thread.release();
        assert_eq!(capture(0), Captured::Dropped(DropReason::NoThreadState));
    }
}
