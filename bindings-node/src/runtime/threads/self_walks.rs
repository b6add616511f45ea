//! Self-walks for the wall sampler (`spanprof_profiler::binding::SelfWalks`): requests a walk of a JavaScript thread by itself. A thread
//! whose CPU clock has not advanced since its last walk gets no signal, so that an idle process stays idle. Not here: the walk in
//! the handler (`capture::self_walk`).

use std::sync::atomic::Ordering;

use spanprof_profiler::binding::{SelfWalks, WalkResponse, WalkReview, WalkTarget};
use spanprof_signal::{Captured, DropReason, RawStack};

use super::signals::FALLBACK_SIGNAL;
use crate::runtime::capture::self_walk;
use crate::runtime::walk::js_thread;
use crate::runtime::walk::turn_stacks::ObservedWaits;

/// Maximum number of walks before the sample is dropped because code moved after each.
const MAX_WALKS: u32 = 3;

/// A wall sampler starts. Installs the handler if signals are allowed; false without them, or when the signal is in use.
pub fn begin(may_signal: bool) -> bool {
    self_walk::look_up_waits();
    SelfWalks::of_process().begin(may_signal, self_walk::walk_self, FALLBACK_SIGNAL)
}

/// Whether every thread was waiting for events during its last walk. Otherwise only further ticks find waits inside a turn of
/// an event loop.
pub fn all_are_idle() -> bool {
    let mut threads = js_thread::all().iter().filter(|thread| thread.thread_id.load(Ordering::Acquire) != 0);
    threads.all(|thread| thread.waits().is_none_or(ObservedWaits::is_idle))
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`]. `SignalBlocked` until the thread has responded.
///
/// # Safety
/// Outside handlers; the lock of `SelfWalks` excludes the other callers, which are the wall sampler and `block_watch`.
pub unsafe fn capture_other(handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let thread = usize::try_from(handle).ok().and_then(|index| js_thread::all().get(index));
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
    let Some(cpu_ns) = spanprof_os::thread_cpu_ns(thread_id) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    if walks.repeat(target, cpu_ns, stack).is_none() {
        return Captured::Dropped(walks.request(target));
    }
    thread.waits().into_iter().for_each(ObservedWaits::repeat_last);
    Captured::Walked
}

#[cfg(test)]
mod tests {
    use super::super::table_entry;
    use super::*;
    use spanprof_signal::RawFrame;

    const PENDING: Captured = Captured::Dropped(DropReason::SignalBlocked);

    /// Captures this thread after its code moved so often each time.
    fn captures_after<const COUNT: usize>(moves: [u64; COUNT]) -> [Captured; COUNT] {
        assert!(begin(true));
        // As threads of Node.js: the signal stack of Rust's threads is too small for a walk by V8.
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: no handler runs on the stack, which this thread no longer uses.
        assert_eq!(unsafe { libc::sigaltstack(&none, std::ptr::null_mut()) }, 0);
        let (thread, thread_id) = (table_entry::claim().unwrap(), spanprof_os::thread_id());
        thread.thread_id.store(thread_id, Ordering::Release);
        let handle = js_thread::all().iter().position(|other| std::ptr::eq(other, thread)).unwrap() as u64;
        let mut capture = |moves| {
            let mut frames = [RawFrame::default(); 64];
            let mut stack = RawStack::new(&mut frames);
            thread.address_epoch.fetch_add(moves, Ordering::Relaxed);
            // More than the return from the handler takes: the thread has run.
            let until_ns = spanprof_os::current_thread_cpu_ns() + 100_000;
            while spanprof_os::current_thread_cpu_ns() < until_ns {}
            // SAFETY: no other thread samples. A signal to the calling thread is delivered before the sending call returns.
            let captured = unsafe { capture_other(handle, thread_id, &mut stack) };
            assert_eq!(captured == Captured::Walked, !stack.is_empty());
            captured
        };
        let captured = moves.map(&mut capture);
        thread.release();
        assert_eq!(capture(0), Captured::Dropped(DropReason::NoThreadState));
        captured
    }

    #[test]
    fn a_walk_from_before_code_moved_is_repeated_and_the_third_one_drops_the_sample() {
        let moved = Captured::Dropped(DropReason::MovedDuringWalk);
        let moves = [0, 0, 0, 1, 1, 1, 0, 1, 0];
        let expected =
            [PENDING, Captured::Walked, PENDING, PENDING, PENDING, moved, PENDING, PENDING, Captured::Walked];
        // On a busy machine the answer whether a signal ends a wait may be too old, and no signal is sent.
        let captured: Vec<_> =
            (0..20).map(|_| captures_after(moves)).take_while(|captured| *captured != expected).collect();
        assert!(captured.len() < 20, "{captured:?}");
    }
}
