//! Positions in baseline code, which follows its bytecode instruction by instruction. V8 stores the machine code size of each
//! bytecode (`BytecodeOffsetTable`); the source positions are those of the bytecode. Pure.

use super::{script_offset, Position, TableEncoding, NO_POSITION};

/// V8's data of one baseline code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Machine code bytes of the prologue, then of each bytecode: unsigned VLQ.
    pub code_sizes: Box<[u8]>,
    pub bytecode: Box<[u8]>,
    pub encoding: TableEncoding,
    /// The source position table of the bytecode.
    pub table: Box<[u8]>,
}

/// Sizes of bytecodes.
pub trait BytecodeLengths {
    /// Size of the first bytecode in `bytecode`, with its prefix and operands.
    fn length(&self, bytecode: &[u8]) -> Option<usize>;
}

impl Baseline {
    /// The positions in `len` bytes of machine code; `None` unless all parts match to the last byte.
    pub fn positions(&self, len: usize, lengths: Option<&impl BytecodeLengths>) -> Option<Box<[Position]>> {
        let lengths = lengths?;
        let bytecode_positions = self.encoding.positions(&self.table, self.bytecode.len())?;
        let mut code_sizes = &*self.code_sizes;
        let mut machine = unsigned(&mut code_sizes)?;
        let mut bytecode_offset = 0usize;
        let mut positions: Vec<Position> = Vec::new();
        while !code_sizes.is_empty() {
            let length = lengths.length(self.bytecode.get(bytecode_offset..)?)?;
            let position =
                script_offset(&bytecode_positions, u32::try_from(bytecode_offset).ok()?).unwrap_or(NO_POSITION);
            if positions.last().is_none_or(|last| last.1 != position) {
                positions.push((machine, position));
            }
            bytecode_offset += length;
            machine = machine.checked_add(unsigned(&mut code_sizes)?)?;
        }
        (bytecode_offset == self.bytecode.len() && machine as usize <= len).then(|| positions.into())
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.code_sizes.len() + self.bytecode.len() + self.table.len()
    }
}

fn unsigned(left: &mut &[u8]) -> Option<u32> {
    let (mut bits, mut shift) = (0u32, 0);
    loop {
        let (byte, rest) = left.split_first()?;
        *left = rest;
        bits |= ((byte & 0x7f) as u32).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(bits);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::positions::TABLE_ENCODINGS;

    /// A bytecode's first byte is its size.
    struct FirstByteIsSize;

    impl BytecodeLengths for FirstByteIsSize {
        fn length(&self, bytecode: &[u8]) -> Option<usize> {
            bytecode.first().map(|byte| *byte as usize).filter(|length| *length > 0)
        }
    }

    fn baseline(code_sizes: &[u8]) -> Baseline {
        // Bytecodes at 0, 2, 5, 6; position 9 from 0 on, 30 from 5 on.
        let bytecode = [2, 0, 3, 0, 0, 1, 4, 0, 0, 0].into();
        let table = [2, 40, 10, 84].into();
        Baseline { code_sizes: code_sizes.into(), bytecode, encoding: TABLE_ENCODINGS[0], table }
    }

    #[test]
    fn machine_code_has_the_positions_of_its_bytecodes() {
        let positions = baseline(&[20, 4, 0x81, 1, 6, 7]).positions(200, Some(&FirstByteIsSize));
        assert_eq!(positions.as_deref(), Some(&[(20, 9), (20 + 4 + 129, 30)][..]));
    }

    #[test]
    fn mismatching_parts_give_no_positions() {
        let none = |code_sizes: &[u8], len| {
            assert_eq!(baseline(code_sizes).positions(len, Some(&FirstByteIsSize)), None, "{code_sizes:?}")
        };
        none(&[20, 4, 5, 6], 200);
        none(&[20, 4, 5, 6, 7, 8], 200);
        none(&[20, 4, 5, 6, 7], 41);
        none(&[20, 4, 5, 6, 0x87], 200);
        assert_eq!(baseline(&[20, 4, 5, 6, 7]).positions(200, None::<&FirstByteIsSize>), None);
    }
}
