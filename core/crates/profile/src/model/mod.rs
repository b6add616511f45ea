//! The model: one shared [`Dictionary`] and any number of [`Profile`]s, as in the OpenTelemetry Profiles signal
//! (opentelemetry-proto 1.10, `profiles.proto`). Index 0 of every table is the empty value. Stacks are leaf first.

mod dictionary;
mod profile;

pub use dictionary::*;
pub use profile::*;
