//! Queries of the stored windows and roll-ups, and the caches of their results.

mod batched_merge;
mod byte_cache;
pub(crate) mod derived;
mod hour_limits;
pub(crate) mod label_groups;
pub(crate) mod left_out;
mod merge;
pub(crate) mod parts;
mod passing;
pub(crate) mod queries;
pub(crate) mod stack_selection;
mod visits;
