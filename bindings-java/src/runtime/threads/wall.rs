//! Wall-clock sampling. A thread that waits in native code or in the VM has a frame anchor: the wall sampler's thread walks
//! it from there. A thread that runs Java code walks itself in a signal handler (`spanprof_profiler::binding::SelfWalks`). At the
//! reduced wall rate, a waiting thread is walked instead of reading its clock: the walk takes longer but needs no system
//! call.

use std::sync::atomic::{AtomicBool, Ordering};

use spanprof_profiler::binding::{LastStack, SelfWalks, WalkResponse, WalkReview, WalkTarget};
use spanprof_signal::{Captured, Context, DropReason, ProcessMemory, RawStack};

use super::signals::FALLBACK_SIGNAL;
use crate::runtime::capture::thread_rows::{self, ThreadRow};
use crate::runtime::capture::{self, call_trace};
use crate::runtime::vm::layout;
use crate::runtime::vm::layout::VmLayout;
use crate::runtime::walk::walker;

static RATE_IS_REDUCED: AtomicBool = AtomicBool::new(false);

/// A wall sampler starts. Installs the handler if signals are allowed; false if another handler owns the signal.
pub fn begin(may_signal: bool) -> bool {
    SelfWalks::of_process().begin(may_signal, capture::walk_self, FALLBACK_SIGNAL)
}

/// See [`spanprof_aggregate::runtime::Runtime::set_idle`].
pub fn set_idle(is_idle: bool) {
    RATE_IS_REDUCED.store(is_idle, Ordering::Relaxed);
}

/// Walks another thread; see [`spanprof_signal::CaptureOtherFn`].
///
/// # Safety
/// On the wall sampler's thread only.
pub unsafe fn capture_other(_handle: u64, thread_id: u32, stack: &mut RawStack<'_>) -> Captured {
    let mut walks = SelfWalks::of_process();
    let thread = thread_rows::of(thread_id).map(|row| (row, row.java_thread()));
    let thread = thread.filter(|(_, java_thread)| *java_thread != 0);
    let layout = layout::published();
    let identity = thread.map(|(_, java_thread)| java_thread as u64);
    let review = |response: &WalkResponse<'_>| review(layout, response);
    if let Some(captured) = walks.take_response(thread_id, identity, stack, review) {
        return captured;
    }
    let Some((row, java_thread)) = thread else { return Captured::Dropped(DropReason::NoThreadState) };
    let target = WalkTarget { thread_id, identity: java_thread as u64, epoch: 0 };
    let reduced_rate_layout = layout.filter(|_| RATE_IS_REDUCED.load(Ordering::Relaxed));
    let state = reduced_rate_layout.and_then(|layout| walker::state_without_java(ProcessMemory, layout, java_thread));
    if let Some((layout, last)) = reduced_rate_layout.zip(walks.last_stack(target)) {
        if still_waits(layout, last, row, state, stack) {
            return Captured::Walked;
        }
    }
    let Some(cpu_ns) = spanprof_os::thread_cpu_ns(thread_id) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    if let Some(last) = walks.repeat(target, cpu_ns, stack) {
        last.state = state;
        return Captured::Walked;
    }
    if layout.is_some_and(|layout| walker::walk_waiting(ProcessMemory, layout, java_thread, stack)) {
        stack.context = row.scope.context();
        if spanprof_os::thread_cpu_ns(thread_id) == Some(cpu_ns) {
            walker::accept_waiting_walk(stack);
            walks.store(target, cpu_ns, stack);
            return Captured::Walked;
        }
    }
    // The thread runs, or ran during the walk: the stack may be torn.
    stack.clear();
    stack.context = Context::None;
    Captured::Dropped(walks.request(target))
}

/// `AsyncGetCallTrace` fails during a GC. If the thread waits, it is walked again until the GC has ended. Then the time
/// since its first response belongs to the new stack, unless the thread has run in between.
fn review(layout: Option<&VmLayout>, WalkResponse { walk, has_run, .. }: &WalkResponse<'_>) -> WalkReview {
    let is_refused = || layout.is_none() && call_trace::is_refusal(walk.frames());
    match has_run {
        true => WalkReview::Drop(DropReason::InvalidFrame),
        false if walk.in_system_call && is_refused() => WalkReview::Repeat,
        false => WalkReview::Accept,
    }
}

/// Writes a thread's last stack if the thread still waits there, without a system call. Either a walk finds the same
/// Java frames, which a torn walk would not; or the thread has no Java frames and its state in the VM is unchanged.
fn still_waits(
    layout: &VmLayout,
    last: &LastStack,
    row: &ThreadRow,
    state: Option<i32>,
    stack: &mut RawStack<'_>,
) -> bool {
    let is_same = !last.is_truncated
        && match state {
            Some(_) => state == last.state && last.frames.iter().all(|frame| stack.push(*frame)),
            None => {
                walker::walk_waiting(ProcessMemory, layout, row.java_thread(), stack) && stack.frames() == last.frames
            }
        };
    stack.context = row.scope.context();
    let is_same = is_same && !stack.is_truncated() && stack.context == last.context;
    if !is_same {
        stack.clear();
        stack.context = Context::None;
    }
    is_same
}
