//! The signal by which the wall sampler requests that a thread walks itself. It is the signal that the clocks use
//! (`signal_claim`). Not here: the states of a request and the sampler's wait (`exchange`); the contents of requests
//! and responses, and the timeout (the runtime). Used by runtimes whose threads walk themselves, once per process.

use crate::{guarded, signal_claim};
use core::sync::atomic::{AtomicPtr, Ordering};

/// The runtime's response to wall requests.
pub trait WallResponder {
    /// Responds, in the handler, to a request that was sent with `value`.
    ///
    /// # Safety
    /// Called only by the handler of this module, on the interrupted thread, with the context from the kernel. That thread
    /// does not block the fault signals, so guarded reads are safe.
    unsafe fn respond(value: usize, ucontext: *mut libc::c_void);
}

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

type RespondFn = unsafe fn(usize, *mut libc::c_void);

/// The runtime's [`WallResponder::respond`]; null before [`install`].
static RESPOND: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the responder and the handler for the clocks' signal, once for the life of the process. False when the kernel
/// refuses.
pub fn install<R: WallResponder>(fallback: libc::c_int) -> bool {
    RESPOND.store(R::respond as *mut (), Ordering::Release);
    signal_claim::claim(fallback).is_some()
}

/// Sends a request to a thread of this process, which responds before it continues. False when there is no such thread.
/// A signal already pending for the thread absorbs the request: the sampler sends a request again while that request is
/// pending.
pub fn send(thread_id: u32, value: usize) -> bool {
    let signal = signal_claim::in_use();
    // SAFETY: an all-zero siginfo is a valid value; the kernel copies the 128 bytes.
    unsafe {
        let mut info: QueuedInfo = core::mem::zeroed();
        (info.signal, info.errno, info.code) = (signal, SIGINFO_MARK, libc::SI_QUEUE);
        (info.process, info.user) = (libc::getpid(), libc::getuid());
        info.value = value;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, info.process, thread_id, signal, &raw const info) == 0
    }
}

/// Responds to a request, in the handler.
///
/// # Safety
/// `ucontext` is the kernel's argument to the running handler, on the interrupted thread.
pub(crate) unsafe fn respond(value: usize, ucontext: *mut libc::c_void) {
    let respond = RESPOND.load(Ordering::Acquire);
    // SAFETY: `ucontext` is the kernel's, by the contract of this function.
    if respond.is_null() || unsafe { guarded::blocks_faults(ucontext) } {
        return;
    }
    // SAFETY: `install` stores only functions of this type.
    let respond = unsafe { core::mem::transmute::<*mut (), RespondFn>(respond) };
    // SAFETY: the caller's contract; the thread does not block the fault signals, checked above.
    unsafe { respond(value, ucontext) };
}

#[cfg(all(test, not(loom), not(miri)))] // Signals of the system.
mod tests {
    use super::*;
    use crate::forward::HandlerChain;
    use core::sync::atomic::{AtomicU32, AtomicUsize};
    use std::sync::LazyLock;

    /// The request value of these tests: its address is sent.
    #[derive(Default)]
    struct ReceivedRequest {
        thread_id: AtomicU32,
        signal_mask: AtomicUsize,
    }

    struct RecordingResponder;

    static WITHOUT_VALUE: AtomicU32 = AtomicU32::new(0);

    impl WallResponder for RecordingResponder {
        unsafe fn respond(value: usize, ucontext: *mut libc::c_void) {
            // SAFETY: every request of these tests carries the address of a `ReceivedRequest` that outlives it.
            let Some(received) = (unsafe { (value as *const ReceivedRequest).as_ref() }) else {
                WITHOUT_VALUE.fetch_add(1, Ordering::Relaxed);
                return;
            };
            assert!(!ucontext.is_null());
            // SAFETY: errno of this thread.
            unsafe { *libc::__errno_location() = libc::EBADF };
            let mut mask = 0usize;
            // SAFETY: the kernel writes eight bytes to a local.
            unsafe {
                let none = core::ptr::null::<usize>();
                libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, &raw mut mask, 8usize);
            }
            received.signal_mask.store(mask, Ordering::Relaxed);
            received.thread_id.store(own_id(), Ordering::Release);
        }
    }

    static INSTALLED: LazyLock<bool> = LazyLock::new(|| {
        install::<RecordingResponder>(libc::SIGSTKFLT) && install::<RecordingResponder>(libc::SIGSTKFLT)
    });

    fn own_id() -> u32 {
        // SAFETY: no arguments, no failure.
        unsafe { libc::syscall(libc::SYS_gettid) as u32 }
    }

    fn is_masked(received: &ReceivedRequest, signal: libc::c_int) -> bool {
        received.signal_mask.load(Ordering::Relaxed) >> (signal - 1) & 1 != 0
    }

    #[test]
    fn the_requested_thread_responds_with_clock_signals_blocked_and_its_errno_preserved() {
        assert!(*INSTALLED);
        let received = ReceivedRequest::default();
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = libc::ENOENT };
        // A signal to the calling thread is delivered before the sending call returns.
        assert!(send(own_id(), &raw const received as usize));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::ENOENT);
        assert_eq!(received.thread_id.load(Ordering::Acquire), own_id());
        assert!(is_masked(&received, signal_claim::in_use()) && is_masked(&received, libc::SIGTRAP), "clock signals");
        assert!(!is_masked(&received, libc::SIGSEGV), "guarded reads");
    }

    #[test]
    fn a_thread_that_blocks_fault_signals_does_not_respond() {
        assert!(*INSTALLED);
        let received = ReceivedRequest::default();
        // SAFETY: an all-zero set is a valid value; the calls work on locals and on this thread's own mask.
        unsafe {
            let [mut faults, mut before]: [libc::sigset_t; 2] = core::mem::zeroed();
            libc::sigaddset(&mut faults, libc::SIGSEGV);
            libc::pthread_sigmask(libc::SIG_BLOCK, &faults, &mut before);
            assert!(send(own_id(), &raw const received as usize));
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        }
        assert_eq!(received.thread_id.load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_request_does_not_interrupt_our_handlers_except_those_with_sa_nodefer() {
        extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        assert!(*INSTALLED);
        static BEFORE: [HandlerChain; 2] = [const { HandlerChain::new() }; 2];
        let admits = [0, libc::SA_NODEFER].map(|defers| {
            let (before, number) = (&BEFORE[usize::from(defers != 0)], libc::SIGRTMIN() + 12 + i32::from(defers != 0));
            assert!(before.install(number, handler as *const () as usize, libc::SA_SIGINFO | defers));
            let action = crate::forward::current_action(number).unwrap();
            // SAFETY: reads a local.
            unsafe { libc::sigismember(&action.sa_mask, signal_claim::in_use()) == 0 }
        });
        assert_eq!(admits, [false, true]);
    }

    #[test]
    fn a_request_to_a_thread_that_does_not_exist_fails() {
        assert!(*INSTALLED);
        assert!(!send(u32::MAX >> 1, 0));
    }

    #[test]
    fn the_signal_without_a_request_is_swallowed() {
        assert!(*INSTALLED);
        // SAFETY: sends this thread a signal whose handler is installed.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), own_id(), signal_claim::in_use()) };
        assert_eq!(WITHOUT_VALUE.load(Ordering::Relaxed), 0);
    }
}
