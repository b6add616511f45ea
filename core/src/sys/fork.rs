//! The fork hook: discards the clocks in a forked child. It runs before the child's own first instruction, when any
//! lock may be held by a thread that exists only in the parent. It takes no lock, allocates nothing, and starts
//! nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Number of forks between this process and the one that installed the hook. Code that stored an earlier value detects
/// by the difference that it runs in a child.
pub fn fork_generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Installs the fork hook once for the life of the process; cheap to call again. Never waits: a child forked during
/// this call would wait forever.
pub fn install_fork_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the hook is a plain function of a library that `pin_library` keeps loaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    // The crash marker belongs to the parent.
    spanprof_signal::walk_fault::set_report_location(None);
    super::termination_signal::reset_in_child();
    super::library_copies::reset_in_child();
    spanprof_signal::heap::HEAP.after_fork_in_child();
    #[cfg(feature = "native")]
    super::unwind_tables::reset_in_child();
    super::clock_state::reset_in_child();
    super::own_threads::reset_in_child();
    super::inherited_listener::reset_in_child();
}
