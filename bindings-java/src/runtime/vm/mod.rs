//! Structures of the HotSpot VM: its layout, which handlers read, and the tables with which the VM describes itself.

pub mod flags;
pub mod layout;
pub mod layout_reader;
#[cfg(any(test, feature = "record-stacks"))]
pub mod layout_tables;
pub mod memory;
pub mod perf_data;
pub mod raw_frame;
pub mod structs;
