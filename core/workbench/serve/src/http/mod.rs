//! Connections and the routes of their requests.

pub(crate) mod connection;
pub(crate) mod page;
pub(crate) mod route;
