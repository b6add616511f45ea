//! Memory that handlers may access at any time, and files that are read in place.

pub mod inboxes;
pub mod live_sets;
pub mod mapped_file;
pub mod mapping;
