//! Samples of events that the process reports itself: allocations, pauses of the garbage collector, waits for locks, suspended
//! asyncio tasks. Runs on the thread of the event, outside signal handlers.

mod allocator_hooks;
pub mod array_handler;
pub mod gc_pauses;
pub mod hook_installation;
pub mod lock_waits;
pub mod suspended_tasks;
