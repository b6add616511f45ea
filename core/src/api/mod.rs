//! The API of Rust programs: the handle, labels and captures.

pub mod capture;
pub mod labels;
mod open_scopes;
pub mod profiler;
