//! The stack walk along frame pointers, the context of a thread, and what the handlers record. Runs in signal handlers.
//!
//! This folder and `capture` import only each other, the layout folder `v8`, and code that is safe in handlers. Code that
//! installs, allocates or locks stands outside. `cargo xtask tidy` checks it.

pub mod context;
pub mod frame_pointers;
pub mod frameless;
pub mod js_thread;
pub mod native_code;
pub mod ring_position;
pub mod synthetic_frame;
pub mod thread_kind;
pub mod turn_stacks;
pub mod walk_method;
