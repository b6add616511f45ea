//! The JSON API under `/api/`: `endpoints` has its table.

mod comparison;
pub(crate) mod endpoints;
mod export;
mod flame;
mod function;
mod index;
mod labels;
mod name_search;
mod request;
mod requests;
mod stack_view;
mod stats;
mod timeline;
mod top;
