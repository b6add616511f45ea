//! The API of Rust programs: the handle, labels and captures.

pub mod capture;
pub mod labels;
pub mod profiler;
