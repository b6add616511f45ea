//! Tests of the public API: conformance cases, the path of a sample, and the lifecycle of the profiler.

mod capture;
mod conformance;
mod control;
mod control_requests;
mod environment;
mod faults;
mod metrics;
mod opentelemetry;
mod outcome;
mod pprof;
mod profiler;
mod pull;
mod redaction;
mod requests;
mod rust_language;
mod schema;
mod sidecars;
mod surface;
mod termination;
mod update;
mod wall_collection;
mod watched_file;
