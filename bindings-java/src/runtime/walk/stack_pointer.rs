//! How the code from a program counter on changes the stack pointer. Compiled code keeps words on top of its frame for a short
//! time, and stubs have no known frame size. The code is followed to a point where the stack pointer is known. Used by
//! `compiled` and `stub`, in the handler; guarded reads only. Nothing is followed on other architectures than x86-64.

use super::machine_code::{Branch, Instruction};
use crate::runtime::vm::memory::VmMemory;

/// Upper bound of the instructions of a slow path or a stub, up to a jump or a return.
const MAX_INSTRUCTIONS: usize = 96;
const MAX_SAVED_BYTES: usize = 4096;

/// An out-of-line slow path, which jumps back into the method's main code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPath {
    /// Size of the registers saved on top of the method's frame.
    pub saved_bytes: usize,
    /// The address at which the main code continues.
    pub resume_pc: usize,
}

/// The end of a followed instruction sequence.
enum End {
    Jump(usize),
    /// The address to which it was followed.
    Limit,
    /// A return, or an indirect jump (a tail call).
    Return,
    /// `leave`: the frame of the frame pointer is removed.
    Leave,
}

/// Follows the code at `pc` to its end or to `limit`, past conditional branches. Returns the bytes that it pops in all; `None` after
/// `max_instructions`.
fn follow(memory: impl VmMemory, pc: usize, limit: usize, max_instructions: usize) -> Option<(i64, End)> {
    let (mut at, mut popped) = (pc, 0i64);
    for _ in 0..max_instructions {
        if at >= limit {
            return Some((popped, End::Limit));
        }
        let instruction = Instruction::at(memory, at)?;
        let code = instruction.code;
        let imm32 = |from: usize| i32::from_le_bytes(std::array::from_fn(|index| code[from + index]));
        let imm8 = |from: usize| i64::from(code[from] as i8);
        let end = match instruction.branch() {
            Some(Branch::Jump(target)) => Some(End::Jump(target)),
            Some(Branch::Indirect) => Some(End::Return),
            Some(Branch::Conditional(_)) => None,
            None => match code {
                [0xc9, ..] | [0x48, 0x8b, 0xe5, ..] => Some(End::Leave),
                // The stack pointer is set to an unknown value.
                [0x48, 0x81 | 0x83, 0xe4, ..] | [0x48 | 0x49, 0x8b, 0xe0..=0xe7, ..] => return None,
                _ => None,
            },
        };
        if let Some(end) = end {
            return Some((popped, end));
        }
        popped += match code {
            [0x48, 0x83, 0xc4, ..] => imm8(3),
            [0x48, 0x83, 0xec, ..] => -imm8(3),
            [0x48, 0x81, 0xc4, ..] => i64::from(imm32(3)),
            [0x48, 0x81, 0xec, ..] => -i64::from(imm32(3)),
            [0x48, 0x8d, 0x64, 0x24, ..] => imm8(4),
            [0x48, 0x8d, 0xa4, 0x24, ..] => i64::from(imm32(4)),
            [0x50..=0x57 | 0x68 | 0x6a | 0x9c, ..] | [0x41, 0x50..=0x57, ..] => -8,
            [0x58..=0x5f | 0x9d, ..] | [0x41, 0x58..=0x5f, ..] => 8,
            _ => 0,
        };
        at = instruction.next()?;
    }
    None
}

/// Follows the code at `pc` to its jump back into the method's main code, which begins at `begin`.
pub fn slow_path(memory: impl VmMemory, pc: usize, begin: usize) -> Option<SlowPath> {
    let (popped, End::Jump(resume_pc)) = follow(memory, pc, usize::MAX, MAX_INSTRUCTIONS)? else { return None };
    let saved_bytes = usize::try_from(popped).ok().filter(|bytes| *bytes <= MAX_SAVED_BYTES)?;
    (resume_pc >= begin && resume_pc < pc).then_some(SlowPath { saved_bytes, resume_pc })
}

/// Follows compiled code to the end of its PcDesc's range, or to a jump back or a return if that comes first. There the frame has
/// nothing on top of it, or is removed. Returns the bytes on top of the frame at `pc`; 0 if the code cannot be followed.
///
/// C1 and C2 of JDK 8 compute `Math.exp` and `Math.pow` inline with words on top of the frame, and C1 saves all registers there
/// when `Math.sin` and its like call the VM (`MacroAssembler::pow_exp_core_encoding` and `fp_runtime_fallback`,
/// hotspot/src/cpu/x86/vm/macroAssembler_x86.cpp; later versions call stubs).
pub fn temporary_bytes(memory: impl VmMemory, pc: usize, range_end: usize, frame_bytes: usize) -> usize {
    const MAX_JUMPS: usize = 8;
    /// C2 unrolls a loop that calls `Math.log` to 150 instructions without a PcDesc.
    const MAX_IN_RANGE: usize = 256;
    let (mut at, mut popped) = (pc, 0);
    for _ in 0..MAX_JUMPS {
        let Some((more, end)) = follow(memory, at, range_end, MAX_IN_RANGE) else { return 0 };
        popped += more;
        let above_frame = match end {
            End::Jump(target) if target > at && target < range_end => {
                at = target;
                continue;
            }
            End::Jump(_) | End::Limit => popped,
            // The return address stays.
            End::Return => popped + 8 - frame_bytes as i64,
            End::Leave => 0,
        };
        return usize::try_from(above_frame).ok().filter(|bytes| *bytes <= MAX_SAVED_BYTES).unwrap_or(0);
    }
    0
}

/// Follows code without a known frame size to its return. Returns the offset of the return address from the stack
/// pointer; `Some(None)` if it is found by the frame pointer.
pub fn return_address_offset(memory: impl VmMemory, pc: usize) -> Option<Option<usize>> {
    let (mut at, mut popped) = (pc, 0);
    for _ in 0..4 {
        let (more, end) = follow(memory, at, usize::MAX, MAX_INSTRUCTIONS)?;
        popped += more;
        match end {
            End::Jump(target) => at = target,
            End::Limit => return None,
            End::Leave => return Some(None),
            End::Return => {
                return usize::try_from(popped).ok().filter(|bytes| *bytes <= MAX_SAVED_BYTES).map(Some);
            }
        }
    }
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use spanprof_signal::ProcessMemory;

    /// The address of `code`, padded before and after.
    fn code_at(code: &[u8]) -> usize {
        let all: Vec<u8> = [0; 32].iter().chain(code).chain(&[0; 32]).copied().collect();
        Vec::leak(all).as_ptr() as usize + 32
    }

    #[test]
    fn a_slow_path_has_its_saved_bytes_and_its_resume_pc() {
        // From a load barrier stub: two registers and half a vector saved around the call.
        let mut stub = vec![0x48, 0x83, 0xec, 0x20];
        stub.extend_from_slice(&[0x48, 0x89, 0x44, 0x24, 0x18]); // mov [rsp+24], rax
        stub.extend_from_slice(&[0xc5, 0xfa, 0x7f, 0x44, 0x24, 0x08]); // vmovdqu [rsp+8], xmm0
        stub.extend_from_slice(&[0x48, 0x8d, 0x73, 0x10]); // lea rsi, [rbx+16]
        stub.extend_from_slice(&[0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8, 0x41, 0xff, 0xd2]); // call r10
        let after_call = stub.len();
        stub.extend_from_slice(&[0x4c, 0x8b, 0xd8]); // mov r11, rax
        stub.extend_from_slice(&[0xc5, 0xfa, 0x6f, 0x44, 0x24, 0x08]);
        stub.extend_from_slice(&[0x48, 0x8b, 0x84, 0x24, 0x18, 0, 0, 0]);
        let releases = stub.len();
        stub.extend_from_slice(&[0x48, 0x81, 0xc4, 0x20, 0, 0, 0]);
        let jumps = stub.len();
        stub.extend_from_slice(&[0xe9]);
        stub.extend_from_slice(&(-(jumps as i32 + 5) - 16).to_le_bytes());
        let at = code_at(&stub);
        let (begin, resume_pc) = (at - 20, at - 16);
        for (pc, saved_bytes) in [(0, 0), (after_call, 32), (releases, 32), (jumps, 0)] {
            assert_eq!(slow_path(ProcessMemory, at + pc, begin), Some(SlowPath { saved_bytes, resume_pc }), "at {pc}");
        }
        assert_eq!(slow_path(ProcessMemory, at + after_call, at - 8), None, "it jumps to before the method's code");
    }

    #[test]
    fn a_pushed_register_counts_and_code_that_jumps_elsewhere_is_no_slow_path() {
        // Add, move, pop, jump back by 64.
        let stub = [0x48, 0x83, 0xc4, 0x10, 0x48, 0x8b, 0xd8, 0x58, 0xeb, 0xc0];
        let at = code_at(&stub);
        assert_eq!(slow_path(ProcessMemory, at, at - 64), Some(SlowPath { saved_bytes: 24, resume_pc: at + 10 - 64 }));
        // The end of a method, a jump onwards, a jump through a register.
        for code in [&[0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3][..], &[0xe9, 1, 0, 0, 0], &[0xff, 0xe0]] {
            let at = code_at(code);
            assert_eq!(slow_path(ProcessMemory, at, at - 16), None, "{code:x?}");
        }
    }

    #[test]
    fn a_stub_is_followed_to_its_return() {
        // A move, four pops, the return; then the same after a jump.
        let ends = [0x48, 0x8b, 0x74, 0x24, 0x30, 0x58, 0x59, 0x5e, 0x5f, 0xc3];
        let at = code_at(&ends);
        assert_eq!(
            [
                return_address_offset(ProcessMemory, at),
                return_address_offset(ProcessMemory, at + 7),
                return_address_offset(ProcessMemory, at + 9)
            ],
            [Some(Some(32)), Some(Some(16)), Some(Some(0))]
        );
        let jumps: Vec<u8> = [0x57, 0xeb, 2, 0xf4, 0xf4].into_iter().chain(ends).collect();
        assert_eq!(
            return_address_offset(ProcessMemory, code_at(&jumps)),
            Some(Some(24)),
            "one more register is popped"
        );
        assert_eq!(
            return_address_offset(ProcessMemory, code_at(&[0x48, 0x33, 0xc0, 0xc5, 0xf8, 0x77, 0xc9, 0xc3])),
            Some(None)
        );
        assert_eq!(return_address_offset(ProcessMemory, code_at(&[0x0f, 0x0b])), None);
    }

    /// A call of `Math.sin` in C1 code of 8u504, with fewer registers: each instruction, and the bytes on top of the frame before it.
    const CALL: [(&[u8], usize); 20] = [
        (&[0x48, 0x89, 0x64, 0x24, 0xd8], 0),                  // mov [rsp-40], rsp
        (&[0x48, 0x81, 0xec, 0x80, 0, 0, 0], 0),               // sub rsp, 128
        (&[0x48, 0x89, 0x44, 0x24, 0x78], 128),                // mov [rsp+120], rax
        (&[0x48, 0x81, 0xec, 0, 1, 0, 0], 128),                // sub rsp, 256
        (&[0xc4, 0xe3, 0x7d, 0x19, 0x4c, 0x24, 0x10, 1], 384), // vextractf128 [rsp+16], ymm1, 1
        (&[0x48, 0x83, 0xec, 8], 384),                         // sub rsp, 8
        (&[0xdd, 0x1c, 0x24], 392),                            // fstp [rsp]
        (&[0xf7, 0xc4, 0x0f, 0, 0, 0], 392),                   // test esp, 15
        (&[0x0f, 0x84, 18, 0, 0, 0], 392),                     // je over the next four
        (&[0x48, 0x83, 0xec, 8], 392),                         // sub rsp, 8
        (&[0xe8, 1, 2, 3, 4], 400),                            // call
        (&[0x48, 0x83, 0xc4, 8], 400),                         // add rsp, 8
        (&[0xe9, 5, 0, 0, 0], 392),                            // jmp over the call
        (&[0xe8, 1, 2, 3, 4], 392),                            // call
        (&[0xdd, 0x04, 0x24], 392),                            // fld [rsp]
        (&[0x48, 0x81, 0xc4, 8, 1, 0, 0], 392),                // add rsp, 264
        (&[0x48, 0x8b, 0x44, 0x24, 0x78], 128),                // mov rax, [rsp+120]
        (&[0x48, 0x81, 0xc4, 0x80, 0, 0, 0], 128),             // add rsp, 128
        (&[0xdd, 0x1c, 0x24], 0),                              // fstp [rsp]
        (&[0x0f, 0x8c, 0, 0xff, 0xff, 0xff], 0),               // jl to the loop's begin
    ];

    #[test]
    fn each_instruction_of_a_call_that_saves_all_registers_has_its_bytes_on_top_of_the_frame() {
        let call: Vec<u8> = CALL.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect();
        // mov edi, edi; add rsp, 64; pop rbp; test [poll], eax; ret
        let end = [0x8b, 0xff, 0x48, 0x83, 0xc4, 0x40, 0x5d, 0x85, 5, 1, 2, 3, 4, 0xc3];
        let begin = code_at(&[&call[..], &end].concat());
        let frame_bytes = 0x40 + 16;
        // To the end of the range, then to the return.
        for range_end in [begin + call.len() + 2, usize::MAX] {
            let mut at = begin;
            for (bytes, saved) in CALL {
                assert_eq!(temporary_bytes(ProcessMemory, at, range_end, frame_bytes), saved, "{bytes:x?}");
                at += bytes.len();
            }
            // The end itself.
            for offset in [0, 2, 6, 7, 13] {
                assert_eq!(temporary_bytes(ProcessMemory, at + offset, range_end, frame_bytes), 0);
            }
        }
    }

    #[test]
    fn a_jump_out_of_the_range_ends_it_and_code_of_unknown_length_counts_nothing() {
        // The block of a slow path: sub rsp, 8; pop rax; jump back by 16
        let at = code_at(&[0x48, 0x83, 0xec, 8, 0x58, 0xeb, 0xf0]);
        assert_eq!([0, 4, 5].map(|offset| temporary_bytes(ProcessMemory, at + offset, at + 9, 64)), [0, 8, 0]);
        let at = code_at(&[0x58, 0x0f, 0x0b]);
        assert_eq!(temporary_bytes(ProcessMemory, at, at + 3, 64), 0);
        let at = code_at(&[0x58, 0xeb, 0x10, 0x90]);
        assert_eq!(temporary_bytes(ProcessMemory, at, at + 4, 64), 8);
    }
}
