//! The native half of the npm package: the addon that `lib/` loads on every Node.js from 18 on.
//!
//! Conversion only: JSON into the core's configuration, errors into exceptions, context ids into numbers. Not here:
//! defaults, limits and messages (the core), access to V8 (`runtime`), JavaScript conveniences (`lib/`). Called by the
//! npm package, never by user code.
//!
//! Every binding has the same modules. JavaScript also has `positions` (from a code offset to a source position) and
//! `source_map`.

// The macro registers nothing in a test binary, so that the API has no caller there.
#![cfg_attr(test, allow(dead_code, reason = "called through registration"))]

mod api;
mod capture;
mod collection;
#[cfg(feature = "testing")]
mod conformance;
mod context;
mod convert;
mod host_log;
mod positions;
mod pull;
mod runtime;
mod source_map;

// `std::time` is true in this library where a preloaded library alters the clocks of the program.
spanprof_signal::define_clock_gettime!();

/// Programs survive a failed allocation; the standard library does not.
#[global_allocator]
static ALLOCATOR: spanprof_profiler::binding::ReserveAllocator<std::alloc::System> =
    spanprof_profiler::binding::ReserveAllocator::new(std::alloc::System);
