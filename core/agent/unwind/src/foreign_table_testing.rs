//! Walks of made-up stacks by a table of foreign bytes: for the fuzz target, and for the test with changed unwind information.

use std::ops::Range;

use spanprof_signal::Memory;

use crate::build::foreign_table;
use crate::registers::Registers;
use crate::rule::RuleNumbers;
use crate::snapshot::{Image, ObjectCode, Snapshot, TableState};
use crate::walk::Walk;

/// More than the deepest walk of a consumer.
const MAX_STEPS: usize = 2048;

/// A stack with return addresses, addresses of the stack and numbers at places that follow from the seed; a part cannot be read.
#[derive(Clone, Copy)]
struct MadeUpMemory<'a> {
    seed: u64,
    code: &'a Range<u64>,
    stack: u64,
}

impl Memory for MadeUpMemory<'_> {
    fn word(&self, address: usize) -> Option<usize> {
        let mixed = (address as u64 ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let word = match mixed & 7 {
            0..=3 => self.code.start + (mixed >> 8) % (self.code.end - self.code.start),
            4 | 5 => self.stack + (mixed >> 8) % 65_536,
            6 => mixed,
            _ => return None,
        };
        Some(word as usize)
    }
}

/// Builds the table of `bytes`, a section `.eh_frame` at `address`, for the functions in `code`, and walks a stack from each of eight
/// of their instructions. False without a table. Panics if a walk goes back.
pub fn walks_by_table_of(bytes: &[u8], address: u64, code: &Range<u64>, seed: u64) -> bool {
    let Some(table) = foreign_table(bytes.to_vec(), address, code, &mut RuleNumbers::default()) else { return false };
    let image = Image { code: code.clone(), base: code.start, file: "".into() };
    let tables = Snapshot::new(vec![ObjectCode::new(image, TableState::Built(table.into()))]);
    let memory = MadeUpMemory { seed, code, stack: 0x7fff_0000_0000 };
    for start in 0..8 {
        let pc = code.start + (seed.rotate_left(7 * start) % (code.end - code.start));
        let registers = Registers {
            pc,
            stack_pointer: memory.stack,
            frame_pointer: Some(memory.stack + 8 * (seed % 512)),
            link: cfg!(target_arch = "aarch64").then_some(code.start + seed % 64),
        };
        let mut walk = Walk::new(&tables, memory, registers, (seed & 1 == 0).then_some(memory.stack + 4096));
        for _ in 0..MAX_STEPS {
            let Ok(frame) = walk.step() else { break };
            assert!(frame.frame_address >= frame.stack_pointer, "{frame:x?}");
            _ = walk.function_start();
        }
    }
    true
}
