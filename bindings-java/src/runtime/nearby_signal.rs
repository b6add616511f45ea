//! Whose an instruction is that no compiler wrote down: of the place that ends before it, of the one that ends behind it, or
//! of the one it jumps to. HotSpot's compilers write down where the instructions of a place end, and leave out what they add
//! late: copies of registers, jumps, the ends of loops. The VM takes the place behind, which across the end of a loop is
//! another block's, perhaps of a method that does not run. Called by `scopes_signal` alone, in the handler; guarded reads
//! only.

use super::machine_code_signal::{Branch, Instruction};

/// The written-down place that is an instruction's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearer {
    Before,
    Behind,
    /// The one of the instruction at this address.
    Target(usize),
}

/// Whose the instruction at `pc` is, before which one place ends, and another behind it.
pub fn nearer(pc: usize, before: Option<usize>, behind: usize) -> Nearer {
    let Way::Leaves(target) = way(pc, behind, Branches::Any) else { return Nearer::Behind };
    let follows = before.is_some_and(|before| matches!(way(before, pc, Branches::Final), Way::Arrives));
    match target {
        _ if follows => Nearer::Before,
        Some(target) => Nearer::Target(target),
        None => Nearer::Behind,
    }
}

/// What the way from one instruction to another is.
enum Way {
    Arrives,
    /// Something else may, or will, come next; where that is one place alone, which.
    Leaves(Option<usize>),
    /// Through instructions of unknown length.
    Unknown,
}

/// Which branches end a way.
#[derive(PartialEq, Eq)]
enum Branches {
    /// Ends of loops, and those that never go on behind themselves.
    Any,
    /// Those that never go on behind themselves.
    Final,
}

fn way(from: usize, to: usize, branches: Branches) -> Way {
    /// Places are written down closer to each other.
    const MAX_INSTRUCTIONS: usize = 64;
    let (mut at, mut forks) = (from, false);
    for _ in 0..MAX_INSTRUCTIONS {
        if at >= to {
            return if at == to { Way::Arrives } else { Way::Unknown };
        }
        let Some(instruction) = Instruction::at(at) else { return Way::Unknown };
        let Some(next) = instruction.next() else { return Way::Unknown };
        // The branch that a place ends with is its own.
        let is_last = branches == Branches::Any && next == to;
        match instruction.branch() {
            // Forward they are checks of what goes on behind them.
            Some(Branch::Conditional(target)) if branches == Branches::Final || target >= next => forks = true,
            Some(_) if is_last => return Way::Arrives,
            Some(Branch::Jump(target)) => return Way::Leaves(Some(target).filter(|_| !forks)),
            Some(_) => return Way::Leaves(None),
            None => {}
        }
        at = next;
    }
    Way::Unknown
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The address of `code`, with room behind.
    fn placed(code: &[u8]) -> usize {
        let mut all = code.to_vec();
        all.extend_from_slice(&[0xcc; 32]);
        Vec::leak(all).as_ptr() as usize
    }

    #[test]
    fn what_is_in_one_piece_with_the_place_behind_is_its() {
        // mov, add, mov: the place ends
        let at = placed(&[0x48, 0x8b, 0xc3, 0x03, 0xc1, 0x48, 0x8b, 0xd8, 0x90]);
        assert_eq!([0, 3, 5].map(|from| nearer(at + from, Some(at), at + 8)), [Nearer::Behind; 3]);
        assert_eq!(nearer(at, None, at + 8), Nearer::Behind);
        // A check of the place's own before it, and the jump that it ends with.
        let at = placed(&[0x03, 0xc1, 0x73, 0x20, 0x48, 0x8b, 0xd8, 0x7c, 0xf7, 0x90]);
        assert_eq!([0, 2, 4, 7].map(|from| nearer(at + from, Some(at), at + 9)), [Nearer::Behind; 4]);
    }

    #[test]
    fn the_end_of_a_loop_is_the_loops_and_not_what_lies_behind_its_jump() {
        // add: the place ends; mov, jump back if less; another block
        let at = placed(&[0x03, 0xc1, 0x48, 0x8b, 0xd8, 0x7c, 0xf9, 0x90, 0x90]);
        assert_eq!([2, 5].map(|from| nearer(at + from, Some(at + 2), at + 9)), [Nearer::Before; 2]);
        assert_eq!(nearer(at + 2, None, at + 9), Nearer::Behind, "nothing is written down before it");
        let far = placed(&[0x03, 0xc1, 0x0f, 0x8c, 0xf8, 0xff, 0xff, 0xff, 0x90]);
        assert_eq!(nearer(far + 2, Some(far + 2), far + 9), Nearer::Before);
    }

    #[test]
    fn a_block_of_copies_alone_is_of_the_place_it_jumps_to() {
        // jump away; mov, jump back by 16; another block
        let at = placed(&[0xeb, 0x10, 0x48, 0x8b, 0xd8, 0xeb, 0xf0, 0x90]);
        assert_eq!(nearer(at + 2, Some(at), at + 8), Nearer::Target(at + 7 - 16));
        // jump away; a check, mov, jump back: it may go elsewhere
        let at = placed(&[0xeb, 0x10, 0x74, 0x20, 0x48, 0x8b, 0xd8, 0xeb, 0xf0, 0x90]);
        assert_eq!(nearer(at + 2, Some(at), at + 10), Nearer::Behind);
        // jump away; mov, return; another block
        let at = placed(&[0xeb, 0x10, 0x48, 0x8b, 0xd8, 0xc3, 0x90]);
        assert_eq!(nearer(at + 2, Some(at), at + 7), Nearer::Behind);
    }

    #[test]
    fn instructions_of_unknown_length_leave_it_to_the_place_behind() {
        let at = placed(&[0x03, 0xc1, 0x0f, 0x0b, 0x7c, 0xf9, 0x90]);
        assert_eq!(nearer(at + 2, Some(at), at + 7), Nearer::Behind);
        // The way misses the place.
        assert_eq!(nearer(at, Some(at), at + 1), Nearer::Behind);
    }
}
