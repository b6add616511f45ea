//! The model: one shared [`Dictionary`] and any number of [`Profile`]s, as in the OpenTelemetry Profiles signal
//! (opentelemetry-proto 1.10, `profiles.proto`). Index 0 of every table is the empty value. Stacks are leaf first.
//!
//! Ids of the model need not equal the indices that an encoder writes. Called by every module of this crate, by the engine's
//! window and by the command line.

mod attribute;
mod dictionary;
mod entry;
mod heap_age;
mod id;
mod profile;
mod request_duration;
mod table;
mod transfer;
mod tree_span;

pub use attribute::*;
pub use dictionary::*;
pub use entry::*;
pub use heap_age::HeapAge;
pub use id::*;
pub use profile::*;
pub use request_duration::RequestDuration;
pub(crate) use table::TextTable;
pub use transfer::Transfer;
pub use tree_span::{own_trace, LocalRoots, TreeSpan};
