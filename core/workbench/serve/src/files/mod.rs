//! What `serve` keeps in its directory: one file per received request, and the index of them.

pub(crate) mod directory;
pub(crate) mod file_names;
pub(crate) mod index_log;
pub(crate) mod locks;
pub(crate) mod received;
pub(crate) mod replacement;
pub(crate) mod rollup_facts;
pub(crate) mod span_file;
pub(crate) mod window;
pub(crate) mod window_record;
