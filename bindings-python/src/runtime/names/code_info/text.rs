//! Reads Python strings from memory, without the GIL: every kind (ASCII, Latin-1, UCS-2, UCS-4; compact or not). Surrogates
//! become U+FFFD. Called by [`super::CodeObjectInfo`].
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.11 | `wstr` lies before the characters (`Include/cpython/unicodeobject.h`); a legacy string has a pointer to them | `TextLayout`, `read` |
//! | 3.12 | `wstr` and legacy strings are gone (PEP 623) | `TextLayout` |

use spanprof_signal::guarded;

use crate::runtime::interpreter::layout::{fixed, TextLayout};

/// Longer names and paths are truncated and end in `…`.
pub const MAX_CHARACTERS: usize = 2048;

const KIND_SHIFT: u32 = 2;
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// The `str` object at `address`; `None` when it is not readable.
pub fn read(layout: &TextLayout, address: usize) -> Option<String> {
    let length = usize::try_from(guarded::read_u64(address.checked_add(fixed::TEXT_LENGTH)?)?).ok()?;
    let state = guarded::read_u64(address.checked_add(fixed::TEXT_STATE)?)? as u32;
    let kept = length.min(MAX_CHARACTERS);
    let width = match (state >> KIND_SHIFT) & 7 {
        1 => 1,
        2 => 2,
        4 => 4,
        _ => return None,
    };
    let data = match (state & COMPACT != 0, state & ASCII != 0) {
        (true, true) => address.checked_add(layout.ascii_bytes)?,
        (true, false) => address.checked_add(layout.compact_bytes)?,
        // A subclass of str, or a legacy string: a pointer to the characters.
        (false, _) => guarded::read_u64(address.checked_add(layout.compact_bytes)?)? as usize,
    };
    let bytes = read_bytes(data, kept * width)?;
    let mut text = match width {
        1 => bytes.iter().map(|&byte| char::from(byte)).collect::<String>(),
        2 => decode(bytes.chunks_exact(2).map(|unit| u32::from(u16::from_ne_bytes([unit[0], unit[1]])))),
        _ => decode(bytes.chunks_exact(4).map(|unit| u32::from_ne_bytes([unit[0], unit[1], unit[2], unit[3]]))),
    };
    if kept < length {
        text.push('…');
    }
    Some(text)
}

/// A copy of `length` bytes at `address`.
pub fn read_bytes(address: usize, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; length];
    // SAFETY: `bytes` has exactly `length` bytes and is newly allocated, so it cannot overlap the source.
    let copied = length == 0 || unsafe { guarded::copy(bytes.as_mut_ptr(), address, length) };
    copied.then_some(bytes)
}

fn decode(units: impl Iterator<Item = u32>) -> String {
    units.map(|unit| char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
}
