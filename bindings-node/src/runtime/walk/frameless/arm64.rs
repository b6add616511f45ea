//! V8's code for arm64 (`src/codegen/arm64/macro-assembler-arm64.cc`: `Prologue`, `EnterFrame`, `CallBuiltin`, `CallCFunction`;
//! `src/compiler/backend/arm64/code-generator-arm64.cc`: `AssembleConstructFrame`, `AssembleReturn`).

use spanprof_signal::Memory;

use super::CallTarget;
use crate::runtime::walk::native_code::StackRegisters;

/// Distance between a builtin's start and an instruction up to which the setup of a frame is searched for.
const MAX_PROLOGUE_DISTANCE: usize = 4096;
/// Words of code around the program counter that are searched for the setup or the end of its frame. Before the setup, optimized code
/// tests whether it is deoptimized; after the end, it drops its arguments.
const SEARCHED_WORDS: usize = 4;

/// `stp x29, x30, [sp, #-16]!`
const PUSH_FRAME: u32 = 0xa9bf_7bfd;
/// `ldp x29, x30, [sp], #16`
const POP_FRAME: u32 = 0xa8c1_7bfd;
/// `ret`
const RETURN: u32 = 0xd65f_03c0;
/// Registers.
const FRAME_POINTER: u32 = 29;
const ROOT: u32 = 26;

/// Whether the instruction is `add x29, sp, #offset`, of which `mov x29, sp` is one.
fn sets_frame_pointer(instruction: u32) -> bool {
    instruction & 0xffc0_03ff == 0x9100_03fd
}

/// `bl` or `blr`.
fn is_call(instruction: u32) -> bool {
    instruction >> 26 == 0x25 || instruction & 0xffff_fc1f == 0xd63f_0000
}

/// `b` or `br`.
fn is_jump(instruction: u32) -> bool {
    instruction >> 26 == 0x05 || instruction & 0xffff_fc1f == 0xd61f_0000
}

fn pair(word: usize) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Sign-extends the low bits.
fn signed(value: u32, bits: u32) -> isize {
    ((value << (32 - bits)) as i32 >> (32 - bits)) as isize
}

/// The return address where the interrupted code has no frame: before it sets up its frame, and after it has left it.
pub fn frameless_return(memory: &impl Memory, registers: &StackRegisters) -> Option<Option<usize>> {
    let pc = registers.pc;
    let words = |start: usize, step: isize| {
        (0..SEARCHED_WORDS as isize).map_while(move |index| memory.word(start.wrapping_add_signed(index * step)))
    };
    let mut before = words(pc.wrapping_sub(8), -8).flat_map(|word| pair(word).into_iter().rev());
    let mut after = words(pc, 8).flat_map(pair);
    let next = after.next()?;
    let is_end = |code: u32| [PUSH_FRAME, POP_FRAME, RETURN].contains(&code) || is_call(code);
    let last = before.find(|code| is_end(*code) || is_jump(*code));
    let is_frameless = next == RETURN
        || last == Some(POP_FRAME)
        || last == Some(PUSH_FRAME) && sets_frame_pointer(next)
        || std::iter::once(next).chain(after).find(|code| is_end(*code)) == Some(PUSH_FRAME);
    is_frameless.then_some(Some(registers.link))
}

/// The call that ends at `return_address`; `None` where no call does. `root`: the value of V8's root register, 0 if unknown.
pub fn call_before(memory: &impl Memory, return_address: usize, root: usize) -> Option<CallTarget> {
    let [load, call] = pair(memory.word(return_address.checked_sub(8)?)?);
    if !is_call(call) {
        return None;
    }
    if call >> 26 == 0x25 {
        return Some(CallTarget::Address(return_address.wrapping_sub(4).wrapping_add_signed(4 * signed(call, 26))));
    }
    let entry = if load & 0xffc0_03e0 == 0xf940_0000 | ROOT << 5 {
        // ldr xN, [x26, #offset]
        (root != 0).then(|| root.wrapping_add(8 * (load >> 10 & 0xfff) as usize))
    } else if load >> 24 == 0x58 {
        // ldr xN, literal
        Some(return_address.wrapping_sub(8).wrapping_add_signed(4 * signed(load >> 5, 19)))
    } else {
        None
    };
    let target = entry.filter(|_| load & 31 == call >> 5 & 31).and_then(|entry| memory.word(entry));
    Some(target.map_or(CallTarget::Unknown, CallTarget::Address))
}

/// Whether the code from `start` to `pc` sets up a frame anywhere, or is too long to tell.
pub fn sets_up_frame(memory: &impl Memory, start: usize, pc: usize) -> bool {
    if pc.wrapping_sub(start) > MAX_PROLOGUE_DISTANCE {
        return true;
    }
    (start..=pc)
        .step_by(8)
        .any(|address| memory.word(address).is_none_or(|word| pair(word).into_iter().any(sets_frame_pointer)))
}

/// Offsets from the root register at which V8's code stores the program counter and the frame pointer of a call of a C function. Not for
/// handlers: searches the code from `start` on.
pub fn fast_call_offsets(memory: &impl Memory, start: usize, len: usize) -> Option<[isize; 2]> {
    /// The first builtins write barriers, which call C functions.
    const MAX_SEARCHED: usize = 64 << 10;
    // str xN, [x26, #offset]
    let stored = |code: u32| {
        let offset = 8 * (code >> 10 & 0xfff) as isize;
        (code & 0xffc0_03e0 == 0xf900_0000 | ROOT << 5).then_some((code & 31, offset))
    };
    (start..start.saturating_add(len.min(MAX_SEARCHED))).step_by(4).find_map(|address| {
        let [first, second] = pair(memory.word(address)?);
        // stp xN, x29, [x26, #offset]
        if first & 0xffc0_7fe0 == 0xa900_0000 | FRAME_POINTER << 10 | ROOT << 5 {
            let offset = 8 * signed(first >> 15, 7);
            return Some([offset, offset.wrapping_add(8)]);
        }
        let ((_, pc), (register, fp)) = stored(first).zip(stored(second))?;
        (register == FRAME_POINTER && pc.abs_diff(fp) == 8).then_some([pc, fp])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const MOVE_STACK_POINTER: u32 = 0x9100_03fd;
    const CALL: u32 = 0x9400_0002;
    /// Address of the first instruction.
    const START: usize = 1 << 20;
    /// Number of the instructions before and behind the code of a test, whose words are readable.
    const AROUND: usize = 16;

    struct Code(Vec<u32>);

    impl Code {
        fn new(code: &[u32]) -> Self {
            Self([&[NOP; AROUND][..], code, &[NOP; AROUND]].concat())
        }

        fn address(index: usize) -> usize {
            START + 4 * (AROUND + index)
        }
    }

    impl Memory for Code {
        fn word(&self, address: usize) -> Option<usize> {
            let index = address.checked_sub(START)? / 4;
            Some(*self.0.get(index)? as usize | (*self.0.get(index + 1)? as usize) << 32)
        }
    }

    fn has_frame_at(code: &[u32], index: usize) -> bool {
        let registers = StackRegisters { pc: Code::address(index), sp: 0, fp: 0, link: 7 };
        let return_to = frameless_return(&Code::new(code), &registers);
        assert!([None, Some(Some(7))].contains(&return_to));
        return_to.is_none()
    }

    #[test]
    fn code_has_no_frame_before_it_sets_one_up_and_after_it_has_left_it() {
        let framed = [NOP, PUSH_FRAME, MOVE_STACK_POINTER, NOP, CALL, NOP, POP_FRAME, NOP, RETURN];
        let has_frame = [false, false, false, true, true, true, true, false, false];
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(|index| has_frame_at(&framed, index)), has_frame);
        // Code behind a jump or a return is reached from elsewhere.
        for end in [RETURN, 0x1400_0010] {
            assert!(has_frame_at(&[POP_FRAME, end, NOP, NOP], 2));
        }
    }

    #[test]
    fn the_target_of_a_call_is_read_from_its_instructions() {
        let return_address = Code::address(2);
        // The root register has the address of the word behind the call: 7, then 8.
        let target =
            |load: u32, call: u32| call_before(&Code::new(&[load, call, 7, 0, 8, 0]), return_address, return_address);
        let call_register = 0xd63f_0200;
        assert_eq!(target(NOP, CALL), Some(CallTarget::Address(return_address + 4)));
        assert_eq!(target(0xf940_0750, call_register), Some(CallTarget::Address(8)), "ldr x16, [x26, #8]; blr x16");
        assert_eq!(target(0x5800_0050, call_register), Some(CallTarget::Address(7)), "ldr x16, #8; blr x16");
        assert_eq!(target(0xf940_0751, call_register), Some(CallTarget::Unknown), "ldr x17, [x26, #8]; blr x16");
        assert_eq!(target(NOP, call_register), Some(CallTarget::Unknown));
        assert_eq!(target(CALL, NOP), None);
    }

    #[test]
    fn the_setup_of_a_frame_is_found_at_every_distance() {
        for distance in 0..20 {
            let mut code = [NOP; 40];
            // add x29, sp, #16
            code[distance] = 0x9100_43fd;
            let sets_up = |start, pc| sets_up_frame(&Code::new(&code), Code::address(start), Code::address(pc));
            assert!(sets_up(0, distance + 1) && !sets_up(distance + 1, 39), "{distance}");
        }
    }

    #[test]
    fn the_slots_of_a_call_of_a_c_function_are_those_of_the_code_that_stores_them() {
        let offsets = |code: &[u32]| fast_call_offsets(&Code::new(code), START, 4 * (AROUND + code.len()));
        assert_eq!(offsets(&[0xa902_7748]), Some([32, 40]), "stp x8, x29, [x26, #32]");
        assert_eq!(offsets(&[0xf900_1744, 0xf900_135d]), Some([40, 32]), "str x4, [x26, #40]; str x29, [x26, #32]");
        assert_eq!(offsets(&[0xf900_1744, 0xf900_135f]), None);
    }
}
