//! Converts trace ids, which are 128-bit integers. The limited API converts these only by arithmetic on Python objects.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;

use super::symbols::{symbols, LongBytes};

/// `Py_ASNATIVEBYTES_BIG_ENDIAN`, `_UNSIGNED_BUFFER` and `_REJECT_NEGATIVE`.
const BIG_ENDIAN_UNSIGNED: c_int = 4 | 8;

/// The big-endian bytes of an `int`; `None` when `number` is not an `int` or does not fit.
pub fn trace_id_bytes(number: &Bound<'_, PyAny>) -> Option<[u8; 16]> {
    let mut bytes = [0u8; 16];
    number.cast::<PyInt>().ok()?;
    // SAFETY: a live `int`; the functions write at most the given 16 bytes. A failure sets an exception, which is cleared.
    let fits = unsafe {
        match symbols().long_bytes {
            Some(LongBytes::Native(copy)) => {
                let needed = copy(number.as_ptr(), bytes.as_mut_ptr().cast(), 16, BIG_ENDIAN_UNSIGNED);
                if needed < 0 {
                    ffi::PyErr_Clear();
                }
                (0..=16).contains(&needed)
            }
            Some(LongBytes::Array(copy)) => {
                let failed = copy(number.as_ptr(), bytes.as_mut_ptr(), 16, 0, 0) != 0;
                if failed {
                    ffi::PyErr_Clear();
                }
                !failed
            }
            None => return number.extract::<u128>().ok().map(u128::to_be_bytes),
        }
    };
    fits.then_some(bytes)
}
