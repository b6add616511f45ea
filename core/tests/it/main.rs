//! The facade from outside: the conformance cases, the whole way of a sample, and the life of the profiler.

mod conformance;
mod faults;
mod profiler;
mod surface;
