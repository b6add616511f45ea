//! Whether the program serves pulls through its own web server.

use std::sync::atomic::{AtomicBool, Ordering};

static HAS_HANDLER: AtomicBool = AtomicBool::new(false);

/// See [`crate::binding::serve_pulls`].
pub fn serve() {
    HAS_HANDLER.store(true, Ordering::Relaxed);
}

/// Whether the program has created a handler.
pub fn has_handler() -> bool {
    HAS_HANDLER.load(Ordering::Relaxed)
}
