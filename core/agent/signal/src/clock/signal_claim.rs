//! Chooses the signal for clock ticks and wall requests: SIGURG, or the runtime's own signal.
//!
//! SIGURG is ignored by default. A tick that arrives after the handler was reset, in a forked worker or after `exec`,
//! is therefore harmless. Go's runtime preempts its threads with SIGURG for the same reason (runtime/signal_unix.go,
//! sigPreempt, Go 1.14–1.26). SIGURG is used if its disposition at start is SIG_DFL. If another handler is installed
//! for it later, that handler stays, and clocks and wall requests move to the runtime's signal. That signal is not
//! ignored by default: a later handler for it is chained to, as by any library that is loaded later.
//!
//! Not here: the handler (`handler`). Normal threads only, one at a time.

use crate::clock::handler;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The preferred signal, which is ignored by default.
pub const PREFERRED: libc::c_int = libc::SIGURG;

/// The signal in use; 0 before the first [`claim`].
static IN_USE: AtomicI32 = AtomicI32::new(0);
/// The runtime's own signal.
static FALLBACK: AtomicI32 = AtomicI32::new(0);
/// Set once another handler was found for the preferred signal, which this process then never uses again.
static PREFERRED_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Result of [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// The handler is installed, or no signal was claimed.
    Installed,
    /// Another handler was found for the preferred signal: use this signal from now on.
    Moved(libc::c_int),
    /// The handler of the runtime's signal had been replaced. It was installed again and chains to the replacement.
    Reinstalled,
    /// No handler could be installed.
    Lost,
}

/// The signal in use; 0 before the first [`claim`].
pub fn in_use() -> libc::c_int {
    IN_USE.load(Ordering::Acquire)
}

/// Installs the handler for the preferred signal if that is free, else for `fallback`. Returns the signal, or `None`
/// when the kernel refuses both.
pub fn claim(fallback: libc::c_int) -> Option<libc::c_int> {
    FALLBACK.store(fallback, Ordering::Relaxed);
    let is_available = || {
        let action = crate::signals::forward::current_action(PREFERRED);
        handler::is_installed(PREFERRED) || action.is_some_and(|action| action.sa_sigaction == libc::SIG_DFL)
    };
    let uses_preferred = !PREFERRED_IS_TAKEN.load(Ordering::Relaxed) && is_available() && handler::install(PREFERRED);
    let signal = if uses_preferred { PREFERRED } else { fallback };
    if !uses_preferred && !handler::install(fallback) {
        return None;
    }
    IN_USE.store(signal, Ordering::Release);
    Some(signal)
}

/// Checks that our handler is installed for the signal in use. Otherwise reinstalls it, or moves to the runtime's
/// signal. Requires no delivered signal.
pub fn check() -> ClaimStatus {
    let signal = in_use();
    if signal == 0 || handler::is_installed(signal) {
        return ClaimStatus::Installed;
    }
    if signal == PREFERRED {
        PREFERRED_IS_TAKEN.store(true, Ordering::Relaxed);
    }
    match claim(FALLBACK.load(Ordering::Relaxed)) {
        None => ClaimStatus::Lost,
        Some(same) if same == signal => ClaimStatus::Reinstalled,
        Some(other) => ClaimStatus::Moved(other),
    }
}
