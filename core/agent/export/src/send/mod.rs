//! Requests and responses of OTLP.

pub mod compressed_body;
pub mod grpc_status;
pub mod http_response;
pub mod http_sender;
pub mod otlp_grpc;
pub mod request_sender;
pub mod wire;
