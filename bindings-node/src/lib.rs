//! The native half of the npm package: the addon that `js/` loads on every Node from 18 on.
//!
//! Conversion only: JSON into the core's configuration, errors into exceptions, context ids into numbers. Not here:
//! defaults, limits and messages (the core), reading V8 ([`runtime`]), JavaScript conveniences (`js/`). Called by the npm
//! package, never by user code.

// The macro registers nothing in a test binary, so that the door has no caller there.
#![cfg_attr(test, allow(dead_code, reason = "called through registration"))]

#[cfg(feature = "testing")]
mod conformance;
mod context_calls;
mod door;
mod error;
mod host_log;
mod positions;
mod runtime;
mod source_map;
mod submitted;
