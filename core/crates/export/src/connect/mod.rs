//! Connections: addresses, proxies, sockets, TLS.

pub mod blocking;
pub mod connection;
pub mod endpoint;
pub mod headers;
pub mod owned_descriptor;
pub mod proxy;
pub mod server_connector;
pub mod socket;
pub mod tls;
pub mod tls_client;
