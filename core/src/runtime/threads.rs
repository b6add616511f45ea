//! The threads of a native program for the wall sampler. A thread that waits in a system call is walked from outside
//! (`super::walk::walk_waiting_thread`), without a signal, which could end the call early. A thread that runs copies its stack in a
//! signal handler (`SelfWalks`), and the wall sampler walks the copy.

use std::sync::atomic::{AtomicBool, Ordering};

use spanprof_profiler::binding::{SelfWalks, WalkResponse, WalkReview, WalkTarget};
use spanprof_signal::{Captured, Context, DropReason, RawFrame, RawStack};

/// Walks of a thread that waits for a moment each time, before it is requested to copy its stack.
const MAX_WALKS: usize = 3;

/// Whether the configuration allows signals.
static MAY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// Sets whether threads may be requested to copy their stacks.
pub fn allow_signals(is_allowed: bool) {
    MAY_SIGNAL.store(is_allowed, Ordering::Relaxed);
}

/// A wall sampler starts. Installs the handler; false without signals, or when another handler owns the signal.
pub fn begin(fallback_signal: libc::c_int) -> bool {
    spanprof_os::install_fault_guard();
    super::walk::load_unwind_tables();
    SelfWalks::of_process().begin(MAY_SIGNAL.load(Ordering::Relaxed), super::walk::copy_stack, fallback_signal)
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`]. `SignalBlocked` until the thread has responded.
pub fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let target = WalkTarget { thread_id, identity: handle, epoch: 0 };
    let mut walks = SelfWalks::of_process();
    let Some(mut cpu_ns) = spanprof_os::thread_cpu_ns(thread_id) else {
        take_copy(&mut walks, thread_id, None, stack);
        stack.clear();
        return Captured::Dropped(DropReason::NoThreadState);
    };
    if let Some(captured) = take_copy(&mut walks, thread_id, Some(handle), stack) {
        return captured;
    }
    if walks.repeat(target, cpu_ns, stack).is_some() {
        return Captured::Walked;
    }
    for _ in 0..MAX_WALKS {
        let Some(wait) = spanprof_os::system_call_wait(thread_id) else { break };
        let is_complete = super::walk::walk_waiting_thread(&wait, stack);
        match spanprof_os::thread_context::context_of(thread_id) {
            0 => {}
            id => stack.context = Context::Id(id),
        }
        let cpu_before_ns = std::mem::replace(&mut cpu_ns, spanprof_os::thread_cpu_ns(thread_id).unwrap_or(0));
        if cpu_ns == cpu_before_ns {
            if !is_complete {
                stack.push(RawFrame::reason(DropReason::InvalidFrame));
            }
            walks.store(target, cpu_ns, stack);
            return Captured::Walked;
        }
        stack.clear();
        stack.context = Context::None;
    }
    Captured::Dropped(walks.request(target))
}

/// Walks the stack that a requested thread has copied. `None` if no request is pending; `SignalBlocked` until it responds.
fn take_copy(
    walks: &mut SelfWalks,
    thread_id: u32,
    identity: Option<u64>,
    stack: &mut RawStack<'_>,
) -> Option<Captured> {
    let mut is_complete = None;
    // The response is a copy, not a walk that could be accepted as it is.
    let review = |response: &WalkResponse<'_>| {
        is_complete = Some(super::walk::walk_copied_stack(response.walk.frames(), stack));
        stack.context = response.walk.context;
        WalkReview::Drop(DropReason::InvalidFrame)
    };
    let captured = walks.take_response(thread_id, identity, &mut RawStack::new(&mut []), review)?;
    let Some(is_complete) = is_complete else { return Some(captured) };
    if !is_complete {
        stack.push(RawFrame::reason(DropReason::InvalidFrame));
    }
    Some(Captured::Walked)
}
