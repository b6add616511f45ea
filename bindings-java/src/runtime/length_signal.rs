//! How long an instruction of generated code is: what following such code needs (`instructions_signal`,
//! `nearby_signal`). Not a disassembler: instructions that compilers do not emit have no length.
#![cfg(target_arch = "x86_64")]

/// Vector instructions of the first map that carry a number.
fn numbered(opcode: u8) -> bool {
    matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6)
}

/// Bytes of the instruction that `code` begins with; `None` for those that such code does not have.
pub fn length(code: &[u8; 16]) -> Option<usize> {
    let byte = |at: usize| code.get(at).copied();
    let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0xf0 | 0xf2 | 0xf3)).count();
    let wide = code.get(prefixes).is_some_and(|byte| byte & 0xf8 == 0x48);
    let mut at = prefixes + usize::from(byte(prefixes)? & 0xf0 == 0x40);
    let opcode = byte(at)?;
    at += 1;
    let number = if code[..prefixes].contains(&0x66) { 2 } else { 4 };
    let selects = (byte(at)? >> 3) & 7;
    let (has_operand, immediate) = match opcode {
        0x00..=0x3f if opcode & 7 < 4 => (true, 0),
        0x00..=0x3f if opcode & 7 == 4 => (false, 1),
        0x00..=0x3f if opcode & 7 == 5 => (false, number),
        0x63 | 0x84..=0x8b | 0x8d | 0xd1 | 0xd3 | 0xfe => (true, 0),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => (true, 1),
        0x69 | 0x81 | 0xc7 => (true, number),
        0xf6 => (true, usize::from(selects < 2)),
        0xf7 => (true, if selects < 2 { number } else { 0 }),
        // Up, down, call; not the jumps.
        0xff if selects < 3 => (true, 0),
        0x50..=0x5f | 0x90 | 0x98 | 0x99 | 0x9c | 0x9d | 0xab => (false, 0),
        0x6a | 0x70..=0x7f | 0xa8 => (false, 1),
        0x68 | 0xa9 => (false, number),
        0xe8 => (false, 4),
        0xb8..=0xbf => (false, if wide { 8 } else { 4 }),
        // Two-byte opcodes: branches, those with a number, those without operands, the rest.
        0x0f => {
            let second = byte(at)?;
            at += 1;
            match second {
                0x80..=0x8f => (false, 4),
                0xa4 | 0xac | 0xba => (true, 1),
                _ if numbered(second) => (true, 1),
                0x38 | 0x3a => {
                    at += 1;
                    (true, usize::from(second == 0x3a))
                }
                0x05 | 0x0b | 0x34 => return None,
                0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => (false, 0),
                _ => (true, 0),
            }
        }
        // Vector instructions: the opcode comes behind one, two or three bytes.
        0xc5 => {
            at += 2;
            (byte(at - 1)? != 0x77, usize::from(numbered(byte(at - 1)?)))
        }
        0xc4 | 0x62 => {
            let map = byte(at)? & if opcode == 0xc4 { 0x1f } else { 3 };
            at += if opcode == 0xc4 { 3 } else { 4 };
            (true, usize::from(map == 3 || (map == 1 && numbered(byte(at - 1)?))))
        }
        _ => return None,
    };
    if has_operand {
        let operand = byte(at)?;
        at += 1;
        at += match (operand >> 6, operand & 7) {
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

    #[test]
    fn lengths_are_those_of_the_machine() {
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
            &[0x48, 0x99],
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
}
