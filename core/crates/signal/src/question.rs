//! The request by which one thread asks another to walk itself, sent with the signal that carries the clocks (`carrier`).
//! Not here: what is asked, how the answer is waited for (`exchange`), and how long the asker is patient; those are the
//! runtime's. Called by runtimes whose threads walk themselves, once per process.

use crate::{carrier, guarded};
use core::sync::atomic::{AtomicPtr, Ordering};

/// What a thread does that is asked.
pub trait Answer {
    /// Answers a question that was sent with `value`.
    ///
    /// # Safety
    /// Called by the handler of this module alone, on the thread it interrupted, with the context the kernel gave it. That
    /// thread does not block the fault signals: guarded reads are safe.
    unsafe fn answer(value: usize, ucontext: *mut libc::c_void);
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

/// Stands in the error field of each question's siginfo, which is zero in signals that others queue.
pub(crate) const MARK: i32 = i32::from_ne_bytes(*b"span");

type AnswerFn = unsafe fn(usize, *mut libc::c_void);

/// The runtime's [`Answer::answer`]; null before [`install`].
static ANSWER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Installs the handler that answers, once for the life of the process, for the signal that carries the clocks. False when
/// the kernel refuses.
pub fn install<A: Answer>(fallback: libc::c_int) -> bool {
    ANSWER.store(A::answer as *mut (), Ordering::Release);
    carrier::claim(fallback).is_some()
}

/// Asks a thread of this process; it answers before it does anything else. False when there is no such thread. A signal
/// that already waits for the thread absorbs the question: a question that stays open is sent again.
pub fn send(thread_id: u32, value: usize) -> bool {
    let signal = carrier::in_use();
    // SAFETY: an all-zero siginfo is a valid value, filled in as for a queued signal; the kernel copies it.
    unsafe {
        let mut info: QueuedInfo = core::mem::zeroed();
        (info.signal, info.errno, info.code) = (signal, MARK, libc::SI_QUEUE);
        (info.process, info.user) = (libc::getpid(), libc::getuid());
        info.value = value;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, info.process, thread_id, signal, &raw const info) == 0
    }
}

/// Answers a question in the handler.
///
/// # Safety
/// `ucontext` is the one that the kernel gave to the running handler, on the thread it interrupted.
pub(crate) unsafe fn answer(value: usize, ucontext: *mut libc::c_void) {
    let answer = ANSWER.load(Ordering::Acquire);
    // SAFETY: the kernel's context.
    if answer.is_null() || unsafe { guarded::blocks_faults(ucontext) } {
        return;
    }
    // SAFETY: only functions of this type are stored there.
    let answer = unsafe { core::mem::transmute::<*mut (), AnswerFn>(answer) };
    // SAFETY: the caller's promise, and the thread lets faults through.
    unsafe { answer(value, ucontext) };
}

#[cfg(all(test, not(loom), not(miri)))] // Signals of the system.
mod tests {
    use super::*;
    use crate::forward::Predecessors;
    use core::sync::atomic::{AtomicU32, AtomicUsize};
    use std::sync::LazyLock;

    /// Where each question of these tests goes: its value is the address of one.
    #[derive(Default)]
    struct Heard {
        by: AtomicU32,
        masked: AtomicUsize,
    }

    struct Hears;

    static WITHOUT_VALUE: AtomicU32 = AtomicU32::new(0);

    impl Answer for Hears {
        unsafe fn answer(value: usize, ucontext: *mut libc::c_void) {
            // SAFETY: every question of these tests is sent with the address of a `Heard` that outlives it.
            let Some(heard) = (unsafe { (value as *const Heard).as_ref() }) else {
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
            heard.masked.store(mask, Ordering::Relaxed);
            heard.by.store(own_id(), Ordering::Release);
        }
    }

    static INSTALLED: LazyLock<bool> =
        LazyLock::new(|| install::<Hears>(libc::SIGSTKFLT) && install::<Hears>(libc::SIGSTKFLT));

    fn own_id() -> u32 {
        // SAFETY: asks the kernel for a number.
        unsafe { libc::syscall(libc::SYS_gettid) as u32 }
    }

    fn is_masked(heard: &Heard, signal: libc::c_int) -> bool {
        heard.masked.load(Ordering::Relaxed) >> (signal - 1) & 1 != 0
    }

    #[test]
    fn the_thread_that_is_asked_answers_with_its_clocks_waiting_and_keeps_its_errno() {
        assert!(*INSTALLED);
        let heard = Heard::default();
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = libc::ENOENT };
        // A signal to oneself is delivered before the call that sent it returns.
        assert!(send(own_id(), &raw const heard as usize));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::ENOENT);
        assert_eq!(heard.by.load(Ordering::Acquire), own_id());
        assert!(is_masked(&heard, carrier::in_use()) && is_masked(&heard, libc::SIGTRAP), "the clocks'");
        assert!(!is_masked(&heard, libc::SIGSEGV), "guarded reads");
    }

    #[test]
    fn a_thread_that_a_guarded_read_could_kill_does_not_answer() {
        assert!(*INSTALLED);
        let heard = Heard::default();
        // SAFETY: an all-zero set is a valid value; the calls work on locals and on this thread's own mask.
        unsafe {
            let [mut faults, mut before]: [libc::sigset_t; 2] = core::mem::zeroed();
            libc::sigaddset(&mut faults, libc::SIGSEGV);
            libc::pthread_sigmask(libc::SIG_BLOCK, &faults, &mut before);
            assert!(send(own_id(), &raw const heard as usize));
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        }
        assert_eq!(heard.by.load(Ordering::Acquire), 0);
    }

    #[test]
    fn a_handler_of_ours_is_not_interrupted_by_a_question_unless_it_admits_itself() {
        extern "C" fn handler(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
        assert!(*INSTALLED);
        static BEFORE: [Predecessors; 2] = [const { Predecessors::new() }; 2];
        let admits = [0, libc::SA_NODEFER].map(|defers| {
            let (before, number) = (&BEFORE[usize::from(defers != 0)], libc::SIGRTMIN() + 12 + i32::from(defers != 0));
            assert!(before.install(number, handler as *const () as usize, libc::SA_SIGINFO | defers));
            let action = crate::forward::current_action(number).unwrap();
            // SAFETY: reads a local.
            unsafe { libc::sigismember(&action.sa_mask, carrier::in_use()) == 0 }
        });
        assert_eq!(admits, [false, true]);
    }

    #[test]
    fn a_thread_that_does_not_exist_is_not_asked() {
        assert!(*INSTALLED);
        assert!(!send(u32::MAX >> 1, 0));
    }

    #[test]
    fn the_signal_without_a_question_is_swallowed() {
        assert!(*INSTALLED);
        // SAFETY: sends this thread a signal whose handler stands.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), own_id(), carrier::in_use()) };
        assert_eq!(WITHOUT_VALUE.load(Ordering::Relaxed), 0);
    }
}
