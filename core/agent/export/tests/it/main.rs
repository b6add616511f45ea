//! The exporter against scripted receivers on 127.0.0.1, real sockets and real files. Delays between attempts use a test
//! clock.

mod buffer_processes;
mod buffers;
mod certificates;
mod clocks;
mod file_limits;
mod file_processes;
mod files;
mod grpc_responses;
mod http_requests;
mod http_responses;
mod idle;
mod metrics;
mod outages;
mod proxies;
mod push_requests;
mod scripted_grpc;
mod scripted_http;
mod secrets;
mod shared;
mod sidecars;
mod stopping;
mod tls;
mod writers;
