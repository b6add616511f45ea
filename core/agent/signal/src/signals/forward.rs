//! Signal chaining: saves the previous handlers of a signal and forwards foreign signals to them. Used by the fault
//! handler and the clock handler. `push` runs on normal threads, one at a time; `forward` runs in handlers.
//!
//! Two handlers can be installed on top of each other. The host installs one over ours and chains to it, then ours is
//! installed again over the host's. Each would then call the other forever. Therefore the previous handlers are kept
//! in a list, newest first. A signal that returns to our handler while it forwards on the same stack goes to the next
//! older entry.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// An action that was installed before ours.
struct SavedAction {
    handler: AtomicUsize,
    flags: AtomicI32,
    mask: AtomicU64,
}

/// A forwarding in progress: its thread and an address in its stack frame.
struct ActiveForward {
    thread_id: AtomicU32,
    stack_address: AtomicUsize,
}

const MAX_SAVED_ACTIONS: usize = 8;
const MAX_ACTIVE_FORWARDS: usize = 32;

/// The previous handlers of one signal.
pub struct HandlerChain {
    actions: [SavedAction; MAX_SAVED_ACTIONS],
    count: AtomicUsize,
    active: [ActiveForward; MAX_ACTIVE_FORWARDS],
    forwarded: AtomicU64,
}

/// Outcome of forwarding a foreign signal to a previous handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// A previous handler ran.
    Handled,
    /// The previous action ignores the signal.
    Ignored,
    /// No previous handler: the host's disposition is the default action.
    Default,
}

type SigactionHandler = unsafe extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

impl HandlerChain {
    /// An empty chain.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            actions: [const {
                SavedAction { handler: AtomicUsize::new(0), flags: AtomicI32::new(0), mask: AtomicU64::new(0) }
            }; MAX_SAVED_ACTIONS],
            count: AtomicUsize::new(0),
            active: [const { ActiveForward { thread_id: AtomicU32::new(0), stack_address: AtomicUsize::new(0) } };
                MAX_ACTIVE_FORWARDS],
            forwarded: AtomicU64::new(0),
        }
    }

    /// Signals that were forwarded to a previous handler.
    pub fn forwarded(&self) -> u64 {
        self.forwarded.load(Ordering::Relaxed)
    }

    /// Installs `handler` for `signal`; the action it replaces becomes the newest in the chain. True when `handler`
    /// is installed, also if it already was. Normal threads only, one at a time.
    ///
    /// With SA_NODEFER, the mask of the previous handler applies from the delivery on: a clock signal that became due while the
    /// kernel worked on a fault arrives after the handlers, in the code that faulted, as without us.
    pub fn install(&self, signal: libc::c_int, handler: usize, flags: libc::c_int) -> bool {
        let Some(current) = current_action(signal) else { return false };
        if current.sa_sigaction == handler {
            return true;
        }
        // Saved before our handler can receive its first signal.
        self.push(&current);
        // SAFETY: an all-zero sigaction is a valid value; its mask is the empty set.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        if flags & libc::SA_NODEFER == 0 {
            action.sa_mask = all_but_faults();
        } else if !is_default_or_ignored(&current) {
            action.sa_mask = current.sa_mask;
        }
        // SAFETY: `action` is fully initialized and the handler has the SA_SIGINFO signature; the old action was read
        // above.
        unsafe { libc::sigaction(signal, &action, core::ptr::null_mut()) == 0 }
    }

    fn push(&self, action: &libc::sigaction) {
        let count = self.count.load(Ordering::Relaxed);
        let known = self
            .actions
            .iter()
            .take(count)
            .position(|saved| saved.handler.load(Ordering::Relaxed) == action.sa_sigaction);
        // Default and ignore end the chain; a known handler moves to the top by removing the entries above it.
        let index = if is_default_or_ignored(action) { 0 } else { known.unwrap_or(count.min(MAX_SAVED_ACTIONS - 1)) };
        if let Some(saved) = self.actions.get(index) {
            saved.handler.store(action.sa_sigaction, Ordering::Relaxed);
            saved.flags.store(action.sa_flags, Ordering::Relaxed);
            saved.mask.store(signal_bits(&action.sa_mask), Ordering::Relaxed);
        }
        self.count.store(index + 1, Ordering::Release);
    }

    /// Forwards a foreign signal to the previous handler.
    ///
    /// # Safety
    /// Called inside the handler of `signal`, with the kernel's arguments.
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
        let (depth, forward) = if count > 1 { self.enter(stack_address) } else { (0, None) };
        let outcome = match count.checked_sub(1 + depth).and_then(|index| self.actions.get(index)) {
            // SAFETY: the kernel's own arguments, unchanged.
            Some(saved) => unsafe { saved.call(signal, info, ucontext) },
            None => Forwarded::Default,
        };
        if let Some(forward) = forward {
            forward.thread_id.store(0, Ordering::Release);
        }
        if outcome == Forwarded::Handled {
            self.forwarded.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Counts this thread's forwardings in progress, which lie at higher stack addresses, and records this one. A
    /// record at a lower address is left over from a handler that exited by `longjmp`; it is released.
    fn enter(&self, stack_address: usize) -> (usize, Option<&ActiveForward>) {
        let thread_id = thread_id();
        let mut depth = 0;
        for forward in &self.active {
            if forward.thread_id.load(Ordering::Relaxed) == thread_id {
                if forward.stack_address.load(Ordering::Relaxed) > stack_address {
                    depth += 1;
                } else {
                    forward.thread_id.store(0, Ordering::Relaxed);
                }
            }
        }
        let free = self.active.iter().find(|forward| {
            forward.thread_id.compare_exchange(0, thread_id, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        if let Some(forward) = free {
            forward.stack_address.store(stack_address, Ordering::Relaxed);
        }
        (depth, free)
    }
}

impl SavedAction {
    /// # Safety
    /// Called inside the handler of `signal`, with the kernel's arguments.
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
        // SAFETY: by the caller's contract this is the kernel's context, with the mask of the interrupted code.
        let interrupted = unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() };
        change_mask(libc::SIG_SETMASK, mask | interrupted.map_or(0, |context| signal_bits(&context.uc_sigmask)));
        // SAFETY: the host passed this address to sigaction as a handler. A handler without SA_SIGINFO takes the
        // first argument and ignores the others, which the C calling conventions of both architectures allow.
        let handler = unsafe { core::mem::transmute::<usize, SigactionHandler>(address) };
        // SAFETY: called as the kernel would call it: same arguments, its own mask in force.
        unsafe { handler(signal, info, ucontext) };
        Forwarded::Handled
    }
}

/// Changes the thread's mask, as `sigprocmask`; returning from the handler restores the mask of the interrupted code. False
/// if a filter denies the call.
pub(crate) fn change_mask(how: libc::c_int, signals: u64) -> bool {
    let none = core::ptr::null_mut::<u64>();
    // SAFETY: the kernel reads eight bytes at `signals` and writes nothing.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const signals, none, 8usize) == 0 }
}

fn is_default_or_ignored(action: &libc::sigaction) -> bool {
    action.sa_sigaction == libc::SIG_DFL || action.sa_sigaction == libc::SIG_IGN
}

/// The signals that our handlers block while they run. A nested handler would see a system call that is about to be
/// restarted (`restart`), or start a walk within a walk. Fault signals stay unblocked: a blocked fault ends the
/// process.
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

/// The action in force for `signal`; `None` for an invalid signal number.
pub fn current_action(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: an all-zero sigaction is a valid value to be written over.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    // SAFETY: only reads the action in force into a local.
    let read = unsafe { libc::sigaction(signal, core::ptr::null(), &mut action) };
    (read == 0).then_some(action)
}

/// The bits of signals 1 to 64, which are all signals of Linux.
pub(crate) fn signal_bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: sigset_t is an array of at least eight bytes on every Linux libc; its first word holds the signals 1 to
    // 64.
    unsafe { (set as *const libc::sigset_t).cast::<u64>().read_unaligned() }
}

/// Kernel id of this thread, by a system call: accesses no thread-local storage.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments, no failure.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}
