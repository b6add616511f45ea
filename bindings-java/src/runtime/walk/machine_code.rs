//! Decodes one instruction of generated code: its bytes, its length and its branch target. Used by `instructions`
//! and `attribution`. Not a disassembler: instructions that HotSpot's compilers do not emit have no length. Guarded
//! reads only; x86-64 only.

use crate::runtime::vm::memory::VmMemory;

/// An instruction and the bytes after it.
pub struct Instruction {
    at: usize,
    pub code: [u8; 16],
}

/// The target of a branch instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    Jump(usize),
    /// The target or the next instruction.
    Conditional(usize),
    /// A return or an indirect jump.
    Indirect,
}

impl Instruction {
    /// The instruction at an address; `None` if the memory cannot be read.
    pub fn at(memory: impl VmMemory, at: usize) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        let mut code = [0; 16];
        code[..8].copy_from_slice(&memory.load(at)?.to_le_bytes());
        code[8..].copy_from_slice(&memory.load(at + 8)?.to_le_bytes());
        Some(Self { at, code })
    }

    /// The address of the next instruction; `None` if the length is unknown.
    pub fn next(&self) -> Option<usize> {
        Some(self.at + length(&self.code)?)
    }

    pub fn branch(&self) -> Option<Branch> {
        let to = |bytes: usize, distance: i32| self.at.wrapping_add(bytes).wrapping_add_signed(distance as isize);
        match self.code {
            [0xe9, a, b, c, d, ..] => Some(Branch::Jump(to(5, i32::from_le_bytes([a, b, c, d])))),
            [0xeb, distance, ..] => Some(Branch::Jump(to(2, i32::from(distance as i8)))),
            [0x70..=0x7f, distance, ..] => Some(Branch::Conditional(to(2, i32::from(distance as i8)))),
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => Some(Branch::Conditional(to(6, i32::from_le_bytes([a, b, c, d])))),
            [0xc3 | 0xc2, ..] => Some(Branch::Indirect),
            [0xff, operand, ..] | [0x41, 0xff, operand, ..] if operand >> 3 & 7 == 4 => Some(Branch::Indirect),
            _ => None,
        }
    }
}

/// SSE/AVX instructions of opcode map 1 with an 8-bit immediate.
fn has_immediate(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6)
}

/// Length in bytes of the first instruction in `code`; `None` for instructions that compilers do not emit.
pub fn length(code: &[u8; 16]) -> Option<usize> {
    let byte = |at: usize| code.get(at).copied();
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0xf0 | 0xf2 | 0xf3)).count();
    let wide = code.get(prefixes).is_some_and(|byte| byte & 0xf8 == 0x48);
    let mut at = prefixes + usize::from(byte(prefixes)? & 0xf0 == 0x40);
    let opcode = byte(at)?;
    at += 1;
    let immediate_bytes = if code[..prefixes].contains(&0x66) { 2 } else { 4 };
    let extension = (byte(at)? >> 3) & 7;
    let (has_modrm, immediate) = match opcode {
        0x00..=0x3f if opcode & 7 < 4 => (true, 0),
        0x00..=0x3f if opcode & 7 == 4 => (false, 1),
        0x00..=0x3f if opcode & 7 == 5 => (false, immediate_bytes),
        // With those of the x87.
        0x63 | 0x84..=0x8b | 0x8d | 0xd1 | 0xd3 | 0xd8..=0xdf | 0xfe => (true, 0),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => (true, 1),
        0x69 | 0x81 | 0xc7 => (true, immediate_bytes),
        0xf6 => (true, usize::from(extension < 2)),
        0xf7 => (true, if extension < 2 { immediate_bytes } else { 0 }),
        // inc, dec, call, jmp.
        0xff if extension < 3 || extension == 4 => (true, 0),
        0x50..=0x5f | 0x90 | 0x98 | 0x99 | 0x9b | 0x9c | 0x9d | 0xab => (false, 0),
        0x6a | 0x70..=0x7f | 0xa8 | 0xeb => (false, 1),
        0x68 | 0xa9 => (false, immediate_bytes),
        0xc2 => (false, 2),
        0xc3 => (false, 0),
        0xe8 | 0xe9 => (false, 4),
        0xb8..=0xbf => (false, if wide { 8 } else { 4 }),
        // Two-byte opcodes: branches, those with an immediate, those without ModRM, the rest.
        0x0f => {
            let second = byte(at)?;
            at += 1;
            match second {
                0x80..=0x8f => (false, 4),
                0xa4 | 0xac | 0xba => (true, 1),
                _ if has_immediate(second) => (true, 1),
                0x38 | 0x3a => {
                    at += 1;
                    (true, usize::from(second == 0x3a))
                }
                0x05 | 0x0b | 0x34 => return None,
                0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => (false, 0),
                _ => (true, 0),
            }
        }
        // VEX and EVEX prefixes of one, two or three bytes before the opcode.
        0xc5 => {
            at += 2;
            (byte(at - 1)? != 0x77, usize::from(has_immediate(byte(at - 1)?)))
        }
        0xc4 | 0x62 => {
            let map = byte(at)? & if opcode == 0xc4 { 0x1f } else { 3 };
            at += if opcode == 0xc4 { 3 } else { 4 };
            (true, usize::from(map == 3 || (map == 1 && has_immediate(byte(at - 1)?))))
        }
        _ => return None,
    };
    if has_modrm {
        let modrm = byte(at)?;
        at += 1;
        at += match (modrm >> 6, modrm & 7) {
            (3, _) => 0,
            (0, 4) if byte(at)? & 7 == 5 => 5,
            (0, 4) => 1,
            (0, 5) => 4,
            (0, _) => 0,
            (1, 4) => 2,
            (1, _) => 1,
            (_, 4) => 5,
            _ => 4,
        };
    }
    Some(at + immediate).filter(|length| *length <= 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::ProcessMemory;

    #[test]
    fn instruction_lengths_match_the_architecture() {
        for code in [
            &[0x48, 0x8b, 0x04, 0x25, 1, 0, 0, 0][..],
            &[0x48, 0x8b, 0x05, 1, 2, 3, 4],
            &[0xf3, 0x0f, 0x6f, 0x44, 0x24, 0x10],
            &[0xf3, 0x44, 0x0f, 0x7e, 0x84, 0x24, 0, 1, 0, 0],
            &[0xc4, 0xe1, 0xfb, 0x93, 0x04, 0x24],
            &[0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x44, 0x24, 0x01],
            &[0xc5, 0xf8, 0x77],
            &[0x41, 0xf7, 0xc2, 1, 0, 0, 0],
            &[0x48, 0xc7, 0x44, 0x24, 0x08, 1, 2, 3, 4],
            &[0x66, 0xc7, 0x44, 0x24, 0x08, 1, 2],
            &[0x0f, 0x84, 1, 2, 3, 4],
            &[0x48, 0x87, 0xf7],
            &[0xdd, 0x1c, 0x24],
            &[0xd9, 0xfe],
            &[0x9b],
            &[0x48, 0x99],
            &[0xc3],
            &[0xc2, 8, 0],
            &[0xeb, 5],
            &[0xe9, 1, 2, 3, 4],
            &[0xff, 0xe1],
            &[0x41, 0xff, 0x64, 0xc2, 8],
            &[0x48, 0x2d, 1, 2, 3, 4],
            &[0x3c, 1],
            &[0x66, 0x0f, 0x38, 0x17, 0xc0],
            &[0x66, 0x0f, 0x3a, 0x0b, 0xc0, 4],
            &[0xc5, 0xf9, 0x70, 0xc0, 0x4e],
            &[0xc5, 0xfb, 0xc2, 0xc1, 2],
            &[0x62, 0xf1, 0x7d, 0x48, 0x72, 0xd0, 5],
        ] {
            let mut padded = [0x90; 16];
            padded[..code.len()].copy_from_slice(code);
            assert_eq!(length(&padded), Some(code.len()), "{code:x?}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_branch_target_is_relative_to_the_next_instruction() {
        for (code, branch) in [
            (&[0xe9, 3, 0, 0, 0][..], Some((5 + 3, false))),
            (&[0xeb, 0xfe], Some((0, false))),
            (&[0x74, 5], Some((2 + 5, true))),
            (&[0x0f, 0x8c, 0xfa, 0xff, 0xff, 0xff], Some((0, true))),
            (&[0x48, 0x8b, 0xc3], None),
        ] {
            let mut padded = [0x90u8; 32];
            padded[..code.len()].copy_from_slice(code);
            let at = padded.as_ptr() as usize;
            let expected = branch.map(|(distance, is_conditional)| {
                if is_conditional {
                    Branch::Conditional(at + distance)
                } else {
                    Branch::Jump(at + distance)
                }
            });
            assert_eq!(Instruction::at(ProcessMemory, at).unwrap().branch(), expected, "{code:x?}");
            assert_eq!(Instruction::at(ProcessMemory, at).unwrap().next(), Some(at + code.len()), "{code:x?}");
        }
        for code in [&[0xc3][..], &[0xff, 0xe1], &[0x41, 0xff, 0xe2]] {
            let mut padded = [0x90u8; 32];
            padded[..code.len()].copy_from_slice(code);
            assert_eq!(
                Instruction::at(ProcessMemory, padded.as_ptr() as usize).unwrap().branch(),
                Some(Branch::Indirect),
                "{code:x?}"
            );
        }
    }
}
