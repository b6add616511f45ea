//! The stack walk: the frames of an interrupted thread, leaf first. All code of V8 has frame pointers; interpreted frames give the
//! address of their bytecode. Native code is unwound by tables; without them along frame pointers, which Node.js has and libraries
//! often lack. Generic over the memory, so that tests replay recorded stacks. Called by the capture function and the self-test.
//!
//! # Frames of a stack
//! * Native frames between the leaf and the first frame of V8 are kept. Of those between frames of V8, only code of other files than
//!   Node.js is kept. Those below the last one, which run the event loop, are left out.
//! * A synthetic frame above native ones gives V8's activity in them: collecting or compiling.
//! * Code without a frame of its own leaves its caller's frame pointer in the register: the caller is found by `frameless`.
//!
//! # Changes in V8
//! Upstream: `src/execution/frame-constants.h` (`CommonFrameConstants`, `InterpreterFrameConstants`),
//! `src/builtins/x64/builtins-x64.cc` (`Generate_InterpreterEntryTrampoline`), prologues in
//! `src/compiler/backend/x64/code-generator-x64.cc` and `src/baseline/x64/baseline-compiler-x64-inl.h`, and their counterparts
//! for arm64. Compared with recorded stacks (`tests/recorded`); the version is that of V8, with the Node.js that contains it.
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 10.2 (18) to 14.6 (26) | none: bytecode array at -32 and offset at -40 from the frame pointer, as V8 exports them; bytecode handlers have no frame of their own | `WalkTables`, `interpreter_slots` |
//! | 10.2 (18) | isolates run the builtins of the program | `canonical` |
//! | 11.3 (20) | isolates run a copy of the builtins | `canonical`; `code_events` finds the copy |
//! | 12.4 (22) | calls into C++ pass through `CallApiCallbackGeneric`, which is shown, in place of `HandleApiCall` | `is_hidden` of `builtin_ranges` |

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{Memory, RawFrame, RawStack};
use spanprof_unwind::{return_address, Walk, WalkEnd};

use super::frameless::{call_before, frameless_return, sets_up_frame, CallTarget};
use super::js_thread::{contains, BuiltinRanges};
use super::native_code::{NativeUnwinding, StackRegisters, MAX_FRAME_BYTES, PAGE};

/// Maximum number of frame pointers followed.
pub const MAX_FRAME_POINTERS: usize = 4096;
/// Words that a builtin without a frame may have pushed.
const MAX_PUSHED_WORDS: usize = 4;
/// Code without frames that calls each other: a write barrier and the builtin that writes.
const MAX_FRAMELESS: usize = 2;

/// The thread of a walk.
pub trait WalkedThread {
    /// Whether `pc` is in the machine code of the thread's isolate, builtins excluded.
    fn has_code(&self, pc: usize) -> bool;
}

#[cfg(any(test, feature = "record-stacks"))]
impl<T: WalkedThread> WalkedThread for &T {
    fn has_code(&self, pc: usize) -> bool {
        (**self).has_code(pc)
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

/// Result of a walk of a JavaScript thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct V8WalkOutcome {
    /// Whether a frame of V8 was reached.
    pub has_v8: bool,
    /// Number of frames before the first one above V8's that was found without a rule of its table; `None`: all are certain.
    pub certain_frames: Option<usize>,
    /// Why the walk by tables ended before V8's frames; `None`: it did not, or there was none.
    pub native_end: Option<WalkEnd>,
}

impl V8WalkOutcome {
    fn note_guess(&mut self, frames: usize) {
        if !self.has_v8 && self.certain_frames.is_none() {
            self.certain_frames = Some(frames);
        }
    }

    /// At the first frame of V8 below native ones: pushes V8's activity between them.
    fn enter_v8(&mut self, activity: Option<RawFrame>, stack: &mut RawStack<'_>) -> bool {
        std::mem::replace(&mut self.has_v8, true) || activity.is_none_or(|activity| stack.push(activity))
    }

    /// Native code has ended after this number of frames. True where frame pointers may continue.
    fn end_native(&mut self, end: WalkEnd, frames: usize) -> bool {
        if !self.has_v8 {
            self.native_end = Some(end);
        }
        let is_continued = self.has_v8 || matches!(end, WalkEnd::TableMissing | WalkEnd::OutsideFiles);
        if end == WalkEnd::Root || !is_continued {
            return false;
        }
        self.note_guess(frames);
        true
    }
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

    /// Without authentication code; an address in remapped builtins as that in the program's own embedded builtins.
    pub fn canonical(&self, pc: usize) -> usize {
        let pc = return_address(pc as u64) as usize;
        self.tables.builtin_ranges.builtins.canonical_address(pc, self.tables.remapped_builtins)
    }

    /// Walks along frame pointers alone. True when a frame of V8 was reached. Otherwise `stack` holds the native frames of the leaf.
    pub fn walk_frame_pointers(
        &self,
        registers: &StackRegisters,
        activity: Option<RawFrame>,
        stack: &mut RawStack<'_>,
    ) -> bool {
        self.walk(registers, None, activity, stack).has_v8
    }

    /// Walks native code by its tables, and V8's code along frame pointers. `activity`: see [`synthetic_frame::COLLECTING`].
    ///
    /// [`synthetic_frame::COLLECTING`]: super::synthetic_frame::COLLECTING
    pub fn walk(
        &self,
        registers: &StackRegisters,
        native: Option<&NativeUnwinding<'_>>,
        activity: Option<RawFrame>,
        stack: &mut RawStack<'_>,
    ) -> V8WalkOutcome {
        let StackRegisters { pc, sp, mut fp, .. } = *registers;
        let mut outcome = V8WalkOutcome::default();
        let mut pc = self.canonical(pc);
        let mut low = sp;
        let mut learned = false;
        let mut unwinding = None;
        if self.is_v8(pc) {
            outcome.has_v8 = true;
            if !self.push_leaf(pc, registers, stack) {
                return outcome;
            }
        } else if stack.push(RawFrame::native(pc as u64)) {
            unwinding = native.map(|native| native.interrupted(&self.memory, registers));
        } else {
            return outcome;
        }
        // Frames up to the last one of V8: native code below it called no JavaScript.
        let mut v8_frames = stack.len();
        let builtins = self.tables.builtin_ranges.builtins.start as u64;
        let node = native.map_or(0..0, |native| native.tables.code_of_file(builtins));
        let mut is_frame = self.is_frame(fp, low);
        let mut fast_call = if outcome.has_v8 || unwinding.is_some() { None } else { self.fast_call(low) };
        for _ in 0..MAX_FRAME_POINTERS {
            let is_fast_call = |frame| unwinding.is_none() && !outcome.has_v8 && (!is_frame || fp >= frame);
            if let Some((caller, frame)) = fast_call.filter(|(_, frame)| is_fast_call(*frame)) {
                // A C function without a frame, or with another use of the register.
                let pushed = outcome.enter_v8(activity, stack)
                    && (self.is_hidden(caller) || stack.push(code_frame(caller.wrapping_sub(1))));
                if !pushed {
                    return outcome;
                }
                (fp, is_frame) = (frame, self.is_frame(frame, low));
                v8_frames = stack.len();
            }
            let callee = pc;
            if let Some(walk) = &mut unwinding {
                if let Err(end) = walk.step() {
                    end.count();
                    unwinding = None;
                    if !outcome.end_native(end, stack.len()) {
                        break;
                    }
                    if !outcome.has_v8 {
                        fast_call = self.fast_call(low);
                    }
                    continue;
                }
                if walk.is_guessed() {
                    outcome.note_guess(stack.len());
                }
                let caller = walk.registers();
                (pc, low) = (self.canonical(caller.pc as usize), caller.stack_pointer as usize);
                fp = caller.frame_pointer.map_or(0, |frame_pointer| frame_pointer as usize);
            } else {
                if !is_frame {
                    break;
                }
                let (Some(next), Some(return_to)) = (self.word(fp), self.word(fp.wrapping_add(8))) else { break };
                if return_to <= PAGE {
                    break;
                }
                // No arithmetic may overflow: a broken chain yields any word.
                (low, fp, pc) = (fp.wrapping_add(16), next, self.canonical(return_address(return_to as u64) as usize));
            }
            is_frame = self.is_frame(fp, low);
            let pushed = if self.is_v8(pc) {
                if unwinding.take().is_some() {
                    WalkEnd::Stopped.count();
                }
                let pushed = if self.is_interpreter(pc) {
                    // The frame that returns into the interpreter is a bytecode handler's; the frame above it is the function's.
                    let learns = !std::mem::replace(&mut learned, true);
                    outcome.enter_v8(activity, stack)
                        && (!is_frame
                            || self.bytecode_address(fp, learns).is_none_or(|address| stack.push(code_frame(address))))
                } else {
                    let hidden = self.is_hidden_builtin(pc);
                    outcome.enter_v8(activity, stack)
                        && (hidden || stack.push(code_frame(pc.wrapping_sub(1))))
                        // A builtin calls a write barrier without a frame.
                        && (hidden || !self.is_hidden_builtin(callee) || self.push_callers(pc, low, fp, stack))
                };
                v8_frames = stack.len();
                pushed
            } else {
                let call = unwinding.as_ref().map_or((pc as u64).wrapping_sub(1), Walk::pc);
                if unwinding.is_none() {
                    unwinding = native.map(|native| native.caller(&self.memory, call, low, fp));
                }
                let is_shown = !outcome.has_v8 || native.is_some_and(|native| native.is_in_other_file(call, &node));
                !is_shown || stack.push(RawFrame::native(call))
            };
            if !pushed {
                return outcome;
            }
        }
        if outcome.has_v8 {
            stack.truncate(v8_frames);
        }
        outcome
    }

    /// Whether a frame can be at `fp`, above the stack pointer or the frame that ends at `low`.
    #[inline(always)]
    fn is_frame(&self, fp: usize, low: usize) -> bool {
        fp >= low
            && fp.is_multiple_of(8)
            && fp.saturating_add(16) <= self.tables.stack_high
            && fp.wrapping_sub(low) <= MAX_FRAME_BYTES
    }

    /// Pushes the interrupted frame, in code of V8 at the canonical address `pc`. Also pushes its caller where the frame is not yet, or no
    /// longer, set up.
    fn push_leaf(&self, pc: usize, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        let StackRegisters { sp, fp, link, .. } = *registers;
        if self.is_interpreter(pc) {
            return self.checked_bytecode_address(fp).is_none_or(|at| stack.push(code_frame(at)));
        }
        let hidden = self.is_hidden_builtin(pc);
        if !hidden && !stack.push(code_frame(pc)) {
            return false;
        }
        let return_to = frameless_return(&self.memory, registers);
        // Frameless code called by an interpreted function.
        if let Some(at) = self.checked_bytecode_address(fp).filter(|_| !self.thread.has_code(pc) || return_to.is_some())
        {
            return stack.push(code_frame(at));
        }
        match return_to {
            Some(caller) => {
                let caller = caller.map(|caller| self.canonical(caller)).filter(|caller| self.is_v8(*caller));
                caller.is_none_or(|caller| self.is_hidden(caller) || stack.push(code_frame(caller.wrapping_sub(1))))
            }
            None => match self.linked_caller(pc, fp, link) {
                Some(caller) if !self.is_hidden(caller) && !stack.push(code_frame(caller.wrapping_sub(1))) => false,
                Some(caller) => self.push_callers(caller, sp, fp, stack),
                None => self.push_callers(pc, sp, fp, stack),
            },
        }
    }

    /// The return address in the link register, of a builtin without a frame that has called no other code. A builtin with a frame has
    /// the register's value in its frame until it calls other code, then an address of its own in the register.
    fn linked_caller(&self, pc: usize, fp: usize, link: usize) -> Option<usize> {
        let start = (link != 0).then(|| self.tables.builtin_ranges.start_of(pc)).flatten()?;
        let (caller, _) = self.call_before(link, start)?;
        let in_frame = self.canonical(self.word(fp.wrapping_add(8))?);
        (in_frame != caller && self.tables.builtin_ranges.start_of(caller) != Some(start)).then_some(caller)
    }

    /// The canonical address of this return address, if it is behind a call in V8's code, and whether that calls the builtin at `start`.
    fn call_before(&self, return_to: usize, start: usize) -> Option<(usize, bool)> {
        let (caller, return_to) = (self.canonical(return_to), return_address(return_to as u64) as usize);
        let call = self.is_v8(caller).then(|| call_before(&self.memory, return_to, self.tables.root)).flatten()?;
        Some((caller, matches!(call, CallTarget::Address(target) if self.canonical(target) == start)))
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
        let call_at = |address: usize| self.call_before(self.word(address)?, start);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_frame_is_its_page_and_the_offset_in_it() {
        assert_eq!(code_frame(0x1234_5678), RawFrame { code: 0x1234_5000, at: 0x678 });
    }
}
