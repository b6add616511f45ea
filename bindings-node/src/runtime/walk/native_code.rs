//! Native code: its walk by unwind tables (`spanprof-unwind`), and whole walks of threads that run no JavaScript. Without tables, as
//! before they are built, such a thread is walked along frame pointers.

use core::ops::Range;

use spanprof_signal::{Memory, RawFrame, RawStack};
use spanprof_unwind::{return_address, Registers, UnwindTables, Walk, WalkEnd};

/// Maximum distance between two frame pointers.
pub const MAX_FRAME_BYTES: usize = 4 << 20;
pub const PAGE: usize = 4095;

/// The registers at which a walk starts.
#[derive(Clone, Copy, Debug)]
pub struct StackRegisters {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// x30 on arm64, which has the return address of code without a frame; 0 on x86-64.
    pub link: usize,
}

impl StackRegisters {
    /// The registers of the caller, outside handlers.
    #[inline(always)]
    pub fn here() -> Self {
        let Registers { pc, stack_pointer, frame_pointer, link } = Registers::here();
        let [fp, link] = [frame_pointer, link].map(|register| register.unwrap_or(0) as usize);
        Self { pc: pc as usize, sp: stack_pointer as usize, fp, link }
    }
}

/// How native code is unwound, in place of its frame pointers.
pub struct NativeUnwinding<'a> {
    pub tables: &'a UnwindTables,
    /// The kernel's context of the interrupted thread; `None` outside handlers.
    pub context: Option<&'a libc::ucontext_t>,
}

impl<'a> NativeUnwinding<'a> {
    /// A walk from the interrupted function.
    pub fn interrupted<M: Memory>(&self, memory: M, registers: &StackRegisters) -> Walk<'a, M> {
        match self.context {
            Some(context) => self.tables.walk_interrupted(memory, context),
            None => self.walk(memory, registers.pc as u64, registers.sp, registers.fp),
        }
    }

    /// A walk from a function whose call is at this address, and whose callee's frame ends at `sp`.
    pub fn caller<M: Memory>(&self, memory: M, pc: u64, sp: usize, fp: usize) -> Walk<'a, M> {
        self.walk(memory, pc, sp, fp).with_lost_stack_pointer()
    }

    fn walk<M: Memory>(&self, memory: M, pc: u64, sp: usize, fp: usize) -> Walk<'a, M> {
        let registers = Registers { pc, stack_pointer: sp as u64, frame_pointer: Some(fp as u64), link: None };
        self.tables.walk(memory, registers)
    }

    /// Whether an address is code of another file than Node.js.
    pub fn is_in_other_file(&self, pc: u64, node: &Range<u64>) -> bool {
        !node.is_empty() && !node.contains(&pc) && self.tables.is_in_file(pc)
    }
}

/// Walks a thread without JavaScript: by the tables of native code where there are some, else along frame pointers.
pub fn walk_native(
    memory: &impl Memory,
    registers: &StackRegisters,
    native: Option<&NativeUnwinding<'_>>,
    stack: &mut RawStack<'_>,
) {
    let by_tables = |native: &NativeUnwinding<'_>| {
        native.interrupted(memory, registers).write_to_root(stack, |_, pc| Some(RawFrame::native(pc)))
    };
    if native.map(by_tables).is_none_or(|end| end == WalkEnd::TableMissing) {
        stack.clear();
        walk_native_frame_pointers(memory, registers, stack);
    }
}

fn walk_native_frame_pointers(memory: &impl Memory, registers: &StackRegisters, stack: &mut RawStack<'_>) {
    let StackRegisters { pc, sp, mut fp, .. } = *registers;
    let mut low = sp;
    let mut has_capacity = stack.push(RawFrame::native(pc as u64));
    while has_capacity && fp >= low && fp % 8 == 0 && fp.wrapping_sub(low) <= MAX_FRAME_BYTES {
        let (Some(next), Some(return_to)) = (memory.word(fp), memory.word(fp.wrapping_add(8))) else { break };
        if return_to <= PAGE {
            break;
        }
        has_capacity = stack.push(RawFrame::native(return_address(return_to as u64).wrapping_sub(1)));
        (low, fp) = (fp.wrapping_add(16), next);
    }
}
