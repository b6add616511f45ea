//! The native half of the Python package: `spanprof._spanprof`.
//!
//! Conversion only: keyword arguments into the core's configuration, errors into exceptions, context ids into the one
//! context variable that Python carries along. Not here: defaults, limits and messages (the core), the frame walk
//! ([`runtime`]), Python-level conveniences (`python/spanprof`). Called by the Python package, never by user code.

pub mod runtime;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
#[pyo3(name = "_spanprof")]
fn spanprof_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("version", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
