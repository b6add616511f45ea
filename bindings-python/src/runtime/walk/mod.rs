//! Reads the frame chain and the context of a thread: the parts of the walk that every capture shares. Runs in signal handlers.
//!
//! This folder and `capture` import only each other, the layout folder `interpreter`, and code that is safe in handlers.
//! Code that installs, allocates or locks stands outside. `cargo xtask tidy` checks it.

pub mod activation;
pub mod activation_list;
pub mod context;
pub mod data_stack;
pub mod frame;
pub mod frame_word;
pub mod greenlet_switch;
pub mod kernel_thread_id;
pub mod sampled_code;
pub mod thread_context;

/// Maximum number of links followed, skipped ones included: bounds a cyclic chain.
pub const MAX_LINKS: usize = 16_384;
