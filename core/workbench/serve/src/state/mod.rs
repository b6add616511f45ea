//! What all requests of a server share.

pub(crate) mod server_state;
pub(crate) mod settings;
pub(crate) mod slots;
pub(crate) mod trace_url;
