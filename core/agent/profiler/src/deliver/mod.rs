//! From a closed window to the destinations and the output file.

pub mod output;
pub mod reduction;
pub mod resource;
pub mod sidecar;
pub mod windows;
