//! The signal by which one thread asks another to walk itself. Not here: what is asked, how the answer is waited for
//! (`exchange`), and how long the asker is patient; those are the runtime's. Called by runtimes whose threads walk
//! themselves, once per process.

use crate::guarded;
use core::sync::atomic::{AtomicBool, Ordering};

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

pub(crate) fn signal() -> libc::c_int {
    // The first are glibc's; debuggers, collectors and other runtimes use those next to them.
    libc::SIGRTMIN() + 9
}

/// Installs the handler, once for the life of the process. While it runs the clocks wait: timers, which send `clock_signal`,
/// and perf events; while theirs runs, it waits. False when somebody else has the signal.
pub fn install<A: Answer>(clock_signal: libc::c_int) -> bool {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if INSTALLED.load(Ordering::Acquire) {
        return true;
    }
    let Some(current) = crate::forward::current_action(signal()) else { return false };
    if current.sa_sigaction != libc::SIG_DFL {
        return false;
    }
    // SAFETY: an all-zero sigaction is a valid value, filled in with a handler of the SA_SIGINFO signature; the calls read
    // and write only it.
    let installed = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_question::<A> as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // A CPU sample taken in here would show us.
        for clock in [clock_signal, libc::SIGTRAP] {
            libc::sigaddset(&mut action.sa_mask, clock);
        }
        libc::sigaction(signal(), &action, core::ptr::null_mut()) == 0
    };
    INSTALLED.store(installed, Ordering::Release);
    installed
}

/// Asks a thread of this process; it answers before it does anything else. False when there is no such thread.
pub fn send(thread_id: u32, value: usize) -> bool {
    // SAFETY: an all-zero siginfo is a valid value, filled in as for a queued signal; the kernel copies it.
    unsafe {
        let mut info: QueuedInfo = core::mem::zeroed();
        (info.signal, info.code) = (signal(), libc::SI_QUEUE);
        (info.process, info.user) = (libc::getpid(), libc::getuid());
        info.value = value;
        libc::syscall(libc::SYS_rt_tgsigqueueinfo, libc::getpid(), thread_id, signal(), &raw const info) == 0
    }
}

extern "C" fn on_question<A: Answer>(_signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) {
    // SAFETY: errno of this thread; restored on the way out.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's siginfo of this signal.
    let info = unsafe { &*info.cast::<QueuedInfo>() };
    // SAFETY: the kernel's context of this signal.
    if info.code == libc::SI_QUEUE && !unsafe { guarded::blocks_faults(ucontext) } {
        // SAFETY: the same, on the thread it interrupted, which lets faults through.
        unsafe { A::answer(info.value, ucontext) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
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

    const CLOCK: libc::c_int = libc::SIGSTKFLT;

    static INSTALLED: LazyLock<bool> = LazyLock::new(|| install::<Hears>(CLOCK) && install::<Hears>(CLOCK));

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
        assert!(is_masked(&heard, CLOCK));
        assert!(is_masked(&heard, libc::SIGTRAP), "the perf clock's");
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
        static BEFORE: [Predecessors; 2] = [const { Predecessors::new() }; 2];
        let admits = [0, libc::SA_NODEFER].map(|defers| {
            let (before, number) = (&BEFORE[usize::from(defers != 0)], libc::SIGRTMIN() + 12 + i32::from(defers != 0));
            assert!(before.install(number, handler as *const () as usize, libc::SA_SIGINFO | defers));
            let action = crate::forward::current_action(number).unwrap();
            // SAFETY: reads a local.
            unsafe { libc::sigismember(&action.sa_mask, signal()) == 0 }
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
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), own_id(), signal()) };
        assert_eq!(WITHOUT_VALUE.load(Ordering::Relaxed), 0);
    }
}
