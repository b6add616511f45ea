//! The sources of values: code, environment, file, and changes at run time.

mod declared_resource;
pub mod environment;
pub mod file;
pub mod json;
pub mod load;
pub mod running_config;
