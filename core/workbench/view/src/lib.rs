//! Writes profiles for people: the page, flame graphs, SVG, Speedscope and the Firefox Profiler's format; never reads a file or a
//! socket, and never writes a format that another program aggregates (those are in `spanprof-profile`).
//!
//! Called by the command line and `serve`; by the agent for `output=flame.html` and `capture().flamegraph()` only.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod compact;
pub mod firefox;
pub mod flamegraph;
pub mod page;
pub mod speedscope;
pub mod svg;
