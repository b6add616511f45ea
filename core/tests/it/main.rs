//! The facade from outside: the conformance cases, the whole way of a sample, and the life of the profiler.

mod conformance;
mod environment;
mod faults;
mod outcome;
mod profiler;
mod surface;
