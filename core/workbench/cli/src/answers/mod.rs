//! The answers of the verbs, as text, as Markdown and as JSON. Called by the verbs and by `serve`, whose answers are the same.

pub(crate) mod cost_unit;
pub(crate) mod diff;
pub(crate) mod diff_graph;
pub(crate) mod explain;
mod function;
pub(crate) mod labels;
mod layout;
pub(crate) mod neighbors;
pub(crate) mod next_command;
pub(crate) mod page_sources;
mod short_path;
pub(crate) mod sources;
pub(crate) mod span_time;
pub(crate) mod spans;
pub(crate) mod top;

pub(crate) use function::{function_members, printable};
pub(crate) use layout::{cut_end, FittingTable, TerminalLayout};

/// Header of an answer of `serve`: the number of windows that were left out, because they could not be read.
pub(crate) const LEFT_OUT_HEADER: &str = "x-spanprof-windows-left-out";
