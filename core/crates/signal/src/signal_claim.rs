//! Which signal carries the ticks of the clocks and the questions of the wall sampler: SIGURG, or the runtime's own.
//!
//! SIGURG is ignored by default, so a tick that arrives after the handler was reset, in a forked worker or in a program
//! that replaced this one by `exec`, ends nothing. Go's runtime preempts its threads with it for the same reason
//! (runtime/signal_unix.go, sigPreempt, Go 1.14–1.26). It is used where its disposition is SIG_DFL at the start. When
//! another handler appears for it later, that handler stays, and everything moves to the runtime's signal. That one has
//! no such default: a handler that appears for it is chained to, as by any library that is loaded later.
//!
//! Not here: the handler (`handler`). Normal threads only, one at a time.

use crate::handler;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Preferred: ignored by default.
pub const PREFERRED: libc::c_int = libc::SIGURG;

/// The signal in use; 0 before the first [`claim`].
static IN_USE: AtomicI32 = AtomicI32::new(0);
/// The runtime's own signal.
static FALLBACK: AtomicI32 = AtomicI32::new(0);
/// Whether another handler appeared for the preferred signal: it is never used again in this process.
static PREFERRED_IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// What [`check`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// The handler is in place, or no signal was claimed.
    InPlace,
    /// Another handler stands at the preferred signal: use this signal from now on.
    Moved(libc::c_int),
    /// The handler of the runtime's signal was replaced, and is in place again in front of the other.
    Reinstalled,
    /// No handler could be installed.
    Lost,
}

/// The signal in use; 0 before the first [`claim`].
pub fn in_use() -> libc::c_int {
    IN_USE.load(Ordering::Acquire)
}

/// Installs the handler for the preferred signal where that is free, else for `fallback`; the signal, or `None` when the
/// kernel refused both.
pub fn claim(fallback: libc::c_int) -> Option<libc::c_int> {
    FALLBACK.store(fallback, Ordering::Relaxed);
    let is_free = || {
        let action = crate::forward::current_action(PREFERRED);
        handler::is_installed(PREFERRED) || action.is_some_and(|action| action.sa_sigaction == libc::SIG_DFL)
    };
    let prefers = !PREFERRED_IS_TAKEN.load(Ordering::Relaxed) && is_free() && handler::install(PREFERRED);
    let signal = if prefers { PREFERRED } else { fallback };
    if !prefers && !handler::install(fallback) {
        return None;
    }
    IN_USE.store(signal, Ordering::Release);
    Some(signal)
}

/// Whether the handler of the signal in use is still the one in force, and what was done about it if not. Needs no signal
/// to arrive.
pub fn check() -> ClaimStatus {
    let signal = in_use();
    if signal == 0 || handler::is_installed(signal) {
        return ClaimStatus::InPlace;
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
