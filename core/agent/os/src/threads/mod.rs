//! The threads of this process, and our own.

pub mod listing;
pub mod own_threads;
pub mod per_process;
pub mod thread_context;
pub mod thread_sampling;
pub mod thread_state;
pub mod walk;
