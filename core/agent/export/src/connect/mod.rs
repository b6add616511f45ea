//! Connections: addresses, proxies, sockets, TLS.
//!
//! HTTP and gRPC share one connector, so failures have exact classes (not connected, no response, response) and TLS, proxies and
//! secrets have one implementation. tonic writes metadata and reads responses; its transport is not used (it compresses at level
//! 6 for each attempt: 6.9 instead of 1.0 ms of own CPU for 171 KB). The trust store is the machine's bundle, or Mozilla's where
//! the machine has none, not both: an authority that was removed stays removed. `localhost` is not resolved by DNS (RFC 6761).
//! Socket writes are never gathered: `writev` cannot suppress SIGPIPE.

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
