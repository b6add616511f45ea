//! Reads one frame of the chain with guarded reads and classifies it: the part of the walk that both captures share. Runs in
//! handlers. Not here: which frames a thread has and in which order (`capture`, `capture::other_thread`).
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | 3.9 | frame objects linked by `f_back`; `f_lasti` counts bytes (`Include/cpython/frameobject.h`) | `read_frame_object` |
//! | 3.10 | `f_lasti` counts code units | `bytes_per_step` |
//! | 3.11 | `_PyInterpreterFrame`; incomplete below `_co_firsttraceable` (`_PyFrame_IsIncomplete`, `Include/internal/pycore_frame.h`) | `read_interpreter_frame`, `has_begun` |
//! | 3.12 | entry frames of the interpreter: owner `FRAME_OWNED_BY_CSTACK`, 3 | `first_entry_owner`, `FrameClass::Skipped` |
//! | 3.13 | `f_executable` replaces `f_code` and can be `None`; `instr_ptr` replaces `prev_instr` and is the current instruction | `validate`, `unit` |
//! | 3.14 | tag bits in `f_executable`; owners up to 4 (`Include/internal/pycore_interpframe_structs.h`); 32 bits of reference count | mask in `read_interpreter_frame`, `MAX_OWNER`, `short_reference_count` |

use spanprof_signal::{Memory, ProcessMemory, RawFrame};

use super::frame_word::FrameWord;
use super::sampled_code::{SampledCode, SAMPLED_CODE};
use crate::runtime::interpreter::layout::{
    fixed, ActivationBottom, CurrentFrame, FrameChain, FrameObjectLayout, InstructionsLayout, InterpreterFrameLayout,
};
use crate::runtime::interpreter::Interpreter;

/// The inputs of a walk: with the same ones, it always returns the same frames. Tests replay recorded stacks with their own.
pub struct FrameReader<'a, M> {
    /// Where the frames are read.
    pub memory: &'a M,
    /// Properties of the interpreter whose frames are read.
    pub interpreter: &'a Interpreter,
    /// Marks of the code objects that were validated.
    pub sampled_code: &'a SampledCode,
}

impl<'a> FrameReader<'a, ProcessMemory> {
    /// Reads the frames of this process.
    #[inline(always)]
    pub fn of_process(interpreter: &'a Interpreter) -> Self {
        Self { memory: &ProcessMemory, interpreter, sampled_code: &SAMPLED_CODE }
    }
}

/// A frame of the chain as read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLink {
    /// The code object; meaningless for an entry frame.
    pub code: usize,
    /// The caller's frame; 0 at the root.
    pub previous: usize,
    /// Instruction pointer (from 3.11) or instruction index.
    pub instruction: u64,
    /// An entry frame of the interpreter itself, without Python code.
    pub is_entry: bool,
    /// The bottom frame of one activation of the interpreter loop (3.11, 3.12).
    pub is_bottom: bool,
    /// The frame lies on the thread's data stack, where frames are pushed and popped like C frames (from 3.11).
    pub is_on_data_stack: bool,
}

/// Classification of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// A frame to show.
    Frame(RawFrame),
    /// Not a frame of the program, or one that has not begun: its time goes to the caller.
    Skipped,
    /// The frame is being torn down: its code object has already ended.
    Ended,
    /// Not a frame at all.
    Invalid,
}

/// Start of a thread's frame chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStart {
    /// The leaf frame; 0 when the thread runs no Python.
    pub leaf: usize,
    /// The frame that called the current activation of the interpreter loop, read independently of `leaf` (3.11, 3.12).
    pub caller: Option<usize>,
    /// The record of the current activation on the C stack (3.10 to 3.12); 0 without one.
    pub record: usize,
}

enum Validity {
    Alive,
    Ended,
    Invalid,
}

/// Upper bound of a C stack; words that are further away are not taken for addresses of it, which avoids faults.
pub(super) const STACK_BYTES: usize = 64 << 20;
/// The bottom record of the C stack lies in the thread state, within this many bytes.
const THREAD_STATE_BYTES: usize = 1024;
/// Offset of the last word of a frame that is read.
const LAST_WORD_OF_FRAME: usize = 72;
/// Reference counts above this are pointers of a free list.
const MAX_REFERENCES: u64 = 1 << 40;
/// A function that has not begun is below this instruction, except for functions with many cells.
const MAX_PROLOGUE_UNITS: i64 = 8;
/// The highest value of the field `owner` in any version.
const MAX_OWNER: u8 = 4;

impl<M: Memory> FrameReader<'_, M> {
    /// Reads the frame at `address`. `None`: not readable, or not a frame.
    ///
    /// Always inlined, as is [`Self::classify`]: passed in memory, a link costs more in stalled loads than all reads together.
    #[inline(always)]
    pub fn read(&self, address: usize) -> Option<FrameLink> {
        match &self.interpreter.layout.frames {
            FrameChain::Interpreter(layout) => self.read_interpreter_frame(layout, address),
            FrameChain::Objects(layout) => self.read_frame_object(layout, address),
        }
    }

    /// As [`Self::read`], for any word: without a fault if it is no address of a frame.
    pub fn read_guess(&self, address: usize) -> Option<FrameLink> {
        let guess = |address: usize, offset: usize| self.memory.guess(address.checked_add(offset)?);
        let link = guess(address, 0).and(guess(address, LAST_WORD_OF_FRAME)).and_then(|_| self.read(address))?;
        (link.is_entry || guess(link.code, 0).is_some()).then_some(link)
    }

    /// As [`Self::read`], for the leaf of a thread that may be entering the interpreter loop: in 3.11 and 3.12 it is then left over
    /// from an earlier call.
    pub fn read_leaf(&self, address: usize) -> Option<FrameLink> {
        match &self.interpreter.layout.frames {
            FrameChain::Interpreter(InterpreterFrameLayout { current: CurrentFrame::OnCStack { .. }, .. }) => {
                self.read_guess(address)
            }
            _ => self.read(address),
        }
    }

    #[inline(always)]
    fn read_interpreter_frame(&self, layout: &InterpreterFrameLayout, address: usize) -> Option<FrameLink> {
        let mut bytes = [0u8; 80];
        if address & 7 != 0 || !self.memory.copy_80(&mut bytes, address) {
            return None;
        }
        let owner = *bytes.get(layout.owner)?;
        if owner > MAX_OWNER {
            return None;
        }
        let is_entry = owner >= layout.first_entry_owner;
        let is_bottom = match layout.current {
            CurrentFrame::OnCStack { bottom: ActivationBottom::Flag(offset), .. } => *bytes.get(offset)? != 0,
            CurrentFrame::OnCStack { bottom: ActivationBottom::EntryFrame, .. } => is_entry,
            CurrentFrame::InThread(_) => false,
        };
        Some(FrameLink {
            // Code objects are aligned to 8 bytes at least; from 3.14 the low bits are tags.
            code: field(&bytes, layout.code)? as usize & !7,
            previous: field(&bytes, layout.previous)? as usize,
            instruction: field(&bytes, layout.instruction)?,
            is_entry,
            is_bottom,
            is_on_data_stack: owner == 0,
        })
    }

    #[inline(always)]
    fn read_frame_object(&self, layout: &FrameObjectLayout, address: usize) -> Option<FrameLink> {
        let field = |offset: usize| self.word(address, offset).map(|word| word as u64);
        // A freed frame object is kept for the next call; only its reference count differs.
        let references = field(0)?;
        let is_dead = references == 0 || references > MAX_REFERENCES;
        if address & 7 != 0 || is_dead || field(fixed::TYPE)? as usize != self.interpreter.frame_type {
            return None;
        }
        Some(FrameLink {
            code: field(layout.code)? as usize,
            previous: field(layout.back)? as usize,
            instruction: field(layout.last_instruction)? & 0xffff_ffff,
            is_entry: false,
            is_bottom: false,
            is_on_data_stack: false,
        })
    }

    /// Classifies a link; for a frame, validates its code object and marks it as sampled.
    #[inline(always)]
    pub fn classify(&self, link: &FrameLink) -> FrameClass {
        if link.is_entry {
            return FrameClass::Skipped;
        }
        let code = link.code as u64;
        if code < RawFrame::FIRST_RUNTIME_CODE || code & 7 != 0 {
            return FrameClass::Invalid;
        }
        let generation = match self.sampled_code.generation_if_marked(code) {
            Some(generation) => generation,
            None => match self.validate(link.code) {
                Validity::Alive => self.sampled_code.mark(code),
                Validity::Ended => return FrameClass::Ended,
                Validity::Invalid => return FrameClass::Invalid,
            },
        };
        let Some(unit) = self.unit(link) else { return FrameClass::Invalid };
        if let (true, Some(instructions)) = (unit < MAX_PROLOGUE_UNITS, &self.interpreter.layout.code.instructions) {
            match self.has_begun(instructions, link.code, unit) {
                Some(true) => {}
                Some(false) => return FrameClass::Skipped,
                None => return FrameClass::Invalid,
            }
        }
        FrameClass::Frame(RawFrame { code, at: FrameWord::new(generation, unit).0 })
    }

    /// The raw frame of the code object at `code`, marked as sampled, at instruction `unit`; `None` for another object. The
    /// caller holds the GIL and a reference.
    pub fn frame_of_code(&self, code: usize, unit: i64) -> Option<RawFrame> {
        let is_code = matches!(self.validate(code), Validity::Alive) && (-1..=FrameWord::MAX_UNIT).contains(&unit);
        let code = code as u64;
        let generation =
            || self.sampled_code.generation_if_marked(code).unwrap_or_else(|| self.sampled_code.mark(code));
        is_code.then(|| RawFrame { code, at: FrameWord::new(generation(), unit).0 })
    }

    /// Whether there is a code object at `code`. Up to 3.11 a frame may still be linked while its code object ends.
    #[inline(never)]
    fn validate(&self, code: usize) -> Validity {
        let (Some(count), Some(code_type)) = (self.word(code, 0), self.word(code, fixed::TYPE)) else {
            return Validity::Invalid;
        };
        if code_type != self.interpreter.code_type {
            return Validity::Invalid;
        }
        let mask = if self.interpreter.layout.short_reference_count { 0xffff_ffff } else { u64::MAX };
        let count = count as u64 & mask;
        if count == 0 || count > MAX_REFERENCES {
            return Validity::Ended;
        }
        Validity::Alive
    }

    /// Index of the instruction in code units, -1 before the first; `None` when it is out of range.
    #[inline(always)]
    fn unit(&self, link: &FrameLink) -> Option<i64> {
        let unit = match &self.interpreter.layout.frames {
            FrameChain::Interpreter(_) => {
                let first = link.code.checked_add(self.interpreter.layout.code.instructions.as_ref()?.first)?;
                (link.instruction.wrapping_sub(first as u64) as i64) >> 1
            }
            FrameChain::Objects(layout) => (i64::from(link.instruction as u32 as i32) * layout.bytes_per_step) >> 1,
        };
        (-1..=FrameWord::MAX_UNIT).contains(&unit).then_some(unit)
    }

    /// Whether the frame is complete. Below the first traceable instruction a function is still being entered; the interpreter's
    /// own cleanup frames never pass it. Frame objects (up to 3.10) are always complete. `None`: not readable.
    #[inline(never)]
    fn has_begun(&self, instructions: &InstructionsLayout, code: usize, unit: i64) -> Option<bool> {
        let first_traceable = self.word(code, instructions.first_traceable)?;
        Some(unit >= i64::from(first_traceable as u32 as i32))
    }

    /// The start of the frame chain in the `PyThreadState` at `thread`; `None` when it cannot be read.
    #[inline]
    pub fn start(&self, thread: usize) -> Option<ChainStart> {
        match &self.interpreter.layout.frames {
            FrameChain::Objects(layout) => {
                let record = layout.activation.and_then(|(holder, _)| self.word(thread, holder)).unwrap_or(0);
                Some(ChainStart { leaf: self.word(thread, layout.current)?, caller: None, record })
            }
            FrameChain::Interpreter(layout) => match layout.current {
                CurrentFrame::InThread(offset) => {
                    Some(ChainStart { leaf: self.word(thread, offset)?, caller: None, record: 0 })
                }
                CurrentFrame::OnCStack { holder, frame, below, .. } => {
                    let holder = self.word(thread, holder)?;
                    let leaf = self.word(holder, frame)?;
                    let below = self.word(holder, below)?;
                    let caller = match below {
                        0 => None,
                        // Read from another thread, it may be left over from an earlier call.
                        below if !is_further_up(below, holder, thread) => {
                            Some(self.memory.guess(below.checked_add(frame)?)?)
                        }
                        below => Some(self.word(below, frame)?),
                    };
                    Some(ChainStart { leaf, caller, record: holder })
                }
            },
        }
    }

    /// The record of the activation that called that of `record` (3.10 to 3.12).
    #[inline]
    pub fn previous_record(&self, record: usize) -> usize {
        let below = match &self.interpreter.layout.frames {
            FrameChain::Objects(layout) => layout.activation.map(|(_, below)| below),
            FrameChain::Interpreter(layout) => match layout.current {
                CurrentFrame::OnCStack { below, .. } => Some(below),
                CurrentFrame::InThread(_) => None,
            },
        };
        below.filter(|_| record != 0).and_then(|below| self.word(record, below)).unwrap_or(0)
    }

    /// Whether the state at `thread` belongs to the profiled interpreter.
    #[inline]
    pub fn is_ours(&self, thread: usize) -> bool {
        self.word(thread, fixed::INTERPRETER) == Some(self.interpreter.main)
    }

    /// The word at `offset` of the structure at `address`.
    #[inline(always)]
    pub fn word(&self, address: usize, offset: usize) -> Option<usize> {
        self.memory.word(address.checked_add(offset)?)
    }
}

/// Whether a record is the last one of a thread, which is a field of its state.
pub fn is_last_record(record: usize, thread: usize) -> bool {
    record.wrapping_sub(thread) < THREAD_STATE_BYTES
}

/// Whether a `_PyCFrame` may be the previous one of that at `holder`: further up the C stack, or in the thread state.
fn is_further_up(below: usize, holder: usize, thread: usize) -> bool {
    below.wrapping_sub(holder) < STACK_BYTES || is_last_record(below, thread)
}

#[inline(always)]
fn field(bytes: &[u8; 80], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_no_address_are_classified_without_a_panic() {
        for minor in 9..=15 {
            let interpreter = Interpreter::without_process(minor);
            for code in [0, 8, 4096, usize::MAX & !7, usize::MAX - 4095, 1 << 63] {
                let reader = FrameReader::of_process(&interpreter);
                let link = FrameLink {
                    code,
                    previous: usize::MAX,
                    instruction: u64::MAX,
                    is_entry: false,
                    is_bottom: false,
                    is_on_data_stack: true,
                };
                assert_eq!(reader.classify(&link), FrameClass::Invalid, "3.{minor}, code {code:#x}");
                if let Some(instructions) = &interpreter.layout.code.instructions {
                    assert_eq!(reader.has_begun(instructions, code, 0), None);
                }
                assert_eq!(reader.start(code), None);
                assert!(!reader.is_ours(code));
                assert_eq!(reader.read(code), None);
            }
        }
    }
}
