//! V8's code for x86-64 (`src/codegen/x64/macro-assembler-x64.cc`: `CallBuiltin`, `CallCFunction`).

use spanprof_signal::Memory;

use super::CallTarget;
use crate::runtime::walk::native_code::StackRegisters;

/// Distance between a builtin's start and an instruction up to which the setup of a frame is searched for.
const MAX_PROLOGUE_DISTANCE: usize = 4096;

/// The return address where the interrupted code has no frame: at its first instructions (`push rbp; mov rbp, rsp`) or at its
/// `ret`. The inner value is `None` where the address is unreadable.
pub fn frameless_return(memory: &impl Memory, registers: &StackRegisters) -> Option<Option<usize>> {
    let bytes = memory.word(registers.pc.checked_sub(1)?)?.to_le_bytes();
    let offset = match bytes {
        [_, 0x55, 0x48, 0x89, 0xe5, ..] | [_, 0x55, 0x48, 0x8b, 0xec, ..] | [_, 0xc3, ..] | [_, 0xc2, ..] => 0,
        [0x55, 0x48, 0x89, 0xe5, ..] | [0x55, 0x48, 0x8b, 0xec, ..] => 8,
        _ => return None,
    };
    Some(memory.word(registers.sp.wrapping_add(offset)))
}

/// The call that ends at `return_address`; `None` where no call does. `root`: the value of V8's root register, 0 if unknown.
pub fn call_before(memory: &impl Memory, return_address: usize, root: usize) -> Option<CallTarget> {
    let bytes = memory.word(return_address.checked_sub(8)?)?.to_le_bytes();
    let entry = |offset: i32| {
        let target = (root != 0).then(|| memory.word(root.wrapping_add_signed(offset as isize))).flatten();
        Some(target.map_or(CallTarget::Unknown, CallTarget::Address))
    };
    match bytes {
        // call rel32
        [_, _, _, 0xe8, a, b, c, d] => {
            let offset = i32::from_le_bytes([a, b, c, d]) as isize;
            Some(CallTarget::Address(return_address.wrapping_add_signed(offset)))
        }
        // call [r13 + offset]
        [_, 0x41, 0xff, 0x95, a, b, c, d] => entry(i32::from_le_bytes([a, b, c, d])),
        [_, _, _, _, 0x41, 0xff, 0x55, offset] => entry(i32::from(offset as i8)),
        // mov r10, imm64; call r10
        [.., 0x41, 0xff, 0xd2] => {
            let before = memory.word(return_address.checked_sub(13)?)?.to_le_bytes();
            let target =
                before.starts_with(&[0x49, 0xba]).then(|| memory.word(return_address.wrapping_sub(11))).flatten();
            Some(target.map_or(CallTarget::Unknown, CallTarget::Address))
        }
        // call reg; call [reg]; call [reg + offset]; call [r13 + reg + offset]
        [.., 0xff, 0xd0..=0xd7]
        | [.., 0xff, 0x10..=0x17]
        | [.., 0xff, 0x50..=0x57, _]
        | [_, _, 0xff, 0x90..=0x97, ..]
        | [0x41, 0xff, 0x94, ..] => Some(CallTarget::Unknown),
        _ => None,
    }
}

/// Whether the code from `start` to `pc` sets up a frame anywhere, or is too long to tell.
pub fn sets_up_frame(memory: &impl Memory, start: usize, pc: usize) -> bool {
    if pc.wrapping_sub(start) > MAX_PROLOGUE_DISTANCE {
        return true;
    }
    // Each word contains five places for the four bytes.
    (start..=pc).step_by(5).any(|address| {
        let Some(word) = memory.word(address) else { return true };
        word.to_le_bytes().windows(4).any(|bytes| bytes == [0x55, 0x48, 0x89, 0xe5])
    })
}

/// Offsets from the root register at which V8's code stores the program counter and the frame pointer of a call of a C function:
/// `mov [r13 + offset], r10; mov [r13 + offset], rbp`. Not for handlers: searches the code from `start` on.
pub fn fast_call_offsets(memory: &impl Memory, start: usize, len: usize) -> Option<[isize; 2]> {
    /// The first builtins write barriers, which call C functions.
    const MAX_SEARCHED: usize = 64 << 10;
    let store = |address: usize, opcode: [u8; 2], registers: u8| {
        let bytes = memory.word(address)?.to_le_bytes();
        match bytes {
            [a, b, mode, offset, ..] if [a, b] == opcode && mode == 0x45 | registers => {
                Some((isize::from(offset as i8), address.wrapping_add(4)))
            }
            [a, b, mode, c, d, e, f, _] if [a, b] == opcode && mode == 0x85 | registers => {
                Some((i32::from_le_bytes([c, d, e, f]) as isize, address.wrapping_add(7)))
            }
            _ => None,
        }
    };
    (start..start.saturating_add(len.min(MAX_SEARCHED))).find_map(|address| {
        let (pc, next) = store(address, [0x4d, 0x89], 0x10)?;
        let (fp, _) = store(next, [0x49, 0x89], 0x28)?;
        (pc.abs_diff(fp) == 8).then_some([pc, fp])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::ProcessMemory;

    #[test]
    fn a_return_address_is_found_before_the_frame_is_set_up_and_at_the_return() {
        let code: [u8; 16] = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0xc3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let stack = [17usize, 18];
        let return_at = |offset: usize| {
            let (pc, sp) = (code.as_ptr() as usize + offset, stack.as_ptr() as usize);
            frameless_return(&ProcessMemory, &StackRegisters { pc, sp, fp: 0, link: 0 })
        };
        assert_eq!([1, 2, 5, 6].map(return_at), [Some(Some(17)), Some(Some(18)), None, Some(Some(17))]);
    }

    #[test]
    fn the_target_of_a_call_is_read_from_its_instruction() {
        let table = [7usize, 8, 9];
        let root = table.as_ptr() as usize;
        let target = |instruction: &[u8]| {
            let mut code = [0x90; 24];
            code[16 - instruction.len()..16].copy_from_slice(instruction);
            let return_address = code.as_ptr() as usize + 16;
            match call_before(&ProcessMemory, return_address, root) {
                Some(CallTarget::Address(target)) => {
                    Some(target.wrapping_sub(return_address)).filter(|near| *near < 256).or(Some(target))
                }
                Some(CallTarget::Unknown) => Some(0),
                None => None,
            }
        };
        assert_eq!(target(&[0xe8, 0x20, 0, 0, 0]), Some(0x20));
        assert_eq!(target(&[0x41, 0xff, 0x95, 8, 0, 0, 0]), Some(8));
        assert_eq!(target(&[0x41, 0xff, 0x55, 16]), Some(9));
        assert_eq!(target(&[0x49, 0xba, 1, 2, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xd2]), Some(0x201));
        assert_eq!(target(&[0xff, 0xd1]), Some(0));
        assert_eq!(target(&[0x41, 0xff, 0x94, 0xd5, 0, 1, 0, 0]), Some(0));
        assert_eq!(target(&[0x48, 0x89, 0xe5]), None);
    }

    #[test]
    fn the_setup_of_a_frame_is_found_at_every_distance() {
        for distance in 0..40 {
            let mut code = [0x90u8; 64];
            code[distance..distance + 4].copy_from_slice(&[0x55, 0x48, 0x89, 0xe5]);
            let start = code.as_ptr() as usize;
            assert!(sets_up_frame(&ProcessMemory, start, start + distance + 4), "{distance}");
            assert!(!sets_up_frame(&ProcessMemory, start + distance + 1, start + 56), "{distance}");
        }
    }

    #[test]
    fn the_slots_of_a_call_of_a_c_function_are_those_of_the_code_that_stores_them() {
        let short = [0x90, 0x4d, 0x89, 0x55, 0x68, 0x49, 0x89, 0x6d, 0x60, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        let long = [0x4d, 0x89, 0x95, 0xa0, 0, 0, 0, 0x49, 0x89, 0xad, 0xa8, 0, 0, 0, 0x90, 0x90, 0x90, 0x90];
        let offsets = |code: &[u8]| fast_call_offsets(&ProcessMemory, code.as_ptr() as usize, code.len() - 8);
        assert_eq!(offsets(&short), Some([0x68, 0x60]));
        assert_eq!(offsets(&long), Some([0xa0, 0xa8]));
        assert_eq!(offsets(&short[3..]), None);
    }
}
