//! Walks of stacks in handlers: guarded loads, requests, faults.

pub mod buffer_pool;
pub mod capture;
pub mod exchange;
pub mod guarded;
pub mod memory;
pub mod published;
pub mod self_walk;
pub(crate) mod stack_space;
pub mod walk_fault;
