//! Destinations and buffers that are files.

pub mod disk_buffer;
pub mod file;
pub mod file_limits;
pub mod file_name;
pub mod spool;
pub mod writer_sender;
