//! Tests of the parts of the profiler that need no language: the HTTP listener with real sockets.

mod listener;
