//! Arguments of `acquire` of both lock types. `True` and `False`, floats and integers are read directly. All others go first to
//! `acquire` of a new plain lock, which raises what the interpreter raises for wrong ones.

use std::ptr::{addr_of_mut, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::thread_lock::Patience;
use crate::ffi::heap_type::object_or_raise;

/// How a call acquires a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcquireMode {
    /// Without a wait: `blocking=False` or a timeout of 0.
    Try,
    Wait(Patience),
}

/// Longer timeouts, 31 years, are left to the plain lock, which has the limit of its version.
const MAX_TIMEOUT_S: f64 = 1e9;

/// The names of the parameters, interned and never released; calls pass interned names.
static NAMES: [AtomicPtr<ffi::PyObject>; 2] = [AtomicPtr::new(null_mut()), AtomicPtr::new(null_mut())];

/// Must precede the first call of [`mode`].
pub(super) fn intern_names(py: Python<'_>) {
    for (name, text) in NAMES.iter().zip(["blocking", "timeout"]) {
        name.store(PyString::intern(py, text).into_any().into_ptr(), Ordering::Release);
    }
}

/// The mode for a call of `acquire` with these arguments; an error leaves the exception set. `new_plain` creates plain locks
/// of the same type.
///
/// # Safety
/// The arguments of a fast call with keywords; the GIL is held; `new_plain` is alive.
#[inline(always)]
pub(super) unsafe fn mode(
    new_plain: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> Result<AcquireMode, ()> {
    if positional == 0 && keyword_names.is_null() {
        return Ok(AcquireMode::Wait(Patience::Forever));
    }
    // SAFETY: caller's contract.
    unsafe { given_mode(new_plain, arguments, positional, keyword_names) }
}

/// As [`mode`], with at least one argument.
///
/// # Safety
/// As for [`mode`].
unsafe fn given_mode(
    new_plain: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> Result<AcquireMode, ()> {
    // SAFETY: caller's contract.
    if let Some(mode) = unsafe { usual_mode(arguments, positional, keyword_names) } {
        return Ok(mode);
    }
    let mut mode = AcquireMode::Try;
    let is_raised = object_or_raise(|py| {
        // SAFETY: caller's contract.
        let (new_plain, (values, keywords)) = unsafe {
            let arguments = of_fast_call(py, arguments, positional, keyword_names)?;
            (Bound::from_borrowed_ptr(py, new_plain), arguments)
        };
        mode = checked_mode(&new_plain, &values, &keywords)?;
        Ok(new_plain.as_ptr())
    })
    .is_null();
    if is_raised {
        Err(())
    } else {
        Ok(mode)
    }
}

/// The mode, if the arguments have the usual types and valid values.
///
/// # Safety
/// The arguments of a fast call with keywords; the GIL is held.
#[inline]
unsafe fn usual_mode(
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> Option<AcquireMode> {
    let mut values = [null_mut::<ffi::PyObject>(); 2];
    // SAFETY: `positional` values, then one for each name; all are borrowed for the call. Both types are static.
    unsafe {
        let positional = positional as usize;
        for (index, value) in values.iter_mut().enumerate().take(positional) {
            *value = *arguments.add(index);
        }
        let named = if keyword_names.is_null() { 0 } else { ffi::PyTuple_Size(keyword_names) as usize };
        if positional + named > values.len() {
            return None;
        }
        for index in 0..named {
            let name = ffi::PyTuple_GetItem(keyword_names, index as ffi::Py_ssize_t);
            let index_of_name = NAMES.iter().position(|interned| interned.load(Ordering::Acquire) == name)?;
            if !values[index_of_name].is_null() {
                return None;
            }
            values[index_of_name] = *arguments.add(positional + index);
        }
        let [blocking, timeout] = values;
        let is_blocking = blocking.is_null() || blocking == ffi::Py_True();
        if !is_blocking && blocking != ffi::Py_False() {
            return None;
        }
        if timeout.is_null() {
            return Some(if is_blocking { AcquireMode::Wait(Patience::Forever) } else { AcquireMode::Try });
        }
        let timeout_type = ffi::Py_TYPE(timeout);
        let timeout_s = if timeout_type == addr_of_mut!(ffi::PyFloat_Type) {
            ffi::PyFloat_AsDouble(timeout)
        } else if timeout_type == addr_of_mut!(ffi::PyLong_Type) {
            let mut overflow = 0;
            let number = ffi::PyLong_AsLongLongAndOverflow(timeout, &mut overflow);
            if overflow != 0 {
                return None;
            }
            number as f64
        } else {
            return None;
        };
        let is_valid = timeout_s == -1.0 || is_blocking && (0.0..=MAX_TIMEOUT_S).contains(&timeout_s);
        is_valid.then(|| of_values(is_blocking, timeout_s))
    }
}

/// Positional and keyword arguments of a fast call as objects.
///
/// # Safety
/// The arguments of a fast call with keywords; the GIL is held.
unsafe fn of_fast_call<'py>(
    py: Python<'py>,
    arguments: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    keyword_names: *mut ffi::PyObject,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
    let keywords = PyDict::new(py);
    // SAFETY: `positional` values, then one for each name; all are borrowed for the call.
    let values = unsafe {
        let argument = |index: usize| Bound::from_borrowed_ptr(py, *arguments.add(index));
        if let Some(names) = Bound::from_borrowed_ptr_or_opt(py, keyword_names) {
            for (index, name) in names.try_iter()?.enumerate() {
                keywords.set_item(name?, argument(positional as usize + index))?;
            }
        }
        PyTuple::new(py, (0..positional as usize).map(argument).collect::<Vec<_>>())?
    };
    Ok((values, keywords))
}

/// The mode for `acquire(*values, **keywords)`, if the plain lock accepts these arguments.
fn checked_mode(
    new_plain: &Bound<'_, PyAny>,
    values: &Bound<'_, PyTuple>,
    keywords: &Bound<'_, PyDict>,
) -> PyResult<AcquireMode> {
    new_plain.call0()?.getattr("acquire")?.call(values, Some(keywords))?;
    let argument = |index: usize, name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        match values.get_item(index) {
            Ok(value) => Ok(Some(value)),
            Err(_) => keywords.get_item(name),
        }
    };
    let is_blocking = argument(0, "blocking")?.map_or(Ok(true), |value| value.is_truthy())?;
    Ok(of_values(is_blocking, argument(1, "timeout")?.map_or(Ok(-1.0), |value| value.extract::<f64>())?))
}

/// As the interpreter, which rounds up to microseconds, for values that it accepts.
fn of_values(is_blocking: bool, timeout_s: f64) -> AcquireMode {
    let timeout_us = (timeout_s * 1e6).ceil();
    match is_blocking && timeout_us != 0.0 {
        false => AcquireMode::Try,
        true if timeout_us < 0.0 => AcquireMode::Wait(Patience::Forever),
        true => AcquireMode::Wait(Patience::Microseconds(timeout_us as i64)),
    }
}
