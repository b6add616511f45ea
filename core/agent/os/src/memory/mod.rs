//! Memory that handlers may access at any time, files that are read in place, and the allocator.

pub mod arenas;
pub mod fault_guard;
pub mod inboxes;
pub mod live_sets;
pub mod mapped_file;
pub mod mapping;
