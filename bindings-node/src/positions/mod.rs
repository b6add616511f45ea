//! Resolves offsets in code to source locations: line tables, inlined functions, script texts, source maps. Pure except for
//! reading map files; implements V8's encodings without access to its memory. Called by the runtime, on the drain thread.

mod baseline;
pub mod builtin_names;
mod inlining;
mod line_table;
pub mod names;
mod script_functions;
mod scripts;
mod table;

pub use baseline::{Baseline, BytecodeLengths};
pub use inlining::{Inlining, InliningPosition};
pub use line_table::LineTable;
pub use scripts::{is_retained, CodeLocation, RetentionGuard, ScriptInfo, Scripts, OF_PROCESS};
pub use table::{unpack, PositionTableEntry, TableEncoding, TABLE_ENCODINGS};

/// Offset in machine code or bytecode, and offset in the script's source.
pub type Position = (u32, u32);

/// V8 has no position for this code.
pub const NO_POSITION: u32 = u32::MAX;

/// The script offset that the code at `offset` executes.
pub fn script_offset(positions: &[Position], offset: u32) -> Option<u32> {
    let after = positions.partition_point(|position| position.0 <= offset);
    after.checked_sub(1).map(|at| positions[at].1).filter(|at| *at != NO_POSITION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_the_position_of_the_entry_before_it() {
        let positions = [(2, 7), (10, NO_POSITION), (12, 9), (12, 11)];
        let at = [0, 2, 9, 10, 12, 99].map(|offset| script_offset(&positions, offset));
        assert_eq!(at, [None, Some(7), Some(7), None, Some(11), Some(11)]);
    }
}
