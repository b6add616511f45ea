//! Walks on threads with little stack, driven as in `clock_handler`.

use crate::clock_handler::{samples, HandlerFixture, FRAME};
use crate::{host_installs, one_at_a_time};
use spanprof_signal::{counters, Captured, DropReason, HandlerContext, RawFrame, RawStack};
use std::sync::atomic::{AtomicU64, Ordering};

/// Asks for 13 KiB of stack, and takes 12.
unsafe fn capture_with_a_large_frame(context: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    #[inline(never)]
    fn walk(stack: &mut RawStack<'_>) -> Captured {
        let frame = std::hint::black_box([0u8; 12 << 10]);
        stack.push(RawFrame { at: u64::from(frame[0]), ..FRAME });
        Captured::Walked
    }
    match context.has_stack(13 << 10) {
        true => walk(stack),
        false => Captured::Dropped(DropReason::StackTooSmall),
    }
}

/// Ticks twice on a new thread without a signal stack, when less than `left` bytes of its own stack are left.
fn tick_with_stack_left(mut left: usize) {
    #[inline(never)]
    fn descend(lowest: usize, left: usize, fixture: &HandlerFixture) {
        let used = std::hint::black_box([0u8; 512]);
        match (&raw const used as usize).saturating_sub(lowest) > left {
            true => descend(lowest, left, fixture),
            false => (0..2).for_each(|_| fixture.tick()),
        }
        std::hint::black_box(&used);
    }
    extern "C" fn run(left: *mut libc::c_void) -> *mut libc::c_void {
        let fixture = HandlerFixture::new(capture_with_a_large_frame);
        // SAFETY: queries about this thread into zeroed attributes; the caller keeps `left` until this thread has ended.
        let (lowest, left) = unsafe {
            let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &mut attributes), 0);
            let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
            libc::pthread_attr_getstack(&attributes, &mut lowest, &mut bytes);
            libc::pthread_attr_destroy(&mut attributes);
            (lowest as usize, *left.cast::<usize>())
        };
        descend(lowest, left, &fixture);
        std::ptr::null_mut()
    }
    // SAFETY: the thread ends before `left` does.
    unsafe {
        let mut thread: libc::pthread_t = std::mem::zeroed();
        assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), run, (&raw mut left).cast()), 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
    }
}

#[test]
fn a_thread_with_too_little_stack_left_is_not_walked_and_keeps_its_weight() {
    let _turn = one_at_a_time();
    let before = counters::by_reason(DropReason::StackTooSmall);
    for (kib, reason) in [(64, None), (16, Some(DropReason::StackTooSmall)), (7, Some(DropReason::StackTooSmall))] {
        tick_with_stack_left(kib << 10);
        let samples = samples();
        let reasons: Vec<_> = samples.iter().map(|sample| sample.0.as_reason()).collect();
        assert_eq!(reasons, [reason; 2], "{kib} KiB");
        assert!(samples.iter().all(|sample| sample.3[0] > 0), "{samples:?}");
    }
    assert_eq!(counters::by_reason(DropReason::StackTooSmall), before + 4);
}

/// Runs `body` on a signal stack of this size, below which nothing is mapped.
pub fn with_signal_stack(bytes: usize, body: impl FnOnce()) {
    const MAPPED: usize = 1 << 17;
    // SAFETY: maps new memory; no handler runs while the stacks are set; the memory lives until the previous one is restored.
    unsafe {
        let (all, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), MAPPED, all, flags, -1, 0);
        assert_eq!(libc::mprotect(memory, MAPPED / 2, libc::PROT_NONE), 0);
        let lowest = memory.byte_add(MAPPED / 2);
        let (stack, mut previous) = (libc::stack_t { ss_sp: lowest, ss_flags: 0, ss_size: bytes }, std::mem::zeroed());
        assert_eq!(libc::sigaltstack(&stack, &mut previous), 0);
        body();
        assert_eq!(libc::sigaltstack(&previous, std::ptr::null_mut()), 0);
        libc::munmap(memory, MAPPED);
    }
}

/// Size of what the kernel writes to the stack before a handler runs. `AT_MINSIGSTKSZ` counts registers that few threads use (AMX).
fn kernel_frame_bytes() -> usize {
    static END: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
        // SAFETY: the kernel's context.
        let stack = unsafe { (*ucontext.cast::<libc::ucontext_t>()).uc_stack };
        let local = 0u8;
        END.store((stack.ss_sp as usize + stack.ss_size - &raw const local as usize) as u64, Ordering::Relaxed);
    }
    host_installs(libc::SIGUSR2, handler as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
    // SAFETY: the handler is installed.
    with_signal_stack(1 << 15, || unsafe { assert_eq!(libc::raise(libc::SIGUSR2), 0) });
    END.load(Ordering::Relaxed) as usize
}

#[test]
fn a_walk_does_not_overrun_a_signal_stack_of_any_size() {
    let _turn = one_at_a_time();
    let fixture = HandlerFixture::new(capture_with_a_large_frame);
    let frame_bytes = kernel_frame_bytes();
    for bytes in (frame_bytes + (3 << 9)..frame_bytes + (32 << 10)).step_by(512) {
        with_signal_stack(bytes, || fixture.tick());
    }
    let reasons: Vec<_> = samples().iter().map(|sample| sample.0.as_reason()).collect();
    let walked = reasons.iter().position(Option::is_none).expect("a walk on the largest one");
    assert!(walked > 10 * 2, "{walked} refused");
    assert!(reasons[..walked].iter().all(|reason| *reason == Some(DropReason::StackTooSmall)), "{reasons:?}");
    assert!(reasons[walked..].iter().all(Option::is_none), "{reasons:?}");
}
