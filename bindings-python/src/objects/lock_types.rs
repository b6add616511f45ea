//! The module's function that creates the native lock types. Called once by the package, before waits are reported.

use pyo3::prelude::*;

use super::wait_timer::{begin_wait, WaitTimer};
use super::{acquire_arguments, lock_type, recursive_lock_type};

/// Adds the functions for locks to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WaitTimer>()?;
    module.add_function(wrap_pyfunction!(begin_wait, module)?)?;
    module.add_function(wrap_pyfunction!(lock_types, module)?)
}

/// Creates the replacements of `_thread.lock`, `_thread.allocate_lock` and `_thread.RLock`, in this order, from these three.
/// `metaclass` makes plain locks instances of the new types; it must not add fields to `type`.
#[pyfunction]
fn lock_types<'py>(
    metaclass: &Bound<'py, PyAny>,
    plain_type: &Bound<'py, PyAny>,
    new_plain: &Bound<'py, PyAny>,
    plain_recursive: &Bound<'py, PyAny>,
) -> PyResult<[Bound<'py, PyAny>; 3]> {
    acquire_arguments::intern_names(metaclass.py());
    let (lock, allocate) = lock_type::create(metaclass, plain_type, new_plain)?;
    Ok([lock, allocate, recursive_lock_type::create(metaclass, plain_recursive)?])
}
