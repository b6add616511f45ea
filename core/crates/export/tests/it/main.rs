//! The exporter against scripted receivers on 127.0.0.1, real sockets and real files. Pauses between attempts pass on a
//! clock of the tests.

mod certificates;
mod clocks;
mod files;
mod files_of_processes;
mod grpc_answers;
mod http_answers;
mod http_requests;
mod idle;
mod outages;
mod proxies;
mod scripted_grpc;
mod scripted_http;
mod secrets;
mod shared;
mod stopping;
mod tls;
