//! V8's code: its events, the map from address and ring position to code, and names. Events arrive on JavaScript threads; the map
//! belongs to the drain thread.

pub mod builtin_ranges;
mod bytecode_sizes;
pub mod code_events;
pub mod code_map;
pub mod code_map_stats;
pub mod code_metadata;
pub mod code_object;
pub mod event_queue;
mod existing_code;
mod known_functions;
mod retired_code;
pub mod synthetic_names;
