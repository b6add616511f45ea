//! The tables of one request and the look-up by wire index. Shared by `convert` and `attributes`.

use super::super::DecodeError;
use super::WHAT;
use spanprof_profile::{AttributeId, LinkId, StackId, StringId};

/// The error about a field.
pub(super) fn decode_error(at: String, expected: impl Into<String>, got: impl Into<String>) -> DecodeError {
    DecodeError { what: WHAT, at, expected: expected.into(), got: got.into() }
}

/// The entry at `index`. Index 0 of an absent table reads as its empty value.
pub(super) fn lookup<T: Copy + Default>(
    table: &[T],
    index: i32,
    at: impl FnOnce() -> String,
) -> Result<T, DecodeError> {
    match usize::try_from(index).ok().and_then(|index| table.get(index)) {
        Some(entry) => Ok(*entry),
        None if index == 0 => Ok(T::default()),
        None if table.is_empty() => Err(decode_error(at(), "0, for the table is empty", index.to_string())),
        None => Err(decode_error(at(), format!("an index below {}", table.len()), index.to_string())),
    }
}

/// Text and model ids by wire index.
pub(super) struct DecodedTables<'w> {
    pub texts: &'w [&'w str],
    pub strings: Vec<StringId>,
    pub attributes: Vec<AttributeId>,
    pub stacks: Vec<StackId>,
    pub links: Vec<LinkId>,
}
