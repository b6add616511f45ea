//! Whether the profiler may use signals, and which.

use std::sync::atomic::{AtomicBool, Ordering};

/// The clocks' signal if SIGURG is taken. The VM's flight recorder and other profilers use SIGPROF. No known program uses
/// SIGSTKFLT; it does not queue.
pub const FALLBACK_SIGNAL: libc::c_int = libc::SIGSTKFLT;

static MAY_SIGNAL: AtomicBool = AtomicBool::new(true);

/// Stores whether the configuration allows signals and signal handlers. Must precede `JavaRuntime::get`.
pub fn allow_signals(is_allowed: bool) {
    MAY_SIGNAL.store(is_allowed, Ordering::Relaxed);
}

/// Whether the configuration allows signals and signal handlers.
pub fn may_signal() -> bool {
    MAY_SIGNAL.load(Ordering::Relaxed)
}
