//! What the instructions around a program counter say of the frame there: whether it is built yet or still, and what lies
//! on top of it for a while. Compilers tell the size of a frame, but not that. Guarded reads only.

#[cfg(target_arch = "x86_64")]
use super::memory_signal::word;

/// How much of its frame code has, where it builds it or takes it down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other machines keep their return address"))]
pub enum Built {
    /// Nothing: the return address is on top of the stack.
    Nothing,
    /// The caller's frame pointer is on top of the stack, then the return address.
    Pushed,
    /// All but the caller's frame pointer, which still is in its register.
    WithoutPointer,
    Whole,
}

/// Code beside a method's own, which goes back into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// What lies on top of the method's frame meanwhile: registers that are kept.
    pub kept_bytes: usize,
    /// Where the method's own code goes on.
    pub resumes: usize,
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::super::machine_code_signal::{length, Branch, Instruction};
    use super::{word, Built, Detour};

    /// The guard at a method's entry that collectors arm: a word of the thread against a number, eight bytes long.
    const GUARD: [u8; 3] = [0x41, 0x81, 0x7f];
    /// Stubs that keep registers are no longer.
    const MAX_INSTRUCTIONS: usize = 96;
    const MAX_KEPT_BYTES: usize = 4096;

    fn bytes(at: usize) -> Option<[u8; 8]> {
        word(at).map(usize::to_le_bytes)
    }

    /// At a place before the frame is complete.
    pub fn prologue(pc: usize) -> Option<Built> {
        let (code, before) = (bytes(pc)?, bytes(pc.checked_sub(8)?)?);
        let guarded = before.starts_with(&GUARD);
        let behind = |padding: usize| code.get(padding..).is_some_and(|rest| rest.starts_with(&GUARD));
        match (code, before) {
            // A touch of the stack's end, below it; the frame pointer is pushed.
            ([0x89, 0x84, 0x24, _, _, _, 0xff, _] | [0x55, ..], _) => Some(Built::Nothing),
            ([0x48, 0x8b, 0xec, ..], _) => Some(Built::Pushed),
            // The stack pointer goes down: behind the frame pointer's push, or by all at once.
            ([0x48, 0x81 | 0x83, 0xec, ..], [.., 0x55] | [.., 0x48, 0x8b, 0xec]) => Some(Built::Pushed),
            ([0x48, 0x81 | 0x83, 0xec, ..], _) => Some(Built::Nothing),
            ([0x48, 0x89, 0x6c | 0xac, 0x24, ..], _) => Some(Built::WithoutPointer),
            ([0x41, 0x81, 0x7f, ..], _) => Some(Built::Whole),
            // What follows the guard: a jump over the call, or out of line.
            ([0x74, ..] | [0x0f, 0x85, ..], _) if guarded => Some(Built::Whole),
            ([0xe8, ..], [.., 0x74, 5]) => Some(Built::Whole),
            // Padding, so that the guard's number lies in one piece.
            ([0x90, ..], _) if behind(1) => Some(Built::Whole),
            ([0x66, 0x90, ..], _) if behind(2) => Some(Built::Whole),
            ([0x0f, 0x1f, 0, ..], _) if behind(3) => Some(Built::Whole),
            _ => None,
        }
    }

    /// At a place where compiled code may be about to return.
    pub fn epilogue(pc: usize) -> Option<Built> {
        match bytes(pc)? {
            [0xc3 | 0xc2, ..] => Some(Built::Nothing),
            [0x5d, ..] => Some(Built::Pushed),
            // The safepoint poll before the return: the stack pointer against a word of the thread, then a branch.
            [0x49, 0x3b, 0x67 | 0xa7, ..] | [0x0f, 0x87, _, _, _, _, 0xc3, _] => Some(Built::Nothing),
            // What native methods are left by: a pending exception is looked for, and the return is jumped over.
            [0x49, 0x83, 0x7f, _, 0, 0x0f, 0x85, 1] | [0x0f, 0x85, 1, 0, 0, 0, 0xc3, _] => Some(Built::Nothing),
            // A jump to who takes the exception on, in place of the return.
            [0xe9, ..] => match bytes(pc.checked_sub(8)?)? {
                [0x48, 0x81, 0xc4, .., 0x5d] | [.., 0x48, 0x83, 0xc4, _, 0x5d] => Some(Built::Nothing),
                _ => None,
            },
            _ => None,
        }
    }

    /// The first and the last instructions of native functions with frame pointers.
    pub fn native_edge(pc: usize) -> Option<Built> {
        match (bytes(pc)?, bytes(pc.checked_sub(8)?)?) {
            ([0xf3, 0x0f, 0x1e, 0xfa, ..] | [0x55, 0x48, 0x89, 0xe5, ..] | [0xc3, ..], _) => Some(Built::Nothing),
            ([0x48, 0x89, 0xe5, ..], [.., 0x55]) => Some(Built::Pushed),
            _ => None,
        }
    }

    /// Whether a call ends right before `pc`.
    pub fn follows_call(pc: usize) -> bool {
        let Some(before) = pc.checked_sub(8).and_then(bytes) else { return false };
        let through_operand = (2..=7).any(|len| {
            let mut code = [0x90; 16];
            code[..len].copy_from_slice(&before[8 - len..]);
            code[0] == 0xff && code[1] >> 3 & 7 == 2 && length(&code) == Some(len)
        });
        before[3] == 0xe8 || through_operand
    }

    /// Whether a compiled caller's relay to the interpreter is at `pc`: it names the method, then jumps.
    pub fn relays(pc: usize) -> bool {
        let at = |distance: usize| pc.checked_sub(distance).and_then(bytes);
        match at(0) {
            Some([0x48, 0xbb, ..]) => pc.checked_add(10).and_then(bytes).is_some_and(|code| code[0] == 0xe9),
            Some([0xe9, ..]) => at(10).is_some_and(|code| code.starts_with(&[0x48, 0xbb])),
            _ => false,
        }
    }

    /// Whether the code at `pc` takes something off the stack.
    pub fn releases(pc: usize) -> bool {
        matches!(bytes(pc), Some([0x48, 0x81 | 0x83, 0xc4, ..]))
    }

    /// What a call that ends at `pc` was passed on the stack: the check of types is, two words that go to one register.
    pub fn passed_bytes(pc: usize) -> usize {
        match bytes(pc) {
            Some([first @ (0x58..=0x5c | 0x5e | 0x5f), second, ..]) if first == second => 16,
            Some([0x41, first @ 0x58..=0x5f, 0x41, second, ..]) if first == second => 16,
            _ => 0,
        }
    }

    /// What of the two words that such a call is passed lies on the stack at a place around it.
    pub fn pushed_bytes(pc: usize) -> usize {
        let pops = |at: usize| passed_bytes(at) > 0;
        let calls = |at: usize| bytes(at).is_some_and(|code| code[0] == 0xe8) && pops(at + 5);
        let Some(code) = bytes(pc) else { return 0 };
        let (push_bytes, pop_bytes) = match code {
            [0x50..=0x57, ..] => (1, 0),
            [0x41, 0x50..=0x57, ..] => (2, 0),
            [0x58..=0x5f, ..] => (0, 1),
            [0x41, 0x58..=0x5f, ..] => (0, 2),
            _ => (0, 0),
        };
        let is_first_pop = pop_bytes > 0 && pops(pc) && follows_call(pc);
        let is_last_pop = pop_bytes > 0 && pops(pc - pop_bytes) && follows_call(pc - pop_bytes);
        match (calls(pc) || is_first_pop, (push_bytes > 0 && calls(pc + push_bytes)) || is_last_pop) {
            (true, _) => 16,
            (false, true) => 8,
            _ => 0,
        }
    }

    /// What ends a piece of code that is followed.
    enum End {
        Jump(usize),
        /// To the caller, or to code that takes this one's place.
        Return,
        /// The frame pointer's frame is taken down.
        Leave,
    }

    /// Follows the code at `pc` to its end, past its branches; what it takes off the stack in all.
    fn follow(pc: usize) -> Option<(i64, End)> {
        let (mut at, mut taken) = (pc, 0i64);
        for _ in 0..MAX_INSTRUCTIONS {
            let instruction = Instruction::at(at)?;
            let code = instruction.code;
            let number = |from: usize| i32::from_le_bytes(std::array::from_fn(|index| code[from + index]));
            let short = |from: usize| i64::from(code[from] as i8);
            let end = match instruction.branch() {
                Some(Branch::Jump(target)) => Some(End::Jump(target)),
                Some(Branch::Away) => Some(End::Return),
                Some(Branch::Conditional(_)) => None,
                None => match code {
                    [0xc9, ..] | [0x48, 0x8b, 0xe5, ..] => Some(End::Leave),
                    // The stack pointer becomes what cannot be told from here.
                    [0x48, 0x81 | 0x83, 0xe4, ..] | [0x48 | 0x49, 0x8b, 0xe0..=0xe7, ..] => return None,
                    _ => None,
                },
            };
            if let Some(end) = end {
                return Some((taken, end));
            }
            taken += match code {
                [0x48, 0x83, 0xc4, ..] => short(3),
                [0x48, 0x83, 0xec, ..] => -short(3),
                [0x48, 0x81, 0xc4, ..] => i64::from(number(3)),
                [0x48, 0x81, 0xec, ..] => -i64::from(number(3)),
                [0x48, 0x8d, 0x64, 0x24, ..] => short(4),
                [0x48, 0x8d, 0xa4, 0x24, ..] => i64::from(number(4)),
                [0x50..=0x57 | 0x68 | 0x6a | 0x9c, ..] | [0x41, 0x50..=0x57, ..] => -8,
                [0x58..=0x5f | 0x9d, ..] | [0x41, 0x58..=0x5f, ..] => 8,
                _ => 0,
            };
            at = instruction.next()?;
        }
        None
    }

    /// Whether the code at `pc` is an adapter's that has noted its caller's stack pointer, and jumps to the interpreter's
    /// entry of a method.
    pub fn enters_interpreter(pc: usize) -> bool {
        /// By what is above the return address, or once that is taken.
        const NOTES_CALLER: [&[u8]; 2] = [&[0x4c, 0x8d, 0x6c, 0x24, 8], &[0x4c, 0x8b, 0xec]];
        const ENTRY: [u8; 3] = [0x48, 0x8b, 0x4b];
        let mut at = pc;
        for _ in 0..MAX_INSTRUCTIONS {
            let Some(instruction) = Instruction::at(at) else { return false };
            match (instruction.code, instruction.branch()) {
                ([0xff, 0xe1, ..], _) => return bytes(at - 4).is_some_and(|before| before.starts_with(&ENTRY)),
                ([0xff, ..], _) | (_, Some(Branch::Jump(_) | Branch::Away)) => return false,
                (code, _) if NOTES_CALLER.iter().any(|notes| code.starts_with(notes)) => return false,
                _ => {}
            }
            let Some(next) = instruction.next() else { return false };
            at = next;
        }
        false
    }

    /// Follows the code at `pc` to where it jumps back into the method's own, which begins at `begin`.
    pub fn detour(pc: usize, begin: usize) -> Option<Detour> {
        let (taken, End::Jump(resumes)) = follow(pc)? else { return None };
        let kept_bytes = usize::try_from(taken).ok().filter(|bytes| *bytes <= MAX_KEPT_BYTES)?;
        (resumes >= begin && resumes < pc).then_some(Detour { kept_bytes, resumes })
    }

    /// Follows code without a frame of known size to its return: how far above the stack pointer its return address lies,
    /// or nothing where the frame pointer tells.
    pub fn way_out(pc: usize) -> Option<Option<usize>> {
        let (mut at, mut taken) = (pc, 0);
        for _ in 0..4 {
            let (further, end) = follow(at)?;
            taken += further;
            match end {
                End::Jump(target) => at = target,
                End::Leave => return Some(None),
                End::Return => {
                    return usize::try_from(taken).ok().filter(|bytes| *bytes <= MAX_KEPT_BYTES).map(Some);
                }
            }
        }
        None
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// The address of `code`, with room before and behind.
        fn placed(before: &[u8], code: &[u8]) -> usize {
            let mut all = vec![0u8; 32 - before.len()];
            all.extend_from_slice(before);
            let at = all.len();
            all.extend_from_slice(code);
            all.extend_from_slice(&[0; 32]);
            Vec::leak(all).as_ptr() as usize + at
        }

        #[test]
        fn returns_and_the_poll_before_them_have_no_frame() {
            let at = |code: &[u8]| epilogue(placed(&[], code));
            assert_eq!(at(&[0xc3]), Some(Built::Nothing));
            assert_eq!(at(&[0x5d, 0x49, 0x3b]), Some(Built::Pushed));
            assert_eq!(at(&[0x49, 0x3b, 0x67, 0x18, 0x0f, 0x87]), Some(Built::Nothing));
            assert_eq!(at(&[0x0f, 0x87, 1, 2, 3, 4, 0xc3, 0]), Some(Built::Nothing));
            assert_eq!(at(&[0x49, 0x83, 0x7f, 8, 0, 0x0f, 0x85, 1, 0, 0, 0, 0xc3]), Some(Built::Nothing));
            assert_eq!(at(&[0x0f, 0x85, 1, 0, 0, 0, 0xc3]), Some(Built::Nothing));
            assert_eq!(at(&[0x0f, 0x85, 1, 2, 0, 0, 0xc3]), None);
            assert_eq!(at(&[0x48, 0x89, 0xe5]), None);
        }

        #[test]
        fn each_place_of_a_prologue_has_its_part_of_the_frame() {
            let bang = [0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff];
            let guard = [0x41, 0x81, 0x7f, 0x20, 1, 0, 0, 0];
            for (before, code, built) in [
                (&[][..], &bang[..], Built::Nothing),
                (&bang, &[0x55, 0x48, 0x83, 0xec, 0x20], Built::Nothing),
                (&[0x55], &[0x48, 0x83, 0xec, 0x20], Built::Pushed),
                (&[0x55], &[0x48, 0x8b, 0xec], Built::Pushed),
                (&[0x55, 0x48, 0x8b, 0xec], &[0x48, 0x81, 0xec, 0, 1, 0, 0], Built::Pushed),
                (&[], &[0x48, 0x81, 0xec, 0x18, 0, 0, 0], Built::Nothing),
                (&[], &[0x48, 0x89, 0x6c, 0x24, 0x10], Built::WithoutPointer),
                (&[], &guard, Built::Whole),
                (&guard, &[0x74, 5, 0xe8], Built::Whole),
                (&guard, &[0x0f, 0x85, 1, 2, 3, 4], Built::Whole),
                (&[0x74, 5], &[0xe8, 1, 2, 3, 4], Built::Whole),
                (&[], &[0x66, 0x90, 0x41, 0x81, 0x7f], Built::Whole),
            ] {
                assert_eq!(prologue(placed(before, code)), Some(built), "{code:x?}");
            }
            // The check of the receiver's class, and padding before the entry.
            for code in [&[0x0f, 0x85, 1, 2, 3, 4][..], &[0x66, 0x90, 0x89, 0x84, 0x24]] {
                assert_eq!(prologue(placed(&[0x48, 0x3b, 0xc2], code)), None);
            }
        }

        #[test]
        fn code_beside_a_method_tells_what_it_keeps_and_where_it_goes_back() {
            // Taken from a load barrier's stub: two registers and half a vector kept around the call.
            let mut stub = vec![0x48, 0x83, 0xec, 0x20];
            stub.extend_from_slice(&[0x48, 0x89, 0x44, 0x24, 0x18]); // mov [rsp+24], rax
            stub.extend_from_slice(&[0xc5, 0xfa, 0x7f, 0x44, 0x24, 0x08]); // vmovdqu [rsp+8], xmm0
            stub.extend_from_slice(&[0x48, 0x8d, 0x73, 0x10]); // lea rsi, [rbx+16]
            stub.extend_from_slice(&[0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8, 0x41, 0xff, 0xd2]); // call r10
            let behind_call = stub.len();
            stub.extend_from_slice(&[0x4c, 0x8b, 0xd8]); // mov r11, rax
            stub.extend_from_slice(&[0xc5, 0xfa, 0x6f, 0x44, 0x24, 0x08]);
            stub.extend_from_slice(&[0x48, 0x8b, 0x84, 0x24, 0x18, 0, 0, 0]);
            let raises = stub.len();
            stub.extend_from_slice(&[0x48, 0x81, 0xc4, 0x20, 0, 0, 0]);
            let jumps = stub.len();
            stub.extend_from_slice(&[0xe9]);
            stub.extend_from_slice(&(-(jumps as i32 + 5) - 16).to_le_bytes());
            let at = placed(&[], &stub);
            let (begin, resumes) = (at - 20, at - 16);
            for (pc, kept_bytes) in [(0, 0), (behind_call, 32), (raises, 32), (jumps, 0)] {
                assert_eq!(detour(at + pc, begin), Some(Detour { kept_bytes, resumes }), "at {pc}");
            }
            assert_eq!(detour(at + behind_call, at - 8), None, "it goes back to before the method's code");
        }

        #[test]
        fn a_pushed_register_counts_and_code_that_goes_elsewhere_is_no_detour() {
            // Add, move, pop, jump back by 64.
            let stub = [0x48, 0x83, 0xc4, 0x10, 0x48, 0x8b, 0xd8, 0x58, 0xeb, 0xc0];
            let at = placed(&[], &stub);
            assert_eq!(detour(at, at - 64), Some(Detour { kept_bytes: 24, resumes: at + 10 - 64 }));
            // The end of a method, a jump onwards, a jump through a register.
            for code in [&[0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3][..], &[0xe9, 1, 0, 0, 0], &[0xff, 0xe0]] {
                let at = placed(&[], code);
                assert_eq!(detour(at, at - 16), None, "{code:x?}");
            }
        }

        #[test]
        fn code_that_jumps_on_in_place_of_its_return_has_no_frame() {
            let jump = [0xe9, 1, 2, 3, 4];
            assert_eq!(epilogue(placed(&[0x48, 0x83, 0xc4, 0x10, 0x5d], &jump)), Some(Built::Nothing));
            assert_eq!(epilogue(placed(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0x5d], &jump)), Some(Built::Nothing));
            assert_eq!(epilogue(placed(&[0x48, 0x89, 0x5d], &jump)), None);
        }

        #[test]
        fn an_adapter_that_has_noted_its_caller_is_known_up_to_its_jump() {
            // lea r13, [rsp+8]; pop rax; sub rsp, 16; push rax; mov [rsp+16], rsi; mov rcx, [rbx+56]; jmp rcx
            let mut adapter = vec![0x4c, 0x8d, 0x6c, 0x24, 8, 0x58, 0x48, 0x83, 0xec, 0x10, 0x50];
            adapter.extend_from_slice(&[0x48, 0x89, 0x74, 0x24, 0x10, 0x48, 0x8b, 0x4b, 0x38, 0xff, 0xe1]);
            let at = placed(&[], &adapter);
            assert_eq!(
                [0, 5, 6, 10, 11, 16, 20].map(|place| enters_interpreter(at + place)),
                [false, true, true, true, true, true, true]
            );
            // Of Java 17: pop rax; mov r13, rsp; sub rsp, 16; mov [rsp], rax; the same jump
            let mut adapter = vec![0x58, 0x4c, 0x8b, 0xec, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x04, 0x24];
            adapter.extend_from_slice(&[0x48, 0x8b, 0x4b, 0x38, 0xff, 0xe1]);
            let at = placed(&[], &adapter);
            assert_eq!(
                [0, 1, 4, 8, 12, 16].map(|place| enters_interpreter(at + place)),
                [false, false, true, true, true, true]
            );
            assert!(!enters_interpreter(placed(&[], &[0x58, 0xff, 0xe1])), "a jump elsewhere");
            assert!(!enters_interpreter(placed(&[], &[0x58, 0xc3])));
        }

        #[test]
        fn a_relay_to_the_interpreter_is_known_at_both_of_its_instructions() {
            let relay = [0x48, 0xbb, 1, 2, 3, 4, 5, 6, 0, 0, 0xe9, 1, 2, 3, 4];
            let at = placed(&[], &relay);
            assert!(relays(at) && relays(at + 10));
            assert!(!relays(placed(&[], &[0x48, 0xbb, 1, 2, 3, 4, 5, 6, 0, 0, 0x90])));
        }

        #[test]
        fn code_of_the_vms_own_is_followed_to_its_return() {
            // Moves, four registers off the stack, the return; then the same behind a jump.
            let ends = [0x48, 0x8b, 0x74, 0x24, 0x30, 0x58, 0x59, 0x5e, 0x5f, 0xc3];
            let at = placed(&[], &ends);
            assert_eq!(
                [way_out(at), way_out(at + 7), way_out(at + 9)],
                [Some(Some(32)), Some(Some(16)), Some(Some(0))]
            );
            let jumps: Vec<u8> = [0x57, 0xeb, 2, 0xf4, 0xf4].into_iter().chain(ends).collect();
            assert_eq!(way_out(placed(&[], &jumps)), Some(Some(24)), "one register is still to come");
            assert_eq!(way_out(placed(&[], &[0x48, 0x33, 0xc0, 0xc5, 0xf8, 0x77, 0xc9, 0xc3])), Some(None));
            assert_eq!(way_out(placed(&[], &[0x0f, 0x0b])), None);
        }

        #[test]
        fn the_edges_of_native_functions_have_no_frame_and_calls_are_known_from_behind() {
            assert_eq!(native_edge(placed(&[], &[0x55, 0x48, 0x89, 0xe5])), Some(Built::Nothing));
            assert_eq!(native_edge(placed(&[0x55], &[0x48, 0x89, 0xe5])), Some(Built::Pushed));
            assert_eq!(native_edge(placed(&[], &[0x48, 0x83, 0xec, 8])), None);
            assert!(follows_call(placed(&[0xe8, 1, 2, 3, 4], &[0x90])));
            for call in
                [&[0x41, 0xff, 0xd2][..], &[0xff, 0x15, 1, 2, 3, 4], &[0xff, 0x50, 0x18], &[0xff, 0x54, 0x24, 8]]
            {
                assert!(follows_call(placed(call, &[0x90])), "{call:x?}");
            }
            assert!(!follows_call(placed(&[0x48, 0x89, 0xe5], &[0x90])));
            let passed = [&[0x5e, 0x5e][..], &[0x41, 0x5a, 0x41, 0x5a], &[0x5d, 0x5d], &[0x5e, 0x5f]];
            assert_eq!(passed.map(|code| passed_bytes(placed(&[], code))), [16, 16, 0, 0]);
        }

        #[test]
        fn each_place_around_a_check_of_types_has_its_part_of_what_is_passed() {
            // push rdi, push rbx, call, pop rdi, pop rdi, test edi, edi
            let at = placed(&[0x0f, 0x84, 1, 2, 3, 4], &[0x57, 0x53, 0xe8, 1, 2, 3, 4, 0x5f, 0x5f, 0x85, 0xff]);
            assert_eq!([0, 1, 2, 7, 8, 9].map(|place| pushed_bytes(at + place)), [0, 8, 16, 16, 8, 0]);
            let far = placed(&[0x90], &[0x41, 0x52, 0x57, 0xe8, 1, 2, 3, 4, 0x41, 0x5a, 0x41, 0x5a, 0x90]);
            assert_eq!([0, 2, 3, 8, 10, 12].map(|place| pushed_bytes(far + place)), [0, 8, 16, 16, 8, 0]);
            assert_eq!(pushed_bytes(placed(&[0x90], &[0xe8, 1, 2, 3, 4, 0x5f, 0x5e])), 0, "another call");
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86_64::{
    detour, enters_interpreter, epilogue, follows_call, native_edge, passed_bytes, prologue, pushed_bytes, relays,
    releases, way_out,
};

#[cfg(not(target_arch = "x86_64"))]
pub use super::instructions_elsewhere_signal::{
    detour, enters_interpreter, epilogue, follows_call, native_edge, passed_bytes, prologue, pushed_bytes, relays,
    releases, way_out,
};
