//! From an offset in code to the place a person wrote: line tables, inlined functions, script texts, source maps. Pure but
//! for reading map files; knows V8's encodings, never its memory. Called by the runtime, on the drain thread.

mod baseline;
mod inlining;
mod line_table;
mod scripts;
mod table;

pub use baseline::{Baseline, Operations};
pub use inlining::{Call, Inlining};
pub use line_table::LineTable;
pub use scripts::{At, Held, ScriptFacts, Scripts};
pub use table::{unpack, Entry, Form, FORMS};

/// Offset in machine code or byte code, and offset in the script's text.
pub type Position = (u32, u32);

/// V8 knows no place for this code.
pub const NOWHERE: u32 = u32::MAX;

/// The script offset that the code at `offset` executes.
pub fn script_offset(positions: &[Position], offset: u32) -> Option<u32> {
    let after = positions.partition_point(|position| position.0 <= offset);
    after.checked_sub(1).map(|at| positions[at].1).filter(|at| *at != NOWHERE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_before_an_offset_is_its_place() {
        let positions = [(2, 7), (10, NOWHERE), (12, 9), (12, 11)];
        let at = [0, 2, 9, 10, 12, 99].map(|offset| script_offset(&positions, offset));
        assert_eq!(at, [None, Some(7), Some(7), None, Some(11), Some(11)]);
    }
}
