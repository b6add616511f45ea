//! Reads the instructions around a program counter for facts that HotSpot's metadata omits: how much of the frame is built,
//! and temporary words on top of it. Guarded reads only.
//!
//! Without these facts, walks at such instructions start at a wrong address. With ZGC on Java 17, 2 to 4 samples in 100 had a
//! broken stack, and with them 3 in 1,000; on Java 25 it was 1 walk in 200, and is 1 in 1,000. The caller is never guessed from
//! the words on the stack: the return addresses of finished calls lie there too. A word on top of the stack is a return address
//! only if a call precedes its target.
//!
//! # Versions
//! Upstream: `hotspot/cpu/x86/macroAssembler_x86.cpp`, `hotspot/cpu/x86/gc`. Encodings of JDK 8 to 25; an unknown
//! instruction ends the decoding, and the walk uses the exported frame size.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 17–25 | nmethod entry barrier: `cmp dword [r15+disp8], imm32` | `prologue` |
//! | 8–11 | safepoint poll before the return: `test` of a page (`hotspot/cpu/x86/x86_64.ad`) | `epilogue` |
//! | 17–25 | safepoint poll before the return: `cmp rsp, [r15+disp]; ja` | `epilogue` |
//! | 8–25 | native wrappers end with a check for an exception and a jump over the return | `epilogue` |
//! | 17 | c2i adapters store the sender sp by `mov r13, rsp`, others by `lea r13, [rsp+8]` | `STORES_SENDER_SP` |

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::super::frame_state::FrameState;
    use super::super::machine_code::{length, Branch, Instruction};
    use crate::runtime::vm::memory::VmMemory;

    /// The nmethod entry barrier: `cmp dword [r15+disp8], imm32`, eight bytes long.
    const ENTRY_BARRIER: [u8; 3] = [0x41, 0x81, 0x7f];
    /// Upper bound of the length of an adapter.
    const MAX_INSTRUCTIONS: usize = 96;

    fn bytes(memory: impl VmMemory, at: usize) -> Option<[u8; 8]> {
        memory.load(at).map(usize::to_le_bytes)
    }

    /// The frame state at a program counter before the frame is complete.
    pub fn prologue(memory: impl VmMemory, pc: usize) -> Option<FrameState> {
        let (code, before) = (bytes(memory, pc)?, bytes(memory, pc.checked_sub(8)?)?);
        let follows_barrier = before.starts_with(&ENTRY_BARRIER);
        let is_padding = |padding: usize| code.get(padding..).is_some_and(|rest| rest.starts_with(&ENTRY_BARRIER));
        match (code, before) {
            // The stack bang; `push rbp`.
            ([0x89, 0x84, 0x24, _, _, _, 0xff, _] | [0x55, ..], _) => Some(FrameState::NotBuilt),
            ([0x48, 0x8b, 0xec, ..], _) => Some(FrameState::FpPushed),
            // Frame allocation: after `push rbp`, or all at once.
            ([0x48, 0x81 | 0x83, 0xec, ..], [.., 0x55] | [.., 0x48, 0x8b, 0xec]) => Some(FrameState::FpPushed),
            ([0x48, 0x81 | 0x83, 0xec, ..], _) => Some(FrameState::NotBuilt),
            ([0x48, 0x89, 0x6c | 0xac, 0x24, ..], _) => Some(FrameState::FpNotSaved),
            ([0x41, 0x81, 0x7f, ..], _) => Some(FrameState::Complete),
            // After the entry barrier: a jump over the call, or to out-of-line code.
            ([0x74, ..] | [0x0f, 0x85, ..], _) if follows_barrier => Some(FrameState::Complete),
            ([0xe8, ..], [.., 0x74, 5]) => Some(FrameState::Complete),
            // Padding that aligns the entry barrier's immediate.
            ([0x90, ..], _) if is_padding(1) => Some(FrameState::Complete),
            ([0x66, 0x90, ..], _) if is_padding(2) => Some(FrameState::Complete),
            ([0x0f, 0x1f, 0, ..], _) if is_padding(3) => Some(FrameState::Complete),
            _ => None,
        }
    }

    /// The frame state at a program counter that may be in an epilogue.
    pub fn epilogue(memory: impl VmMemory, pc: usize) -> Option<FrameState> {
        match bytes(memory, pc)? {
            [0xc3 | 0xc2, ..] => Some(FrameState::NotBuilt),
            [0x5d, ..] => Some(FrameState::FpPushed),
            // The safepoint poll before the return: `cmp rsp, [r15+disp]`, then a branch; up to Java 11 a load from a page.
            [0x49, 0x3b, 0x67 | 0xa7, ..] | [0x0f, 0x87, _, _, _, _, 0xc3, _] => Some(FrameState::NotBuilt),
            [0x85, 0x05, _, _, _, _, 0xc3, _] | [0x41, 0x85, 0x02, 0xc3, ..] => Some(FrameState::NotBuilt),
            [0x4d, 0x8b, 0x57 | 0x97, ..] | [0x49, 0xba, ..] => {
                let poll = bytes(memory, Instruction::at(memory, pc)?.next()?)?;
                poll.starts_with(&[0x41, 0x85, 2, 0xc3]).then_some(FrameState::NotBuilt)
            }
            // The exit of native wrappers: a check for a pending exception, and a jump over the return.
            [0x49, 0x83, 0x7f, _, 0, 0x0f, 0x85, 1] | [0x0f, 0x85, 1, 0, 0, 0, 0xc3, _] => Some(FrameState::NotBuilt),
            // A jump to the exception unwinder in place of the return.
            [0xe9, ..] => match bytes(memory, pc.checked_sub(8)?)? {
                [0x48, 0x81, 0xc4, .., 0x5d] | [.., 0x48, 0x83, 0xc4, _, 0x5d] => Some(FrameState::NotBuilt),
                _ => None,
            },
            _ => None,
        }
    }

    /// At the first instructions of the stub of a safepoint poll, which begins with `push rbx; push rbp; mov rbp, rsp`: the bytes that
    /// it has pushed.
    pub fn poll_stub_bytes(memory: impl VmMemory, begin: usize, pc: usize) -> Option<usize> {
        let pushes = pc.checked_sub(begin).filter(|pushes| *pushes <= 2)?;
        bytes(memory, begin)?.starts_with(&[0x53, 0x55, 0x48, 0x8b, 0xec]).then_some(8 * pushes)
    }

    /// Whether a call instruction ends right before `pc`.
    pub fn follows_call(memory: impl VmMemory, pc: usize) -> bool {
        let Some(before) = pc.checked_sub(8).and_then(|at| bytes(memory, at)) else { return false };
        let is_indirect_call = (2..=7).any(|len| {
            let mut code = [0x90; 16];
            code[..len].copy_from_slice(&before[8 - len..]);
            code[0] == 0xff && code[1] >> 3 & 7 == 2 && length(&code) == Some(len)
        });
        before[3] == 0xe8 || is_indirect_call
    }

    /// Whether `pc` is in a to-interpreter stub of a compiled caller: `mov rbx, method; jmp`.
    pub fn is_to_interpreter_stub(memory: impl VmMemory, pc: usize) -> bool {
        let at = |distance: usize| pc.checked_sub(distance).and_then(|at| bytes(memory, at));
        match at(0) {
            Some([0x48, 0xbb, ..]) => {
                pc.checked_add(10).and_then(|at| bytes(memory, at)).is_some_and(|code| code[0] == 0xe9)
            }
            Some([0xe9, ..]) => at(10).is_some_and(|code| code.starts_with(&[0x48, 0xbb])),
            _ => false,
        }
    }

    /// Whether the code at `pc` is `add rsp, imm`.
    pub fn releases_stack(memory: impl VmMemory, pc: usize) -> bool {
        matches!(bytes(memory, pc), Some([0x48, 0x81 | 0x83, 0xc4, ..]))
    }

    /// Bytes of stack arguments of the call that returns to `pc`. C1's slow subtype check has two words, popped into one
    /// register.
    pub fn stack_argument_bytes(memory: impl VmMemory, pc: usize) -> usize {
        match bytes(memory, pc) {
            Some([first @ (0x58..=0x5c | 0x5e | 0x5f), second, ..]) if first == second => 16,
            Some([0x41, first @ 0x58..=0x5f, 0x41, second, ..]) if first == second => 16,
            _ => 0,
        }
    }

    /// Bytes of these stack arguments that are pushed when `pc` is interrupted, at or next to such a call.
    pub fn pushed_argument_bytes(memory: impl VmMemory, pc: usize) -> usize {
        let pops = |at: usize| stack_argument_bytes(memory, at) > 0;
        let calls = |at: usize| bytes(memory, at).is_some_and(|code| code[0] == 0xe8) && pops(at + 5);
        let Some(code) = bytes(memory, pc) else { return 0 };
        let (push_bytes, pop_bytes) = match code {
            [0x50..=0x57, ..] => (1, 0),
            [0x41, 0x50..=0x57, ..] => (2, 0),
            [0x58..=0x5f, ..] => (0, 1),
            [0x41, 0x58..=0x5f, ..] => (0, 2),
            _ => (0, 0),
        };
        let is_first_pop = pop_bytes > 0 && pops(pc) && follows_call(memory, pc);
        let is_last_pop = pop_bytes > 0 && pops(pc - pop_bytes) && follows_call(memory, pc - pop_bytes);
        match (calls(pc) || is_first_pop, (push_bytes > 0 && calls(pc + push_bytes)) || is_last_pop) {
            (true, _) => 16,
            (false, true) => 8,
            _ => 0,
        }
    }

    /// Whether `pc` is in a c2i adapter that has stored the caller's stack pointer in r13 and jumps to a method's
    /// interpreter entry.
    pub fn is_c2i_adapter(memory: impl VmMemory, pc: usize) -> bool {
        /// `lea r13, [rsp+8]`, or `mov r13, rsp` after the return address is popped.
        const STORES_SENDER_SP: [&[u8]; 2] = [&[0x4c, 0x8d, 0x6c, 0x24, 8], &[0x4c, 0x8b, 0xec]];
        const ENTRY: [u8; 3] = [0x48, 0x8b, 0x4b];
        let mut at = pc;
        for _ in 0..MAX_INSTRUCTIONS {
            let Some(instruction) = Instruction::at(memory, at) else { return false };
            match (instruction.code, instruction.branch()) {
                ([0xff, 0xe1, ..], _) => return bytes(memory, at - 4).is_some_and(|before| before.starts_with(&ENTRY)),
                ([0xff, ..], _) | (_, Some(Branch::Jump(_) | Branch::Indirect)) => return false,
                (code, _) if STORES_SENDER_SP.iter().any(|stores| code.starts_with(stores)) => return false,
                _ => {}
            }
            let Some(next) = instruction.next() else { return false };
            at = next;
        }
        false
    }

    /// Where a stub returns to an intrinsic that the interpreter enters without a frame: the offset of its own return address.
    /// It ends with `pop rdi; mov rsp, r13; jmp rdi`, after `add rsp, 8; jmp` if the stack was aligned for the call
    /// (`hotspot/cpu/x86/templateInterpreterGenerator_x86_64.cpp`, JDK 11–25; in 8
    /// `templateInterpreter_x86_64.cpp`).
    pub fn intrinsic_return_offset(memory: impl VmMemory, pc: usize) -> Option<usize> {
        let (end, offset) = match bytes(memory, pc)? {
            [0x48, 0x83, 0xc4, 8, 0xe9, distance, 0, 0] => (pc.checked_add(9 + usize::from(distance))?, 8),
            _ => (pc, 0),
        };
        matches!(bytes(memory, end)?, [0x58..=0x5f, 0x49, 0x8b, 0xe5, 0xff, 0xe0..=0xe7, ..]).then_some(offset)
    }

    #[cfg(test)]
    mod tests {
        use super::super::x86_64::*;
        use spanprof_signal::ProcessMemory;

        /// The address of `code`, padded before and after.
        fn code_at(before: &[u8], code: &[u8]) -> usize {
            let mut all = vec![0u8; 32 - before.len()];
            all.extend_from_slice(before);
            let at = all.len();
            all.extend_from_slice(code);
            all.extend_from_slice(&[0; 32]);
            Vec::leak(all).as_ptr() as usize + at
        }

        #[test]
        fn returns_and_the_safepoint_poll_before_them_have_no_frame() {
            let at = |code: &[u8]| epilogue(ProcessMemory, code_at(&[], code));
            assert_eq!(at(&[0xc3]), Some(FrameState::NotBuilt));
            assert_eq!(at(&[0x5d, 0x49, 0x3b]), Some(FrameState::FpPushed));
            assert_eq!(at(&[0x49, 0x3b, 0x67, 0x18, 0x0f, 0x87]), Some(FrameState::NotBuilt));
            assert_eq!(at(&[0x0f, 0x87, 1, 2, 3, 4, 0xc3, 0]), Some(FrameState::NotBuilt));
            assert_eq!(at(&[0x49, 0x83, 0x7f, 8, 0, 0x0f, 0x85, 1, 0, 0, 0, 0xc3]), Some(FrameState::NotBuilt));
            assert_eq!(at(&[0x0f, 0x85, 1, 0, 0, 0, 0xc3]), Some(FrameState::NotBuilt));
            assert_eq!(at(&[0x0f, 0x85, 1, 2, 0, 0, 0xc3]), None);
            assert_eq!(at(&[0x48, 0x89, 0xe5]), None);
        }

        #[test]
        fn each_instruction_of_a_prologue_has_its_frame_state() {
            let bang = [0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff];
            let guard = [0x41, 0x81, 0x7f, 0x20, 1, 0, 0, 0];
            for (before, code, built) in [
                (&[][..], &bang[..], FrameState::NotBuilt),
                (&bang, &[0x55, 0x48, 0x83, 0xec, 0x20], FrameState::NotBuilt),
                (&[0x55], &[0x48, 0x83, 0xec, 0x20], FrameState::FpPushed),
                (&[0x55], &[0x48, 0x8b, 0xec], FrameState::FpPushed),
                (&[0x55, 0x48, 0x8b, 0xec], &[0x48, 0x81, 0xec, 0, 1, 0, 0], FrameState::FpPushed),
                (&[], &[0x48, 0x81, 0xec, 0x18, 0, 0, 0], FrameState::NotBuilt),
                (&[], &[0x48, 0x89, 0x6c, 0x24, 0x10], FrameState::FpNotSaved),
                (&[], &guard, FrameState::Complete),
                (&guard, &[0x74, 5, 0xe8], FrameState::Complete),
                (&guard, &[0x0f, 0x85, 1, 2, 3, 4], FrameState::Complete),
                (&[0x74, 5], &[0xe8, 1, 2, 3, 4], FrameState::Complete),
                (&[], &[0x66, 0x90, 0x41, 0x81, 0x7f], FrameState::Complete),
            ] {
                assert_eq!(prologue(ProcessMemory, code_at(before, code)), Some(built), "{code:x?}");
            }
            // The inline cache check of the receiver's class, and padding before the entry.
            for code in [&[0x0f, 0x85, 1, 2, 3, 4][..], &[0x66, 0x90, 0x89, 0x84, 0x24]] {
                assert_eq!(prologue(ProcessMemory, code_at(&[0x48, 0x3b, 0xc2], code)), None);
            }
        }

        #[test]
        fn the_load_of_a_poll_before_the_return_has_no_frame() {
            let by_register = [0x4d, 0x8b, 0x57, 0x70, 0x41, 0x85, 2, 0xc3];
            for code in [&[0x85, 5, 1, 2, 3, 4, 0xc3][..], &by_register, &by_register[4..]] {
                assert_eq!(epilogue(ProcessMemory, code_at(&[0x5d], code)), Some(FrameState::NotBuilt), "{code:x?}");
            }
            assert_eq!(epilogue(ProcessMemory, code_at(&[0x5d], &by_register[..7])), None, "the poll of a loop");
        }

        #[test]
        fn code_that_jumps_in_place_of_its_return_has_no_frame() {
            let jump = [0xe9, 1, 2, 3, 4];
            assert_eq!(
                epilogue(ProcessMemory, code_at(&[0x48, 0x83, 0xc4, 0x10, 0x5d], &jump)),
                Some(FrameState::NotBuilt)
            );
            assert_eq!(
                epilogue(ProcessMemory, code_at(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0x5d], &jump)),
                Some(FrameState::NotBuilt)
            );
            assert_eq!(epilogue(ProcessMemory, code_at(&[0x48, 0x89, 0x5d], &jump)), None);
        }

        #[test]
        fn a_c2i_adapter_is_recognized_from_the_stored_sender_sp_to_its_jump() {
            // lea r13, [rsp+8]; pop rax; sub rsp, 16; push rax; mov [rsp+16], rsi; mov rcx, [rbx+56]; jmp rcx
            let mut adapter = vec![0x4c, 0x8d, 0x6c, 0x24, 8, 0x58, 0x48, 0x83, 0xec, 0x10, 0x50];
            adapter.extend_from_slice(&[0x48, 0x89, 0x74, 0x24, 0x10, 0x48, 0x8b, 0x4b, 0x38, 0xff, 0xe1]);
            let at = code_at(&[], &adapter);
            assert_eq!(
                [0, 5, 6, 10, 11, 16, 20].map(|offset| is_c2i_adapter(ProcessMemory, at + offset)),
                [false, true, true, true, true, true, true]
            );
            // Java 17: pop rax; mov r13, rsp; sub rsp, 16; mov [rsp], rax; the same jump
            let mut adapter = vec![0x58, 0x4c, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x04, 0x24];
            adapter.extend_from_slice(&[0x48, 0x8b, 0x4b, 0x38, 0xff, 0xe1]);
            let at = code_at(&[], &adapter);
            assert_eq!(
                [0, 1, 4, 8, 12, 16].map(|offset| is_c2i_adapter(ProcessMemory, at + offset)),
                [false, false, true, true, true, true]
            );
            assert!(!is_c2i_adapter(ProcessMemory, code_at(&[], &[0x58, 0xff, 0xe1])), "a jump elsewhere");
            assert!(!is_c2i_adapter(ProcessMemory, code_at(&[], &[0x58, 0xc3])));
        }

        #[test]
        fn an_intrinsic_without_a_frame_is_recognized_where_its_stub_returns() {
            // CRC32C.updateBytes after its aligned call, and after the other one; Math.sin
            let end = [0x48, 0x83, 0xc4, 8, 0xe9, 5, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x5f, 0x49, 0x8b, 0xe5, 0xff, 0xe7];
            let at = code_at(&[], &end);
            assert_eq!([0, 14, 4].map(|pc| intrinsic_return_offset(ProcessMemory, at + pc)), [Some(8), Some(0), None]);
            let sin = code_at(&[], &[0x58, 0x49, 0x8b, 0xe5, 0xff, 0xe0]);
            assert_eq!(intrinsic_return_offset(ProcessMemory, sin), Some(0));
        }

        #[test]
        fn the_stub_of_a_poll_has_pushed_nothing_a_word_for_the_return_address_or_the_frame_pointer_too() {
            // push rbx; push rbp; mov rbp, rsp; push r11
            let at = code_at(&[], &[0x53, 0x55, 0x48, 0x8b, 0xec, 0x41, 0x53]);
            let pushed = [0, 1, 2, 5].map(|offset| poll_stub_bytes(ProcessMemory, at, at + offset));
            assert_eq!(pushed, [Some(0), Some(8), Some(16), None]);
            // A stub that is called, whatever byte is before it.
            let at = code_at(&[0x53], &[0x55, 0x48, 0x8b, 0xec]);
            assert_eq!([at, at + 1].map(|pc| poll_stub_bytes(ProcessMemory, at, pc)), [None, None]);
        }

        #[test]
        fn a_to_interpreter_stub_is_recognized_at_both_of_its_instructions() {
            let stub = [0x48, 0xbb, 1, 2, 3, 4, 5, 6, 0, 0, 0xe9, 1, 2, 3, 4];
            let at = code_at(&[], &stub);
            assert!(is_to_interpreter_stub(ProcessMemory, at) && is_to_interpreter_stub(ProcessMemory, at + 10));
            assert!(!is_to_interpreter_stub(ProcessMemory, code_at(&[], &[0x48, 0xbb, 1, 2, 3, 4, 5, 6, 0, 0, 0x90])));
        }

        #[test]
        fn a_call_is_recognized_by_its_return_address() {
            assert!(follows_call(ProcessMemory, code_at(&[0xe8, 1, 2, 3, 4], &[0x90])));
            for call in
                [&[0x41, 0xff, 0xd2][..], &[0xff, 0x15, 1, 2, 3, 4], &[0xff, 0x50, 0x18], &[0xff, 0x54, 0x24, 8]]
            {
                assert!(follows_call(ProcessMemory, code_at(call, &[0x90])), "{call:x?}");
            }
            assert!(!follows_call(ProcessMemory, code_at(&[0x48, 0x89, 0xe5], &[0x90])));
            let passed = [&[0x5e, 0x5e][..], &[0x41, 0x5a, 0x41, 0x5a], &[0x5d, 0x5d], &[0x5e, 0x5f]];
            assert_eq!(passed.map(|code| stack_argument_bytes(ProcessMemory, code_at(&[], code))), [16, 16, 0, 0]);
        }

        #[test]
        fn each_instruction_around_a_subtype_check_has_its_bytes_of_stack_arguments() {
            // push rdi, push rbx, call, pop rdi, pop rdi, test edi, edi
            let at = code_at(&[0x0f, 0x84, 1, 2, 3, 4], &[0x57, 0x53, 0xe8, 1, 2, 3, 4, 0x5f, 0x5f, 0x85, 0xff]);
            assert_eq!(
                [0, 1, 2, 7, 8, 9].map(|offset| pushed_argument_bytes(ProcessMemory, at + offset)),
                [0, 8, 16, 16, 8, 0]
            );
            let far = code_at(&[0x90], &[0x41, 0x52, 0x57, 0xe8, 1, 2, 3, 4, 0x41, 0x5a, 0x41, 0x5a, 0x90]);
            assert_eq!(
                [0, 2, 3, 8, 10, 12].map(|offset| pushed_argument_bytes(ProcessMemory, far + offset)),
                [0, 8, 16, 16, 8, 0]
            );
            assert_eq!(
                pushed_argument_bytes(ProcessMemory, code_at(&[0x90], &[0xe8, 1, 2, 3, 4, 0x5f, 0x5e])),
                0,
                "another call"
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    epilogue, follows_call, intrinsic_return_offset, is_c2i_adapter, is_to_interpreter_stub, poll_stub_bytes, prologue,
    pushed_argument_bytes, releases_stack, stack_argument_bytes,
};

#[cfg(not(target_arch = "x86_64"))]
pub use super::instructions_unsupported::{
    epilogue, follows_call, intrinsic_return_offset, is_c2i_adapter, is_to_interpreter_stub, poll_stub_bytes, prologue,
    pushed_argument_bytes, releases_stack, stack_argument_bytes,
};
