//! Counts the forks between this process and the one that installed the hook. The hook runs in the child before its own first
//! instruction: it adds to one number.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Number of forks between this process and the one that installed the hook. Code that stored an earlier value detects
/// by the difference that it runs in a child.
pub fn fork_generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Installs the hook that counts, once for the life of the process; cheap to call again. Never waits: a child forked during
/// this call would wait forever.
pub fn count_forks() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the hook is a plain function of a library that its profiler keeps loaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}
