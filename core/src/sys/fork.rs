//! What happens in a forked child: we forget. The hook runs between fork and the child's first own instruction, when
//! any lock may be held by a thread that does not exist there: it takes none, allocates nothing, and starts nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that installed the hook. A value kept from before a fork tells
/// its owner that it is in a child.
pub fn fork_generation() -> u32 {
    GENERATION.load(Ordering::Acquire)
}

/// Makes forked children forget our clocks. Once for the life of the process; cheap to call again. Never waits: a child
/// whose parent was just here would wait for ever.
pub fn install_fork_hook() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: the hook is a plain function of a library that `pin_library` keeps loaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    // The file is the parent's.
    spanprof_signal::walking::tell_in(None);
    super::termination_signal::forget_in_child();
    super::copies::forget_in_child();
    super::clocks::forget_in_child();
}
