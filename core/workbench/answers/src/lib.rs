//! Writes results of queries as text, Markdown and JSON; never decodes a profile and never answers a request.
//!
//! The verbs and the HTTP API of `serve` give the same answers. Also here: what both need to write them, such as quantities with
//! units, the size of the terminal, sources of functions, and the error of a verb; and how both are asked, in `selection`.
#![forbid(unsafe_code)]

pub mod cost_unit;
pub mod diff;
pub mod diff_graph;
pub mod explain;
pub mod failure;
mod function;
pub mod labels;
mod layout;
pub mod neighbors;
pub mod next_command;
pub mod page_sources;
pub mod profile_name;
pub mod quantity;
pub mod selection;
mod short_path;
pub mod sources;
pub mod span_time;
pub mod spans;
pub mod terminal;
pub mod top;

pub use function::{function_members, printable};
pub use layout::{cut_end, FittingTable, TerminalLayout};

/// Header of an answer of `serve`: the number of windows that were left out, because they could not be read.
pub const LEFT_OUT_HEADER: &str = "x-spanprof-windows-left-out";
