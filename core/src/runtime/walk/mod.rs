//! Walks of native stacks by unwind tables (`spanprof-unwind`): of interrupted threads, of the calling thread in hooks, and of
//! threads that wait. Generated code is followed by its frame pointers.

pub mod calling_thread;
mod interrupted_thread;
mod waiting_thread;

pub(crate) use calling_thread::walk_calling_thread;
pub(crate) use interrupted_thread::{capture_native, walk_self};
pub(crate) use waiting_thread::walk_waiting_thread;

/// Builds the tables of the program and the C library now: for walks before the first drain.
pub(crate) fn build_first_tables() {
    spanprof_unwind::install_fork_reset();
    // Hooks of the allocator may be in a library.
    spanprof_unwind::refresh(&[build_first_tables as *const () as u64], &|| false);
}
