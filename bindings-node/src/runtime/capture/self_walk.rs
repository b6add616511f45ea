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
    // SAFETY: the kernel's context of this signal, or null.
    let context = unsafe { handler.ucontext.cast::<libc::ucontext_t>().as_ref() };
    let sp = context.map_or(0, |context| super::registers(context).sp);
    let activity = match is_waiting_for_events(stack.frames(), sp) {
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
const WAIT_BYTES: u64 = 192;

/// Words above the stack pointer in which the function with musl's system calls, which has no unwind information, keeps the return address
/// into its caller: at most seven (`src/thread/pthread_cancel.c` and `src/thread/*/syscall_cp.s`, musl 1.2.5).
const SYSTEM_CALL_WORDS: usize = 16;

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
fn is_waiting_for_events(frames: &[RawFrame], sp: usize) -> bool {
    let is_wait = |pc: u64| {
        WAITS
            .iter()
            .map(|wait| wait.load(Ordering::Relaxed))
            .any(|start| start != 0 && pc.wrapping_sub(start) < WAIT_BYTES)
    };
    let is_called =
        || (0..SYSTEM_CALL_WORDS).filter_map(|word| guarded::read_u64(sp.wrapping_add(word * 8))).any(is_wait);
    let [leaf, callers @ ..] = frames else { return false };
    let has_wait = callers.iter().all(|caller| caller.as_reason().is_some()) && is_called();
    (has_wait || leaf.native_pc().is_some_and(is_wait)) && !frames.iter().any(|frame| synthetic_frame::is_code(*frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_run_by_javascript_is_not_idle() {
        look_up_waits();
        let wait = RawFrame::native(libc::epoll_wait as *const () as u64 + 20);
        let (native, code) = (RawFrame::native(0x5000), RawFrame { code: 0x7000, at: 4 });
        let stack = [0u64; SYSTEM_CALL_WORDS];
        let sp = stack.as_ptr() as usize;
        assert!(is_waiting_for_events(&[wait, native], sp));
        for other in [&[wait, native, code][..], &[native, wait], &[]] {
            assert!(!is_waiting_for_events(other, sp));
        }
    }

    #[test]
    fn a_wait_in_a_function_with_unknown_callers_is_idle_by_its_return_address() {
        look_up_waits();
        let (native, unknown) = (RawFrame::native(0x5000), RawFrame::reason(DropReason::UnknownCallers));
        let code = RawFrame { code: 0x7000, at: 4 };
        let other = [0u64; SYSTEM_CALL_WORDS];
        let in_wait =
            std::array::from_fn(|word| if word == 6 { libc::epoll_pwait as *const () as u64 + 54 } else { 0 });
        let [other, in_wait] = std::hint::black_box([&other, &in_wait]).map(|stack| stack.as_ptr() as usize);
        assert!(is_waiting_for_events(&[native, unknown], in_wait) && is_waiting_for_events(&[native], in_wait));
        assert!(!is_waiting_for_events(&[native, unknown], other));
        for callers in [[unknown, code], [native, native]] {
            assert!(!is_waiting_for_events(&[native, callers[0], callers[1]], in_wait));
        }
    }
}
