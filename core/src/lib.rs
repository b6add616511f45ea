//! spanprof: the continuous profiler that lives inside the service.
