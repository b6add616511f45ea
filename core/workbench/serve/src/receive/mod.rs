//! Receives profiles as OTLP over HTTP and gRPC.

pub(crate) mod intake;
pub(crate) mod otlp_grpc;
pub(crate) mod otlp_http;
