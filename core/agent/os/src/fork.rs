//! The fork hook: discards the clocks in a forked child. It runs before the child's own first instruction, when any
//! lock may be held by a thread that exists only in the parent. It takes no lock, allocates nothing, and starts
//! nothing. In the parent it waits for calls that exclude forks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

use crate::clocks::clock_state;
use crate::fork_exclusion;
use crate::process::{inherited_listener, library_copies, termination_signal};
use crate::threads::own_threads;
use spanprof_signal::count_forks;

static RESET_OF_RUNTIME: OnceLock<fn()> = OnceLock::new();

/// Installs the fork hook once for the life of the process; cheap to call again. Never waits: a child forked during
/// this call would wait forever.
pub fn install_fork_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    // The C library calls the hooks of children in the order of their installation.
    count_forks();
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the hooks are plain functions of a library that `pin_library` keeps loaded.
        unsafe {
            libc::pthread_atfork(
                Some(fork_exclusion::before_fork),
                Some(fork_exclusion::after_fork_in_parent),
                Some(in_child),
            )
        };
    }
}

/// Adds a runtime's own reset to the fork hook; the first one stays. `reset` takes no lock, allocates nothing, and starts
/// nothing.
pub fn reset_in_child_by(reset: fn()) {
    // `get` of a cell that another thread was setting at the fork returns `None`: that thread's state is not in use yet.
    _ = RESET_OF_RUNTIME.set(reset);
}

extern "C" fn in_child() {
    fork_exclusion::reset_in_child();
    // The crash marker belongs to the parent.
    spanprof_signal::walk_fault::set_report_location(None);
    termination_signal::reset_in_child();
    library_copies::reset_in_child();
    spanprof_signal::heap::HEAP.after_fork_in_child();
    if let Some(reset) = RESET_OF_RUNTIME.get() {
        reset();
    }
    clock_state::reset_in_child();
    own_threads::reset_in_child();
    inherited_listener::reset_in_child();
}
