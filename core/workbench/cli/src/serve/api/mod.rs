//! The JSON API under `/api/`.

pub(crate) mod comparison;
pub(crate) mod endpoints;
pub(crate) mod flame;
pub(crate) mod function;
pub(crate) mod name_search;
pub(crate) mod requests;
pub(crate) mod selected_windows;
pub(crate) mod stack_view;
pub(crate) mod timeline;
pub(crate) mod top;
