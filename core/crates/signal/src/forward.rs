//! Who handled a signal before us, and handing them what is theirs. Serves the fault guard and the clock handler; knows
//! nothing of either. `adopt` runs on normal threads, one at a time; `forward` runs in handlers.
//!
//! Two handlers may come to stand on top of each other: the host installs one over ours and chains to it, later we
//! install ours again over the host's. Each would then call the other for ever. So predecessors are kept as a list,
//! newest first, and a signal that comes back to us while we are forwarding on the same stack goes one further down.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// What a host could have had installed.
struct Link {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

/// One forwarding in progress: who, and how deep its stack was.
struct Passing {
    thread_id: AtomicU32,
    stack_address: AtomicUsize,
}

const LINKS: usize = 8;
const PASSINGS: usize = 32;

/// The predecessors for one signal.
pub struct Predecessors {
    links: [Link; LINKS],
    count: AtomicUsize,
    passings: [Passing; PASSINGS],
    forwarded: AtomicU64,
}

/// What became of a foreign signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// A predecessor's handler ran.
    Handled,
    /// The predecessor ignores the signal.
    Ignored,
    /// There is no handler: the default action is what the host asked for.
    Default,
}

type Handler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

impl Predecessors {
    /// Nobody before us.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            links: [const { Link { handler: AtomicUsize::new(0), flags: AtomicI32::new(0), mask: AtomicU64::new(0) } };
                LINKS],
            count: AtomicUsize::new(0),
            passings: [const { Passing { thread_id: AtomicU32::new(0), stack_address: AtomicUsize::new(0) } };
                PASSINGS],
            forwarded: AtomicU64::new(0),
        }
    }

    /// Signals that went to a predecessor's handler.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// Installs `handler` for `signal` over whatever is there, which becomes the newest predecessor. True when it is in
    /// place, also when it already was. Normal threads only, one at a time.
    pub fn install(&self, signal: libc::c_int, handler: usize, flags: libc::c_int) -> bool {
        let Some(current) = current_action(signal) else { return false };
        if current.sa_sigaction == handler {
            return true;
        }
        // Known before the first signal can reach us.
        self.adopt(&current);
        // SAFETY: an all-zero sigaction is a valid value; its mask is the empty set.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        if flags & libc::SA_NODEFER == 0 {
            action.sa_mask = all_but_faults();
        }
        // SAFETY: `action` is whole and the handler has the SA_SIGINFO signature; the old action was read above.
        unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) == 0 }
    }

    fn adopt(&self, action: &libc::sigaction) {
        let count = self.count.load(Ordering::Relaxed);
        let plain = action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN;
        let known =
            self.links.iter().take(count).position(|l| l.handler.load(Ordering::Relaxed) == action.sa_sigaction);
        // Default and ignore chain to nobody; a known handler moves to the top by cutting what was above it.
        let index = if plain { 0 } else { known.unwrap_or(count.min(LINKS - 1)) };
        if let Some(link) = self.links.get(index) {
            link.handler.store(action.sa_sigaction, Ordering::Relaxed);
            link.flags.store(action.sa_flags, Ordering::Relaxed);
            link.mask.store(first_word(&action.sa_mask), Ordering::Relaxed);
        }
        self.count.store(index + 1, Ordering::Release);
    }

    /// Gives a foreign signal to who had it before us.
    ///
    /// # Safety
    /// Called inside the handler of `signal`, with the arguments the kernel gave.
    pub unsafe fn forward(
        &self,
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        ucontext: *mut libc::c_void,
    ) -> Forwarded {
        let count = self.count.load(Ordering::Acquire);
        if count == 0 {
            return Forwarded::Default;
        }
        let marker = 0u8;
        let stack_address = &raw const marker as usize;
        let (depth, passing) = if count > 1 { self.enter(stack_address) } else { (0, None) };
        let outcome = match count.checked_sub(1 + depth).and_then(|index| self.links.get(index)) {
            // SAFETY: the arguments are the kernel's own, passed on unchanged.
            Some(link) => unsafe { link.call(signal, info, ucontext) },
            None => Forwarded::Default,
        };
        if let Some(passing) = passing {
            passing.thread_id.store(0, Ordering::Release);
        }
        if outcome == Forwarded::Handled {
            self.forwarded.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// How many forwardings of this thread are below us on the stack, and a note of this one. A note that is not below
    /// us is left over from a handler that jumped out; it is taken again.
    fn enter(&self, stack_address: usize) -> (usize, Option<&Passing>) {
        let thread_id = thread_id();
        let mut depth = 0;
        for passing in &self.passings {
            if passing.thread_id.load(Ordering::Relaxed) == thread_id {
                if passing.stack_address.load(Ordering::Relaxed) > stack_address {
                    depth += 1;
                } else {
                    passing.thread_id.store(0, Ordering::Relaxed);
                }
            }
        }
        let free = self.passings.iter().find(|passing| {
            passing.thread_id.compare_exchange(0, thread_id, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        if let Some(passing) = free {
            passing.stack_address.store(stack_address, Ordering::Relaxed);
        }
        (depth, free)
    }
}

impl Link {
    /// # Safety
    /// As for `forward`.
    unsafe fn call(&self, signal: libc::c_int, info: *mut libc::siginfo_t, ucontext: *mut libc::c_void) -> Forwarded {
        let address = self.handler.load(Ordering::Relaxed);
        match address {
            libc::SIG_DFL => return Forwarded::Default,
            libc::SIG_IGN => return Forwarded::Ignored,
            _ => {}
        }
        let flags = self.flags.load(Ordering::Relaxed);
        let mut mask = self.mask.load(Ordering::Relaxed);
        if flags & libc::SA_NODEFER == 0 {
            mask |= 1u64 << (signal - 1);
        }
        if flags & libc::SA_RESETHAND != 0 {
            self.handler.store(libc::SIG_DFL, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise: the kernel's context, with the mask of the interrupted code.
        let interrupted = unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() };
        set_mask(mask | interrupted.map_or(0, |context| first_word(&context.uc_sigmask)));
        // SAFETY: the host gave this address to sigaction as a handler. One without SA_SIGINFO takes the first argument
        // and ignores the others, which the C calling conventions of both architectures allow.
        let handler = unsafe { core::mem::transmute::<usize, Handler>(address) };
        // SAFETY: called as the kernel would have called it: same arguments, its own mask in force.
        unsafe { handler(signal, info, ucontext) };
        Forwarded::Handled
    }
}

/// Replaces the thread's mask; returning from the handler restores that of the interrupted code.
fn set_mask(mask: u64) {
    let none = core::ptr::null_mut::<u64>();
    // SAFETY: the kernel reads eight bytes at `mask` and writes nothing.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, none, 8usize) };
}

/// What a handler of ours blocks while it runs: another handler between ours and the interrupted code would see a system
/// call that is about to be restarted (`restart`), and a walk of ours inside a walk. Blocked faults would kill.
fn all_but_faults() -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid value; the calls write to it alone.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGSYS] {
            libc::sigdelset(&mut set, fault);
        }
        set
    }
}

/// The action in force for `signal`.
pub fn current_action(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid value to be written over.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: only reads the action in force into a local.
    let read = unsafe { libc::sigaction(signal, core::ptr::null(), &mut action) };
    (read == 0).then_some(action)
}

/// The first 64 signals of a set: all there are.
pub(crate) fn first_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: sigset_t is an array of at least eight bytes on every Linux libc, its first word the signals 1 to 64.
    unsafe { (set as *const libc::sigset_t).cast::<u64>().read_unaligned() }
}

/// Kernel id of this thread, asked from the kernel: no thread-local is touched.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}
