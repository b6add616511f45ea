//! Whether the profiler may use signals, and which.

use std::sync::atomic::{AtomicBool, Ordering};

/// Signal of the clocks where SIGURG is taken. SIGPROF belongs to V8's own profiler (--cpu-prof, inspector); SIGSTKFLT is
/// otherwise unused, and it does not queue.
pub const FALLBACK_SIGNAL: libc::c_int = libc::SIGSTKFLT;

static MAY_SIGNAL: AtomicBool = AtomicBool::new(false);

/// Stores whether the configuration allows signals and signal handlers. Must precede the first enrollment.
pub fn allow_signals(is_allowed: bool) {
    MAY_SIGNAL.store(is_allowed, Ordering::Relaxed);
}

/// Whether the configuration allows signals and signal handlers.
pub fn may_signal() -> bool {
    MAY_SIGNAL.load(Ordering::Relaxed)
}
