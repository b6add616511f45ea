//! Reads Python strings, without a copy where possible: `tag_wrapper` with a new dictionary spends most of its time here. Not
//! here: the conversion of other values (`convert.rs`).

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::symbols::symbols;

/// The pairs of a dictionary whose keys and values are all plain text, borrowed from the strings themselves.
///
/// The borrow is valid while the dictionary is unchanged: no Python code may run before this value is dropped.
pub struct BorrowedPairs<'a> {
    /// Up to [`INLINE`] pairs, without an allocation.
    inline: [(&'a str, &'a str); INLINE],
    len: usize,
    /// All pairs, once there are more.
    heap: Vec<(&'a str, &'a str)>,
}

const INLINE: usize = 8;

impl<'a> BorrowedPairs<'a> {
    /// The pairs. `None` when a key or value is not a `str`, is invalid Unicode or longer than `max_characters`. Also `None`
    /// for more than `max_pairs`, and without the required function of the interpreter.
    // Inlined: otherwise the pairs are copied to the caller.
    #[inline(always)]
    pub fn of(dict: &'a Bound<'_, PyDict>, max_characters: usize, max_pairs: usize) -> Option<Self> {
        symbols().as_utf8_and_size?;
        if dict.len() > max_pairs {
            return None;
        }
        let mut pairs = Self { inline: [("", ""); INLINE], len: 0, heap: Vec::new() };
        let (mut position, mut key, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        // SAFETY: `dict` is a dictionary and unchanged during the iteration: reading text runs no Python code.
        while unsafe { ffi::PyDict_Next(dict.as_ptr(), &mut position, &mut key, &mut value) } != 0 {
            // SAFETY: both are borrowed from the dictionary, which keeps them alive for `'a` (type's contract).
            pairs.push(unsafe { (borrowed(key, max_characters)?, borrowed(value, max_characters)?) });
        }
        Some(pairs)
    }

    fn push(&mut self, pair: (&'a str, &'a str)) {
        if self.len < INLINE {
            self.inline[self.len] = pair;
        } else {
            if self.len == INLINE {
                self.heap.extend_from_slice(&self.inline);
            }
            self.heap.push(pair);
        }
        self.len += 1;
    }

    /// The pairs in the dictionary's order.
    pub fn as_slice(&self) -> &[(&'a str, &'a str)] {
        if self.len <= INLINE {
            &self.inline[..self.len]
        } else {
            &self.heap
        }
    }
}

/// The text of `object` if it is a string; no exception is left set.
///
/// # Safety
/// `object` is alive for `'a`, and the GIL is held.
unsafe fn borrowed<'a>(object: *mut ffi::PyObject, max_characters: usize) -> Option<&'a str> {
    let as_utf8_and_size = symbols().as_utf8_and_size?;
    // SAFETY: type and length are checked first; the returned bytes are UTF-8, owned by the string object and live as long as
    // it does.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 || ffi::PyUnicode_GetLength(object) > max_characters as ffi::Py_ssize_t {
            return None;
        }
        let mut bytes = 0;
        let start = as_utf8_and_size(object, &mut bytes);
        if start.is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        Some(std::str::from_utf8_unchecked(std::slice::from_raw_parts(start.cast(), bytes as usize)))
    }
}

/// A copy of the first `max_characters`; lone surrogates become U+FFFD. `None` when Python is out of memory.
pub fn owned(text: &Bound<'_, PyString>, max_characters: usize) -> Option<String> {
    let py = text.py();
    // SAFETY: `text` is a string; a result is a new reference, null comes with an exception, which is cleared.
    let cut = unsafe {
        let cut = ffi::PyUnicode_Substring(text.as_ptr(), 0, max_characters as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_opt(py, cut).or_else(|| {
            ffi::PyErr_Clear();
            None
        })?
    };
    // SAFETY: a live string shorter than the limit; the text is copied before `cut` is dropped.
    if let Some(valid) = unsafe { borrowed(cut.as_ptr(), max_characters) } {
        return Some(valid.to_owned());
    }
    // SAFETY: the buffer holds exactly the string's length in characters, and no terminator is requested.
    let characters = unsafe {
        let length = ffi::PyUnicode_GetLength(cut.as_ptr()).max(0);
        let mut buffer = vec![0u32; length as usize];
        if ffi::PyUnicode_AsUCS4(cut.as_ptr(), buffer.as_mut_ptr(), length, 0).is_null() {
            ffi::PyErr_Clear();
            return None;
        }
        buffer
    };
    Some(characters.into_iter().map(|code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}
