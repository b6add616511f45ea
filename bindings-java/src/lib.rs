//! The native library of the JAR, loaded by `io.spanprof.Native`; also a native agent of the VM (`-agentpath`).
//!
//! Conversion only: JSON into the core's configuration, errors into strings, label sets and span links into words of a
//! buffer. Not here: defaults, limits and messages (the core), access to HotSpot (`runtime`), the Java API
//! (`src/main/java`).
//!
//! Every binding has the same modules. Java also has `agent` (start by the VM's options), `requests` (of the program's web
//! server) and `natives` (registration of the native methods for each class loader).

mod agent;
mod api;
#[cfg(feature = "testing")]
mod conformance;
mod context;
mod convert;
mod host_log;
mod natives;
mod requests;
mod runtime;

// `std::time` is true in this library where a preloaded library alters the clocks of the program.
spanprof_signal::define_clock_gettime!();

/// Programs survive a failed allocation; the standard library does not.
#[global_allocator]
static ALLOCATOR: spanprof_profiler::binding::ReserveAllocator<std::alloc::System> =
    spanprof_profiler::binding::ReserveAllocator::new(std::alloc::System);
