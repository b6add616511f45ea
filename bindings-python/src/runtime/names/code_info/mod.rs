//! Copies name, file, first line and line table of a code object. Called on the drain thread without the GIL, or by the
//! code-end hook with it. Not here: the check that the copy is valid (`resolve`).
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.10 | code objects have `co_name` only (`Include/cpython/code.h`) | `CodeLayout::name` |
//! | 3.11 | `co_qualname` | `CodeLayout::name` |

mod line_table;
pub(super) mod text;

#[cfg(feature = "testing")]
pub use text::read as read_text;

use std::sync::Arc;

use spanprof_aggregate::runtime::{Frame, FrameType};
use spanprof_signal::guarded;

use line_table::Position;

use crate::runtime::interpreter::layout::{fixed, InterpreterLayout, LineTableFormat};
use crate::runtime::walk::frame_word::FrameWord;

/// Larger tables are not copied: the frame then shows its first line.
const MAX_LINE_TABLE_BYTES: usize = 1 << 20;

/// A copy of a code object's names and line table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObjectInfo {
    /// Qualified name (plain name up to 3.10).
    pub name: Arc<str>,
    /// File name as compiled.
    pub file: Arc<str>,
    pub first_line: u32,
    format: LineTableFormat,
    line_table: Box<[u8]>,
}

impl CodeObjectInfo {
    /// Copies the code object at `code`; `None` when it is not readable.
    pub fn read(layout: &InterpreterLayout, code: usize) -> Option<Self> {
        let pointer = |offset: usize| guarded::read_u64(code.checked_add(offset)?).map(|word| word as usize);
        let name = text::read(&layout.text, pointer(layout.code.name)?)?;
        let file = text::read(&layout.text, pointer(layout.code.file)?)?;
        let first_line = guarded::read_u64(code.checked_add(layout.code.first_line)?)? as u32;
        let table = pointer(layout.code.line_table)?;
        let length = guarded::read_u64(table.checked_add(fixed::SIZE)?)? as usize;
        let line_table = if length <= MAX_LINE_TABLE_BYTES {
            text::read_bytes(table.checked_add(fixed::BYTES)?, length)?.into_boxed_slice()
        } else {
            Box::default()
        };
        Some(Self {
            name: name.into(),
            file: file.into(),
            // Only artificial code objects have a negative first line.
            first_line: if first_line > i32::MAX as u32 { 0 } else { first_line },
            format: layout.line_table,
            line_table,
        })
    }

    /// Line and column of the instruction at `unit`; `None` means "before the first instruction".
    pub fn position(&self, unit: Option<u32>) -> Position {
        match unit.filter(|_| !self.line_table.is_empty()) {
            Some(unit) => line_table::position(self.format, &self.line_table, self.first_line, unit),
            None => Position { line: self.first_line, column: 0 },
        }
    }

    pub fn frame(&self, word: FrameWord) -> Frame {
        let position = self.position(word.unit());
        Frame {
            function: Arc::clone(&self.name),
            file: Arc::clone(&self.file),
            start_line: self.first_line,
            line: position.line,
            column: position.column,
            frame_type: FrameType::Cpython,
            native: None,
        }
    }

    /// Approximate memory use.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.file.len() + self.line_table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_whose_line_table_is_too_large_has_its_first_line() {
        let info = CodeObjectInfo {
            name: "generated".into(),
            file: "tables.py".into(),
            first_line: 7,
            format: LineTableFormat::Locations,
            line_table: Box::default(),
        };
        assert_eq!(info.position(Some(3)), Position { line: 7, column: 0 });
    }
}
