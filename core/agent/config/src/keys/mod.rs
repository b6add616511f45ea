//! The table of keys, their checks, names and spelling.

pub mod binding_options;
pub mod check;
pub mod destinations;
pub mod export_destination;
pub mod key;
pub mod key_case;
pub mod metrics;
pub mod nearest;
pub mod nested;
pub mod redacted_values;
pub mod table;
