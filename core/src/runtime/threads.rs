//! The threads of a native program for the wall sampler. A thread that waits in a system call is walked from outside
//! (`super::walk::walk_waiting_thread`), without a signal, which could end the call early. A thread that runs walks itself in a
//! signal handler (`SelfWalks`).

use std::sync::atomic::{AtomicBool, Ordering};

use spanprof_profiler::binding::{SelfWalks, WalkReview, WalkTarget};
use spanprof_signal::{Captured, Context, DropReason, RawStack};
use spanprof_unwind::WalkEnd;

/// Walks of a thread that waits for a moment each time, before it is requested to walk itself.
const MAX_WALKS: usize = 3;

/// Whether the configuration allows signals.
static MAY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// Sets whether threads may be requested to walk themselves.
pub fn allow_signals(is_allowed: bool) {
    MAY_SIGNAL.store(is_allowed, Ordering::Relaxed);
}

/// A wall sampler starts. Installs the handler; false without signals, or when another handler owns the signal.
pub fn begin(fallback_signal: libc::c_int) -> bool {
    spanprof_os::install_fault_guard();
    super::walk::build_first_tables();
    SelfWalks::of_process().begin(MAY_SIGNAL.load(Ordering::Relaxed), super::walk::walk_self, fallback_signal)
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`]. `SignalBlocked` until the thread has responded.
pub fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let target = WalkTarget { thread_id, identity: handle, epoch: 0 };
    let mut walks = SelfWalks::of_process();
    let take_response = |walks: &mut SelfWalks, identity, stack: &mut RawStack<'_>| {
        walks.take_response(thread_id, identity, stack, |_| WalkReview::Accept)
    };
    let Some(mut cpu_ns) = spanprof_os::thread_cpu_ns(thread_id) else {
        take_response(&mut walks, None, stack);
        stack.clear();
        return Captured::Dropped(DropReason::NoThreadState);
    };
    if let Some(captured) = take_response(&mut walks, Some(handle), stack) {
        return captured;
    }
    if walks.repeat(target, cpu_ns, stack).is_some() {
        return Captured::Walked;
    }
    for _ in 0..MAX_WALKS {
        let Some(wait) = spanprof_os::system_call_wait(thread_id) else { break };
        let end = super::walk::walk_waiting_thread(&wait, stack);
        match spanprof_os::thread_context::context_of(thread_id) {
            0 => {}
            id => stack.context = Context::Id(id),
        }
        let cpu_before_ns = std::mem::replace(&mut cpu_ns, spanprof_os::thread_cpu_ns(thread_id).unwrap_or(0));
        if cpu_ns == cpu_before_ns {
            // The next walk finds the table.
            if end != WalkEnd::TableMissing {
                walks.store(target, cpu_ns, stack);
            }
            return Captured::Walked;
        }
        stack.clear();
        stack.context = Context::None;
    }
    Captured::Dropped(walks.request(target))
}
