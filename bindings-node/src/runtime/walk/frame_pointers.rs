//! The stack walk along frame pointers: the frames of an interrupted thread, leaf first. Node.js and all code of V8 have frame
//! pointers; interpreted frames give the address of their bytecode. Generic over the memory, so that tests replay recorded
//! stacks. Called by the capture function and the self-test.
//!
//! # Frames of a stack
//! * Native frames between the leaf and the first frame of V8 are kept; those below, which call into JavaScript, are skipped.
//! * A synthetic frame above native ones gives V8's activity in them: collecting or compiling.
//! * Code without a frame of its own leaves its caller's frame pointer in the register: the caller is found by `frameless`.
//!
//! # Changes in V8
//! Upstream: `src/execution/frame-constants.h` (`CommonFrameConstants`, `InterpreterFrameConstants`),
//! `src/builtins/x64/builtins-x64.cc` (`Generate_InterpreterEntryTrampoline`), prologues in
//! `src/compiler/backend/x64/code-generator-x64.cc` and `src/baseline/x64/baseline-compiler-x64-inl.h`. Compared with recorded
//! stacks (`tests/recorded`); the version is that of V8, with the Node.js that contains it.
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 10.2 (18) to 14.6 (26) | none: bytecode array at -32 and offset at -40 from the frame pointer, as V8 exports them; bytecode handlers have no frame of their own | `WalkTables`, `interpreter_slots` |
//! | 10.2 (18) | isolates run the builtins of the program | `canonical` |
//! | 11.3 (20) | isolates run a copy of the builtins | `canonical`; `code_events` finds the copy |
//! | 12.4 (22) | calls into C++ pass through `CallApiCallbackGeneric`, which is shown, in place of `HandleApiCall` | `is_hidden` of `builtin_ranges` |

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{Memory, RawFrame, RawStack};

use super::frameless::{call_before, frameless_return_offset, sets_up_frame, CallTarget};
use super::js_thread::{contains, BuiltinRanges};

/// Maximum number of frame pointers followed.
pub const MAX_FRAME_POINTERS: usize = 4096;
/// Words that a builtin without a frame may have pushed.
const MAX_PUSHED_WORDS: usize = 4;
/// Code without frames that calls each other: a write barrier and the builtin that writes.
const MAX_FRAMELESS: usize = 2;
/// Maximum distance between two frame pointers.
const MAX_FRAME_BYTES: usize = 4 << 20;
pub const PAGE: usize = 4095;

/// The registers at which a walk starts.
#[derive(Clone, Copy, Debug)]
pub struct StackRegisters {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
}

impl StackRegisters {
    /// The registers of the caller, outside handlers.
    #[inline(always)]
    #[cfg(target_arch = "x86_64")]
    pub fn here() -> Self {
        let (pc, sp, fp);
        // SAFETY: copies three registers.
        unsafe {
            std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) pc, out(reg) sp, out(reg) fp)
        };
        Self { pc, sp, fp }
    }

    /// The registers of the caller, outside handlers.
    #[inline(always)]
    #[cfg(target_arch = "aarch64")]
    pub fn here() -> Self {
        let (pc, sp, fp);
        // SAFETY: copies three registers.
        unsafe { std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) pc, out(reg) sp, out(reg) fp) };
        Self { pc, sp, fp }
    }
}

/// The thread of a walk.
pub trait WalkedThread {
    /// Whether `pc` is in the machine code of the thread's isolate, builtins excluded.
    fn has_code(&self, pc: usize) -> bool;

    /// The synthetic frame of V8's activity in the native frames above JavaScript, if there is one.
    fn activity(&self, registers: &StackRegisters) -> Option<RawFrame>;
}

#[cfg(any(test, feature = "record-stacks"))]
impl<T: WalkedThread> WalkedThread for &T {
    fn has_code(&self, pc: usize) -> bool {
        (**self).has_code(pc)
    }

    fn activity(&self, registers: &StackRegisters) -> Option<RawFrame> {
        (**self).activity(registers)
    }
}

/// Addresses and offsets that a walk depends on.
#[derive(Clone, Copy)]
pub struct WalkTables<'a> {
    pub builtin_ranges: BuiltinRanges<'a>,
    /// Start of the isolate's remapped builtins; 0 when it runs the program's embedded builtins.
    pub remapped_builtins: usize,
    /// Value of V8's root register in the isolate's code; 0 if unknown.
    pub root: usize,
    /// The high end of the thread's stack.
    pub stack_high: usize,
    /// From a frame pointer to the interpreter's bytecode array and offset.
    pub bytecode_array: isize,
    pub bytecode_offset: isize,
    /// V8's map of bytecode arrays: learned from frames known to be interpreted, the same for every isolate; 0 before.
    pub bytecode_map: &'a AtomicU64,
}

/// A stack walk of one JavaScript thread.
pub struct FramePointerWalk<'a, M, T> {
    memory: M,
    thread: T,
    tables: WalkTables<'a>,
}

impl<'a, M: Memory, T: WalkedThread> FramePointerWalk<'a, M, T> {
    #[inline(always)]
    pub fn new(memory: M, thread: T, tables: WalkTables<'a>) -> Self {
        Self { memory, thread, tables }
    }

    pub fn thread(&self) -> &T {
        &self.thread
    }

    /// The same walk over another memory, and its tables.
    #[cfg(feature = "record-stacks")]
    pub fn with_memory<N: Memory>(&self, memory: N) -> (FramePointerWalk<'a, N, &T>, WalkTables<'a>) {
        (FramePointerWalk { memory, thread: &self.thread, tables: self.tables }, self.tables)
    }

    /// Whether `pc`, a canonical address, is in V8's code.
    pub fn is_v8(&self, pc: usize) -> bool {
        self.tables.builtin_ranges.builtins.contains(pc) || self.thread.has_code(pc)
    }

    /// Tests the range of all builtins first, since most code lies outside it.
    fn is_hidden_builtin(&self, pc: usize) -> bool {
        self.tables.builtin_ranges.builtins.contains(pc) && contains(self.tables.builtin_ranges.hidden, pc)
    }

    fn is_interpreter(&self, pc: usize) -> bool {
        self.tables.builtin_ranges.builtins.contains(pc) && contains(self.tables.builtin_ranges.interpreter, pc)
    }

    pub fn is_hidden(&self, pc: usize) -> bool {
        self.is_hidden_builtin(pc) || self.is_interpreter(pc)
    }

    /// Maps an address in remapped builtins to the program's own embedded builtins.
    pub fn canonical(&self, pc: usize) -> usize {
        self.tables.builtin_ranges.builtins.canonical_address(pc, self.tables.remapped_builtins)
    }

    /// Walks along frame pointers. True when a frame of V8 was reached. Otherwise `stack` holds the native frames of the leaf.
    pub fn walk_frame_pointers(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        let StackRegisters { pc, sp, mut fp } = *registers;
        let mut pc = self.canonical(pc);
        let mut low = sp;
        let mut reached = false;
        let mut learned = false;
        if self.is_v8(pc) {
            reached = true;
            if !self.push_leaf(pc, sp, fp, stack) {
                return true;
            }
        } else if !stack.push(RawFrame::native(pc as u64)) {
            return false;
        }
        let mut is_frame = self.is_frame(fp, low);
        let fast_call = if reached { None } else { self.fast_call(low) };
        for _ in 0..MAX_FRAME_POINTERS {
            if let Some((caller, frame)) = fast_call.filter(|(_, frame)| !reached && (!is_frame || fp >= *frame)) {
                // A C function without a frame, or with another use of the register.
                let pushed = self.enter_v8(&mut reached, registers, stack)
                    && (self.is_hidden(caller) || stack.push(code_frame(caller.wrapping_sub(1))));
                if !pushed {
                    return true;
                }
                (fp, is_frame) = (frame, self.is_frame(frame, low));
            }
            if !is_frame {
                break;
            }
            let (Some(next), Some(return_to)) = (self.word(fp), self.word(fp.wrapping_add(8))) else { break };
            if return_to <= PAGE {
                break;
            }
            let callee = pc;
            // No arithmetic may overflow: a broken chain yields any word.
            (low, fp, pc) = (fp.wrapping_add(16), next, self.canonical(return_to));
            is_frame = self.is_frame(fp, low);
            let pushed = if self.is_interpreter(pc) {
                // The frame that returns into the interpreter is a bytecode handler's; the frame above it is the function's.
                let learns = !std::mem::replace(&mut learned, true);
                self.enter_v8(&mut reached, registers, stack)
                    && (!is_frame || self.bytecode_address(fp, learns).is_none_or(|at| stack.push(code_frame(at))))
            } else if self.is_v8(pc) {
                let hidden = self.is_hidden_builtin(pc);
                self.enter_v8(&mut reached, registers, stack)
                    && (hidden || stack.push(code_frame(pc.wrapping_sub(1))))
                    // A builtin calls a write barrier without a frame.
                    && (hidden || !self.is_hidden_builtin(callee) || self.push_callers(pc, low, fp, stack))
            } else {
                reached || stack.push(RawFrame::native((pc as u64).wrapping_sub(1)))
            };
            if !pushed {
                return reached;
            }
        }
        reached
    }

    /// Whether a frame can be at `fp`, above the stack pointer or the frame that ends at `low`.
    #[inline(always)]
    fn is_frame(&self, fp: usize, low: usize) -> bool {
        fp >= low
            && fp.is_multiple_of(8)
            && fp.saturating_add(16) <= self.tables.stack_high
            && fp.wrapping_sub(low) <= MAX_FRAME_BYTES
    }

    /// At the first frame of V8 below native ones: pushes V8's activity between them.
    fn enter_v8(&self, reached: &mut bool, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        std::mem::replace(reached, true) || self.thread.activity(registers).is_none_or(|activity| stack.push(activity))
    }

    /// Pushes the interrupted frame, in code of V8. Also pushes its caller where the frame is not yet, or no longer, set up.
    fn push_leaf(&self, pc: usize, sp: usize, fp: usize, stack: &mut RawStack<'_>) -> bool {
        if self.is_interpreter(pc) {
            return self.checked_bytecode_address(fp).is_none_or(|at| stack.push(code_frame(at)));
        }
        let hidden = self.is_hidden_builtin(pc);
        if !hidden && !stack.push(code_frame(pc)) {
            return false;
        }
        // Frameless code called by an interpreted function.
        if let Some(at) = self
            .checked_bytecode_address(fp)
            .filter(|_| !self.thread.has_code(pc) || frameless_return_offset(&self.memory, pc).is_some())
        {
            return stack.push(code_frame(at));
        }
        let caller = frameless_return_offset(&self.memory, pc).map(|offset| self.word(sp.wrapping_add(offset)));
        match caller {
            Some(caller) => {
                let caller = caller.map(|caller| self.canonical(caller)).filter(|caller| self.is_v8(*caller));
                caller.is_none_or(|caller| self.is_hidden(caller) || stack.push(code_frame(caller.wrapping_sub(1))))
            }
            None => self.push_callers(pc, sp, fp, stack),
        }
    }

    /// Pushes the caller of a builtin that has no frame at `pc`, where `sp` is the stack pointer and `fp` the frame pointer.
    fn push_callers(&self, mut pc: usize, mut sp: usize, fp: usize, stack: &mut RawStack<'_>) -> bool {
        for _ in 0..MAX_FRAMELESS {
            let Some((caller, above)) = self.frameless_caller(pc, sp, fp) else { return true };
            if !self.is_hidden(caller) && !stack.push(code_frame(caller.wrapping_sub(1))) {
                return false;
            }
            (pc, sp) = (caller, above);
        }
        true
    }

    /// The return address of a builtin without a frame, and the stack pointer after the return. `None` where the builtin has a
    /// frame at `fp`, and where that cannot be told.
    fn frameless_caller(&self, pc: usize, sp: usize, fp: usize) -> Option<(usize, usize)> {
        let start = self.tables.builtin_ranges.start_of(pc)?;
        let call_at = |address: usize| {
            let return_to = self.word(address)?;
            let caller = self.canonical(return_to);
            let call = self.is_v8(caller).then(|| call_before(&self.memory, return_to, self.tables.root)).flatten()?;
            let is_of_this = matches!(call, CallTarget::Address(target) if self.canonical(target) == start);
            Some((caller, is_of_this))
        };
        let slots = (0..MAX_PUSHED_WORDS).map(|index| sp.wrapping_add(8 * index)).take_while(|slot| *slot != fp);
        let (slot, (caller, is_of_this)) = slots.filter_map(|slot| Some((slot, call_at(slot)?))).next()?;
        let has_frame = call_at(fp.wrapping_add(8)).is_some_and(|(_, is_of_this)| is_of_this);
        // A builtin that was jumped to has no such call. Its frame is set up by its code.
        let is_caller = !has_frame && (is_of_this || !sets_up_frame(&self.memory, start, pc));
        is_caller.then_some((caller, slot.wrapping_add(8)))
    }

    /// The caller of the C function that runs, and the frame of that caller: V8's code stores them for calls without an exit
    /// frame, until they return.
    fn fast_call(&self, low: usize) -> Option<(usize, usize)> {
        let slots = self.tables.builtin_ranges.fast_call.filter(|_| self.tables.root != 0)?;
        let [caller, frame] = slots.map(|offset| self.word(self.tables.root.wrapping_add_signed(offset)));
        let (caller, frame) = (self.canonical(caller?), frame?);
        (self.is_frame(frame, low) && self.is_v8(caller)).then_some((caller, frame))
    }

    /// The bytecode address of the interpreted frame at `fp`. With `learns`, stores the array's map: once per walk, since that
    /// cache line is not touched otherwise.
    fn bytecode_address(&self, fp: usize, learns: bool) -> Option<usize> {
        let (array, offset) = self.interpreter_slots(fp)?;
        if let Some(map) = learns.then(|| self.word(array.wrapping_sub(1))).flatten() {
            self.tables.bytecode_map.store(map as u64, Ordering::Relaxed);
        }
        Some(array.wrapping_add(offset))
    }

    /// As `bytecode_address`, where the frame at `fp` may not be interpreted.
    fn checked_bytecode_address(&self, fp: usize) -> Option<usize> {
        let (array, offset) = self.interpreter_slots(fp)?;
        let map = self.tables.bytecode_map.load(Ordering::Relaxed);
        (map != 0 && self.word(array.wrapping_sub(1))? as u64 == map).then_some(array.wrapping_add(offset))
    }

    fn interpreter_slots(&self, fp: usize) -> Option<(usize, usize)> {
        let array = self.word(fp.wrapping_add_signed(self.tables.bytecode_array))?;
        let offset = self.word(fp.wrapping_add_signed(self.tables.bytecode_offset))?;
        let is_smi = offset & 0xffff_ffff == 0 && offset >> 32 != 0 && offset >> 32 < 1 << 28;
        (array & 3 == 1 && array > PAGE && is_smi).then_some((array, offset >> 32))
    }

    fn word(&self, address: usize) -> Option<usize> {
        self.memory.word(address)
    }
}

/// A frame at an address in V8's code. Its page is the code id, so that ended code is invalidated by pages.
pub fn code_frame(address: usize) -> RawFrame {
    RawFrame { code: (address & !PAGE) as u64, at: (address & PAGE) as u64 }
}

/// Walks a thread without JavaScript, along frame pointers.
pub fn walk_native(memory: &impl Memory, registers: &StackRegisters, stack: &mut RawStack<'_>) {
    let StackRegisters { pc, sp, mut fp } = *registers;
    let mut low = sp;
    let mut has_capacity = stack.push(RawFrame::native(pc as u64));
    while has_capacity && fp >= low && fp % 8 == 0 && fp.wrapping_sub(low) <= MAX_FRAME_BYTES {
        let (Some(next), Some(return_to)) = (memory.word(fp), memory.word(fp.wrapping_add(8))) else { break };
        if return_to <= PAGE {
            break;
        }
        has_capacity = stack.push(RawFrame::native((return_to as u64).wrapping_sub(1)));
        (low, fp) = (fp.wrapping_add(16), next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_frame_is_its_page_and_the_offset_in_it() {
        assert_eq!(code_frame(0x1234_5678), RawFrame { code: 0x1234_5000, at: 0x678 });
    }
}
