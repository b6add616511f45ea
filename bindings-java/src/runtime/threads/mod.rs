//! Threads of the VM outside of handlers: their registration, attached threads of the profiler, inherited scopes, and walks for the
//! wall clock.

pub mod attached_thread;
pub mod inherited;
pub mod java_threads;
pub mod registry;
pub mod signals;
pub mod wall;
