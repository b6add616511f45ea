//! Samples of events that the VM reports: allocations, pauses for garbage collection, waits for locks; and mounts of virtual
//! threads. Runs on the thread of the event, outside of signal handlers.

pub mod allocation_buffers;
pub mod allocations;
mod frame_buffers;
pub mod gc_pauses;
pub mod java_locks;
mod live_references;
pub mod lock_waits;
pub mod monitors;
mod own_stack;
pub mod parks;
pub mod virtual_threads;
