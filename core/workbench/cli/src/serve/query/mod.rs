//! Queries of the stored windows and roll-ups, and the caches of their results.

pub(crate) mod batched_merge;
pub(crate) mod byte_cache;
pub(crate) mod derived;
pub(crate) mod hour_limits;
pub(crate) mod label_groups;
pub(crate) mod left_out;
pub(crate) mod parts;
pub(crate) mod queries;
pub(crate) mod stack_selection;
pub(crate) mod visits;
