//! Self-walks: the signal by which the wall sampler requests that a thread walks itself, and the handler's response. It
//! is the signal that the clocks use (`signal_claim`); it carries the index of the request. Not here: the states of a
//! request and the sampler's wait (`exchange`); which threads are requested, and when (the wall sampler). Used by runtimes
//! whose threads walk themselves.

use crate::context::Context;
use crate::drop_reason::DropReason;
use crate::ring::sample::RawFrame;
use crate::signals::arm;
use crate::signals::forward::thread_id;
use crate::signals::mapped_stack::MappedStack;
use crate::walk::capture::{HandlerContext, RawStack};
use crate::walk::exchange::WallRequest;
use crate::walk::guarded;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Maximum number of requests of a process.
pub const MAX_REQUESTS: usize = 512;
/// Maximum number of frames of a self-walk.
const MAX_FRAMES: usize = 1024;

/// The response to a wall request: the stack of a thread that walked itself.
pub struct SelfWalk {
    frames: [RawFrame; MAX_FRAMES],
    len: usize,
    /// Whether the root side of the stack was cut.
    pub is_truncated: bool,
    /// The thread's context.
    pub context: Context,
    /// CPU time of the thread before and after the walk, in nanoseconds.
    pub cpu_ns: [u64; 2],
    /// Whether the signal interrupted a system call.
    pub in_system_call: bool,
    /// Returned by the runtime's [`WalkSelfFn`].
    pub epoch: u64,
}

impl SelfWalk {
    /// Without frames.
    #[allow(clippy::new_without_default, reason = "the contents of a request, never a field")]
    pub const fn new() -> Self {
        Self {
            frames: [RawFrame { code: 0, at: 0 }; MAX_FRAMES],
            len: 0,
            is_truncated: false,
            context: Context::None,
            cpu_ns: [0; 2],
            in_system_call: false,
            epoch: 0,
        }
    }

    /// The reason for a walk that did not begin: its only frame.
    pub fn refusal(&self) -> Option<DropReason> {
        self.frames().first().and_then(|frame| frame.as_reason()).filter(|reason| *reason == DropReason::StackTooSmall)
    }

    /// The frames, leaf first.
    pub fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }

    /// Replaces frames, context and epoch by those of `walk`, which returns the epoch.
    pub fn record(&mut self, walk: impl FnOnce(&mut RawStack<'_>) -> u64) {
        let mut stack = RawStack::new(&mut self.frames);
        self.epoch = walk(&mut stack);
        (self.len, self.is_truncated, self.context) = (stack.len(), stack.is_truncated(), stack.context);
    }
}

/// Walks the interrupted thread in the handler. Its arguments are the thread, whether it is in a system call, and the
/// stack to write. It returns the runtime's count of events that invalidate raw frames: the walk is valid until the
/// count changes. It may be called for a thread without state in the runtime.
///
/// # Safety
/// As for `CaptureFn`. The thread does not block the fault signals, so guarded reads are safe.
pub type WalkSelfFn = unsafe fn(&HandlerContext, bool, &mut RawStack<'_>) -> u64;

/// The kernel's siginfo of a queued signal on 64-bit Linux.
#[repr(C)]
struct QueuedInfo {
    signal: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    process: i32,
    user: u32,
    value: usize,
    rest: [usize; 12],
}

const _: () = assert!(size_of::<QueuedInfo>() == 128);

/// Identifies a wall request: stored in `si_errno`, which is zero in signals queued by other senders.
pub(crate) const SIGINFO_MARK: i32 = i32::from_ne_bytes(*b"span");

static REQUESTS: [AtomicPtr<WallRequest<'static, SelfWalk>>; MAX_REQUESTS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_REQUESTS];
static PUBLISHED: AtomicUsize = AtomicUsize::new(0);

/// The runtime's [`WalkSelfFn`]; null before [`set_walk`].
static WALK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the function that responds, once for the life of the process. The caller then claims the clocks' signal.
pub fn set_walk(walk: WalkSelfFn) {
    WALK.store(walk as *mut (), Ordering::Release);
}

/// Publishes a request to the handler, for the life of the process. Returns its index; `None` if [`MAX_REQUESTS`] are
/// published.
pub fn publish(request: &'static WallRequest<'static, SelfWalk>) -> Option<usize> {
    let index = PUBLISHED.fetch_add(1, Ordering::Relaxed);
    REQUESTS.get(index)?.store(core::ptr::from_ref(request).cast_mut(), Ordering::Release);
    Some(index)
}

/// The request that is published with an index.
pub fn published(index: usize) -> Option<&'static WallRequest<'static, SelfWalk>> {
    // SAFETY: `publish` stores only requests of static lifetime.
    REQUESTS.get(index).and_then(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() })
}

/// Sends the request of [`publish`]'s `index` to a thread of this process, with the clocks' signal. The thread responds
/// before it continues. False when there is no such thread. A signal already pending for the thread absorbs the request:
/// the sampler sends a request again while that request is pending.
pub fn send(thread_id: u32, index: usize, signal: libc::c_int) -> bool {
    // SAFETY: an all-zero siginfo is a valid value; the kernel copies the 128 bytes.
    unsafe {
        let mut info: QueuedInfo = core::mem::zeroed();
        (info.signal, info.errno, info.code) = (signal, SIGINFO_MARK, libc::SI_QUEUE);
        (info.process, info.user) = (libc::getpid(), libc::getuid());
        info.value = index;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, info.process, thread_id, signal, &raw const info) == 0
    }
}

/// Responds to a request, in the handler.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, on the interrupted thread.
pub(crate) unsafe fn respond(index: usize, ucontext: *mut libc::c_void) {
    let walk = WALK.load(Ordering::Acquire);
    let Some(request) = published(index).filter(|_| !walk.is_null()) else { return };
    // SAFETY: `set_walk` stores only functions of this type.
    let walk = unsafe { core::mem::transmute::<*mut (), WalkSelfFn>(walk) };
    let thread_id = thread_id();
    // SAFETY: `ucontext` is the kernel's, by the contract of this function.
    let handler = unsafe { HandlerContext::in_handler(ucontext, thread_id, &MappedStack::new()) };
    if matches!(handler, Err(DropReason::FaultsBlocked)) {
        return;
    }
    request.respond(thread_id, |response| {
        let begun_ns = arm::thread_cpu_ns();
        // SAFETY: `ucontext` is the kernel's, by the contract of this function.
        let in_system_call = unsafe { guarded::is_in_system_call(ucontext) };
        response.record(|stack| match &handler {
            // SAFETY: the caller's contract; the thread does not block the fault signals, checked above.
            Ok(handler) => unsafe { walk(handler, in_system_call, stack) },
            Err(reason) => {
                stack.push(RawFrame::reason(*reason));
                0
            }
        });
        response.in_system_call = in_system_call;
        response.cpu_ns = [begun_ns, arm::thread_cpu_ns()];
    });
}

#[cfg(all(test, not(loom), not(miri)))] // Signals of the system.
mod tests {
    use super::*;
    use crate::clock::signal_claim;
    use crate::signals::forward::HandlerChain;
    use crate::walk::exchange::{Requester, Round};
    use std::sync::LazyLock;

    /// The epoch of these tests is the thread's signal mask during the walk.
    fn walk(handler: &HandlerContext, _in_system_call: bool, stack: &mut RawStack<'_>) -> u64 {
        assert!(!handler.ucontext.is_null());
        stack.push(RawFrame::native(u64::from(handler.thread_id)));
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = libc::EBADF };
        let mut mask = 0u64;
        // SAFETY: the kernel writes eight bytes to a local.
        unsafe {
            let none = core::ptr::null::<usize>();
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, &raw mut mask, 8usize);
        }
        mask
    }

    static INSTALLED: LazyLock<bool> = LazyLock::new(|| {
        set_walk(walk);
        [(); 2].iter().all(|_| signal_claim::claim(libc::SIGSTKFLT).is_some())
    });

    /// A request that is pending for the calling thread, and its index.
    fn pending_request() -> (Requester<'static, SelfWalk>, usize) {
        assert!(*INSTALLED);
        let round = Box::leak(Box::new(Round::new()));
        let (mut requester, request) = Box::leak(Box::new(WallRequest::new(round, SelfWalk::new()))).split();
        assert!(requester.issue(thread_id()));
        (requester, publish(request).unwrap())
    }

    #[test]
    fn the_requested_thread_responds_with_clock_signals_blocked_and_its_errno_preserved() {
        let (requester, index) = pending_request();
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = libc::ENOENT };
        // A signal to the calling thread is delivered before the sending call returns.
        assert!(send(thread_id(), index, signal_claim::in_use()));
        // SAFETY: errno of this thread.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::ENOENT);
        let response = requester.response().unwrap();
        assert_eq!(response.frames(), [RawFrame::native(u64::from(thread_id()))]);
        assert!(response.in_system_call && response.cpu_ns[0] <= response.cpu_ns[1]);
        let is_masked = |signal: libc::c_int| response.epoch >> (signal - 1) & 1 != 0;
        assert!(is_masked(signal_claim::in_use()) && is_masked(libc::SIGTRAP), "clock signals");
        assert!(!is_masked(libc::SIGSEGV), "guarded reads");
    }

    #[test]
    fn a_thread_that_blocks_fault_signals_does_not_respond() {
        let (requester, index) = pending_request();
        // SAFETY: an all-zero set is a valid value; the calls work on locals and on this thread's own mask.
        unsafe {
            let [mut faults, mut before]: [libc::sigset_t; 2] = core::mem::zeroed();
            libc::sigaddset(&mut faults, libc::SIGSEGV);
            libc::pthread_sigmask(libc::SIG_BLOCK, &faults, &mut before);
            assert!(send(thread_id(), index, signal_claim::in_use()));
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        }
        assert!(requester.response().is_none());
    }

    #[test]
    fn a_request_does_not_interrupt_our_handlers_except_those_with_sa_nodefer() {
        extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        assert!(*INSTALLED);
        static BEFORE: [HandlerChain; 2] = [const { HandlerChain::new() }; 2];
        let admits = [0, libc::SA_NODEFER].map(|defers| {
            let (before, number) = (&BEFORE[usize::from(defers != 0)], libc::SIGRTMIN() + 12 + i32::from(defers != 0));
            assert!(before.install(number, handler as *const () as usize, libc::SA_SIGINFO | defers));
            let action = crate::signals::forward::current_action(number).unwrap();
            // SAFETY: reads a local.
            unsafe { libc::sigismember(&action.sa_mask, signal_claim::in_use()) == 0 }
        });
        assert_eq!(admits, [false, true]);
    }

    /// Three calls that wait for 100 ms.
    #[cfg(target_arch = "x86_64")]
    const WAITS: [fn() -> libc::c_int; 3] = {
        const WAIT: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        // SAFETY: each call reads a constant and writes nothing; no file is polled.
        unsafe {
            [
                || libc::nanosleep(&WAIT, core::ptr::null_mut()),
                || libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &WAIT, core::ptr::null_mut()),
                || libc::poll(core::ptr::null_mut(), 0, 100),
            ]
        }
    };

    /// Calls `interrupt` with the id of a thread that is in the call `wait`. Returns the result of the call, and whether it took
    /// its time.
    #[cfg(target_arch = "x86_64")]
    fn interrupted(wait: fn() -> libc::c_int, interrupt: impl FnOnce(u32)) -> (libc::c_int, bool) {
        let waiting = core::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // As threads of a C program: the signal stack of Rust's threads has no space for a resumed wait.
                let none = libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
                // SAFETY: no handler runs on the stack, which this thread no longer uses.
                assert_eq!(unsafe { libc::sigaltstack(&none, core::ptr::null_mut()) }, 0);
                waiting.store(thread_id(), Ordering::Release);
                let begun = std::time::Instant::now();
                (wait(), begun.elapsed().as_millis() >= 100)
            });
            let is_in_call = |id: u32| {
                let call = std::fs::read_to_string(std::format!("/proc/self/task/{id}/syscall")).unwrap_or_default();
                call.split(' ').next().is_some_and(|number| number.parse::<u32>().is_ok())
            };
            let id = || waiting.load(Ordering::Acquire);
            while id() == 0 || !is_in_call(id()) {
                std::thread::yield_now();
            }
            interrupt(id());
            thread.join().unwrap()
        })
    }

    #[test]
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    fn a_wait_that_a_request_interrupts_takes_its_time() {
        crate::clock::restart::set_may_resume(true);
        let (_requester, index) = pending_request();
        for wait in WAITS {
            assert_eq!(interrupted(wait, |id| assert!(send(id, index, signal_claim::in_use()))), (0, true));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_wait_that_a_host_handler_interrupted_before_a_request_ends() {
        static INDEX: AtomicUsize = AtomicUsize::new(0);
        extern "C" fn request(_: libc::c_int) {
            // All signals are blocked: the request is delivered when this handler returns into the interrupted call.
            assert!(send(thread_id(), INDEX.load(Ordering::Relaxed), signal_claim::in_use()));
        }
        crate::clock::restart::set_may_resume(true);
        let (_requester, index) = pending_request();
        INDEX.store(index, Ordering::Relaxed);
        // SAFETY: an all-zero action is a valid value; the signal is used by this test alone.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = request as *const () as usize;
            libc::sigfillset(&mut action.sa_mask);
            libc::sigaction(libc::SIGWINCH, &action, core::ptr::null_mut());
        }
        for wait in WAITS {
            // SAFETY: the signal goes to a thread of this process, and has a handler.
            let outcome = interrupted(wait, |id| unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), id, libc::SIGWINCH);
            });
            // `clock_nanosleep` returns the error itself.
            assert!([-1, libc::EINTR].contains(&outcome.0), "{outcome:?}");
        }
    }

    #[test]
    fn a_request_to_a_thread_that_does_not_exist_fails() {
        assert!(*INSTALLED);
        assert!(!send(u32::MAX >> 1, 0, signal_claim::in_use()));
    }

    #[test]
    fn an_unknown_request_and_a_signal_without_one_are_swallowed() {
        let (requester, _) = pending_request();
        assert!([MAX_REQUESTS - 1, usize::MAX].iter().all(|index| send(thread_id(), *index, signal_claim::in_use())));
        // SAFETY: the signal goes to the calling thread, and its handler is installed: `*INSTALLED` in `pending_request`.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread_id(), signal_claim::in_use()) };
        assert!(requester.response().is_none());
    }
}
