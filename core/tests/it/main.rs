//! Tests of the public API: conformance cases, the path of a sample, and the lifecycle of the profiler.

mod conformance;
mod environment;
mod faults;
mod outcome;
mod profiler;
mod surface;
