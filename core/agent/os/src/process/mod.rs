//! This process: control groups, files that outlive it, children, termination.

pub mod cgroups;
pub mod children;
pub mod crash_marker;
pub mod info;
pub mod inherited_listener;
pub mod library_copies;
pub mod memory_limit;
pub mod peak_file;
pub mod quota;
pub mod standard_error;
pub mod state_file;
pub mod termination_signal;
