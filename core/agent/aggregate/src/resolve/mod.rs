//! Raw frames become locations, and stacks of locations.

pub(crate) mod locations;
pub(crate) mod native_runs;
pub(crate) mod native_symbols;
pub(crate) mod stacks;
