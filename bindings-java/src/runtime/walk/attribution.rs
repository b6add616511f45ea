//! Attributes instructions without debug info to the previous PcDesc, the next one, or that of a jump target. HotSpot's
//! compilers record a PcDesc at the end of an instruction range. They omit instructions that they add late: spill copies,
//! jumps, loop back-edges. HotSpot itself uses the next PcDesc, which after a back-edge belongs to another block, perhaps
//! of a method that does not run. Called only by `scopes`, in the handler; guarded reads only.
//!
//! With the next PcDesc, as `AsyncGetCallTrace` uses it, one sample in 4,000 to 14,000 of short loops that are inlined side by
//! side belonged to the neighbor, under the labels of the running request: it reads as another request. With these rules it is
//! one sample in 233 s of CPU time (1000 Hz, Java 17 and 25).

use super::instructions::{epilogue, releases_stack};
use super::machine_code::{Branch, Instruction};
use crate::runtime::vm::memory::VmMemory;

/// The PcDesc that an instruction belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribution {
    Previous,
    Next,
    /// The PcDesc of the instruction at this address.
    Target(usize),
}

/// Attributes the instruction at `pc`, between the ends of two PcDesc ranges.
pub fn attribute(memory: impl VmMemory, pc: usize, previous: Option<usize>, next: usize) -> Attribution {
    let Path::Leaves(target) = path(memory, pc, next, Branches::Any) else { return Attribution::Next };
    let continues_previous =
        previous.is_some_and(|previous| matches!(path(memory, previous, pc, Branches::Unconditional), Path::Reaches));
    match target {
        _ if continues_previous => Attribution::Previous,
        Some(target) => Attribution::Target(target),
        None => Attribution::Next,
    }
}

/// Whether the code at `pc` removes the frame, or has removed it and returns. All inlined methods share these instructions, and C2
/// records no PcDesc for them (`MachEpilogNode`, JDK 8–25): they belong to the compiled method itself. In a method that inlines
/// six short loops, 4 samples in 1,000 were here, and were attributed to one of the loops (Java 11).
pub fn removes_frame(memory: impl VmMemory, pc: usize) -> bool {
    let is_last = |at| epilogue(memory, at).is_some();
    let next = || Instruction::at(memory, pc).and_then(|instruction| instruction.next());
    is_last(pc) || (releases_stack(memory, pc) && next().is_some_and(is_last))
}

/// The control flow from one instruction to another.
enum Path {
    Reaches,
    /// Control flow may leave the range; the target, if it is the only one.
    Leaves(Option<usize>),
    /// The range contains instructions of unknown length.
    Unknown,
}

/// The branches that end a path.
#[derive(PartialEq, Eq)]
enum Branches {
    /// Loop back-edges and unconditional branches.
    Any,
    Unconditional,
}

fn path(memory: impl VmMemory, from: usize, to: usize, branches: Branches) -> Path {
    /// Upper bound of instructions between two PcDesc.
    const MAX_INSTRUCTIONS: usize = 64;
    let (mut at, mut has_branched) = (from, false);
    for _ in 0..MAX_INSTRUCTIONS {
        if at >= to {
            return if at == to { Path::Reaches } else { Path::Unknown };
        }
        let Some(instruction) = Instruction::at(memory, at) else { return Path::Unknown };
        let Some(next) = instruction.next() else { return Path::Unknown };
        // The branch at the end of a range belongs to it.
        let is_last = branches == Branches::Any && next == to;
        match instruction.branch() {
            // Forward conditional branches are checks: the code continues after them.
            Some(Branch::Conditional(target)) if branches == Branches::Unconditional || target >= next => {
                has_branched = true
            }
            Some(_) if is_last => return Path::Reaches,
            Some(Branch::Jump(target)) => return Path::Leaves(Some(target).filter(|_| !has_branched)),
            Some(_) => return Path::Leaves(None),
            None => {}
        }
        at = next;
    }
    Path::Unknown
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use spanprof_signal::ProcessMemory;

    /// The address of `code`, padded at the end.
    fn code_at(code: &[u8]) -> usize {
        let mut all = code.to_vec();
        all.extend_from_slice(&[0xcc; 32]);
        Vec::leak(all).as_ptr() as usize
    }

    #[test]
    fn straight_line_code_before_a_pc_desc_belongs_to_it() {
        // mov, add, mov: the range ends
        let at = code_at(&[0x48, 0x8b, 0xc3, 0x03, 0xc1, 0x48, 0x8b, 0xd8, 0x90]);
        assert_eq!([0, 3, 5].map(|from| attribute(ProcessMemory, at + from, Some(at), at + 8)), [Attribution::Next; 3]);
        assert_eq!(attribute(ProcessMemory, at, None, at + 8), Attribution::Next);
        // A check inside the range, and the jump at its end.
        let at = code_at(&[0x03, 0xc1, 0x73, 0x20, 0x48, 0x8b, 0xd8, 0x7c, 0xf7, 0x90]);
        assert_eq!(
            [0, 2, 4, 7].map(|from| attribute(ProcessMemory, at + from, Some(at), at + 9)),
            [Attribution::Next; 4]
        );
    }

    #[test]
    fn a_loop_back_edge_belongs_to_the_loop_and_not_to_the_code_after_its_jump() {
        // add: the range ends; mov, jump back if less; another block
        let at = code_at(&[0x03, 0xc1, 0x48, 0x8b, 0xd8, 0x7c, 0xf9, 0x90, 0x90]);
        assert_eq!(
            [2, 5].map(|from| attribute(ProcessMemory, at + from, Some(at + 2), at + 9)),
            [Attribution::Previous; 2]
        );
        assert_eq!(attribute(ProcessMemory, at + 2, None, at + 9), Attribution::Next, "there is no previous PcDesc");
        let far = code_at(&[0x03, 0xc1, 0x0f, 0x8c, 0xf8, 0xff, 0xff, 0xff, 0x90]);
        assert_eq!(attribute(ProcessMemory, far + 2, Some(far + 2), far + 9), Attribution::Previous);
    }

    #[test]
    fn a_block_of_copies_only_belongs_to_the_pc_desc_of_its_jump_target() {
        // jump away; mov, jump back by 16; another block
        let at = code_at(&[0xeb, 0x10, 0x48, 0x8b, 0xd8, 0xeb, 0xf0, 0x90]);
        assert_eq!(attribute(ProcessMemory, at + 2, Some(at), at + 8), Attribution::Target(at + 7 - 16));
        // jump away; a check, mov, jump back: there are two targets
        let at = code_at(&[0xeb, 0x10, 0x74, 0x20, 0x48, 0x8b, 0xd8, 0xeb, 0xf0, 0x90]);
        assert_eq!(attribute(ProcessMemory, at + 2, Some(at), at + 10), Attribution::Next);
        // jump away; mov, return; another block
        let at = code_at(&[0xeb, 0x10, 0x48, 0x8b, 0xd8, 0xc3, 0x90]);
        assert_eq!(attribute(ProcessMemory, at + 2, Some(at), at + 7), Attribution::Next);
    }

    #[test]
    fn the_frame_is_removed_from_the_stack_release_to_the_return() {
        // vcvtsi2sd; add rsp, 32; pop rbp; the poll of Java 11; ret
        let removal = [0x48, 0x83, 0xc4, 0x20, 0x5d, 0x4d, 0x8b, 0x97, 8, 1, 0, 0, 0x41, 0x85, 2, 0xc3];
        let code: Vec<u8> = [0xc4, 0xe1, 0xfb, 0x2a, 0xc7].into_iter().chain(removal).collect();
        let at = code_at(&code);
        assert_eq!([5, 9, 10, 17, 20].map(|offset| removes_frame(ProcessMemory, at + offset)), [true; 5]);
        assert!(!removes_frame(ProcessMemory, at), "the result is converted before");
        // add rsp, 32; pop rdi: the end of a call
        assert!(!removes_frame(ProcessMemory, code_at(&[0x48, 0x83, 0xc4, 0x20, 0x5f, 0xc3])));
    }

    #[test]
    fn instructions_of_unknown_length_are_attributed_to_the_next_pc_desc() {
        let at = code_at(&[0x03, 0xc1, 0x0f, 0x0b, 0x7c, 0xf9, 0x90]);
        assert_eq!(attribute(ProcessMemory, at + 2, Some(at), at + 7), Attribution::Next);
        // The path jumps over the end of the range.
        assert_eq!(attribute(ProcessMemory, at, Some(at), at + 1), Attribution::Next);
    }
}
