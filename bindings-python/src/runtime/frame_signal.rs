//! Reads one frame of the chain with guarded reads and classifies it: the part of the walk that both captures share. Runs in
//! handlers. Not here: which frames a thread has and in which order (`capture_signal`, `capture_other`).

use spanprof_signal::{guarded, RawFrame};

use super::frame_word::FrameWord;
use super::interpreter::Interpreter;
use super::layout::{
    fixed, ActivationBottom, CurrentFrame, FrameChain, FrameObjectLayout, InterpreterFrameLayout, ThreadLayout,
};
use super::sampled_code_signal::SAMPLED_CODE;

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

/// Reference counts above this are pointers of a free list.
const MAX_REFERENCES: u64 = 1 << 40;
/// A function that has not begun is below this instruction, except for functions with many cells.
const MAX_PROLOGUE_UNITS: i64 = 8;
/// The highest value of the field `owner` in any version.
const MAX_OWNER: u8 = 4;

/// Reads the frame at `address`. `None`: not readable, or not a frame.
///
/// Always inlined, as is [`classify`]: passed in memory, a link costs more in stalled loads than all reads together.
#[inline(always)]
pub fn read(interpreter: &Interpreter, address: usize) -> Option<FrameLink> {
    match &interpreter.layout.frames {
        FrameChain::Interpreter(layout) => read_interpreter_frame(layout, address),
        FrameChain::Objects(layout) => read_frame_object(interpreter, layout, address),
    }
}

#[inline(always)]
fn read_interpreter_frame(layout: &InterpreterFrameLayout, address: usize) -> Option<FrameLink> {
    let mut bytes = [0u8; 80];
    if address & 7 != 0 || !guarded::copy_80(&mut bytes, address) {
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
        code: word(&bytes, layout.code)? as usize & !7,
        previous: word(&bytes, layout.previous)? as usize,
        instruction: word(&bytes, layout.instruction)?,
        is_entry,
        is_bottom,
        is_on_data_stack: owner == 0,
    })
}

#[inline(always)]
fn word(bytes: &[u8; 80], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_ne_bytes(field.try_into().ok()?))
}

#[inline(always)]
fn read_frame_object(interpreter: &Interpreter, layout: &FrameObjectLayout, address: usize) -> Option<FrameLink> {
    let field = |offset: usize| guarded::read_u64(address.checked_add(offset)?);
    // A freed frame object is kept for the next call; only its reference count differs.
    let references = field(0)?;
    let is_dead = references == 0 || references > MAX_REFERENCES;
    if address & 7 != 0 || is_dead || field(fixed::TYPE)? as usize != interpreter.frame_type {
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
pub fn classify(interpreter: &Interpreter, link: &FrameLink) -> FrameClass {
    if link.is_entry {
        return FrameClass::Skipped;
    }
    let code = link.code as u64;
    if code < RawFrame::FIRST_RUNTIME_CODE || code & 7 != 0 {
        return FrameClass::Invalid;
    }
    let generation = match SAMPLED_CODE.generation_if_marked(code) {
        Some(generation) => generation,
        None => match validate(interpreter, link.code) {
            Validity::Alive => SAMPLED_CODE.mark(code),
            Validity::Ended => return FrameClass::Ended,
            Validity::Invalid => return FrameClass::Invalid,
        },
    };
    let Some(unit) = unit(interpreter, link) else { return FrameClass::Invalid };
    if unit < MAX_PROLOGUE_UNITS && !has_begun(interpreter, link.code, unit) {
        return FrameClass::Skipped;
    }
    FrameClass::Frame(RawFrame { code, at: FrameWord::new(generation, unit).0 })
}

enum Validity {
    Alive,
    Ended,
    Invalid,
}

/// Whether there is a code object at `code`. Up to 3.11 a frame may still be linked while its code object ends.
#[inline(never)]
fn validate(interpreter: &Interpreter, code: usize) -> Validity {
    let type_word = code.checked_add(fixed::TYPE).and_then(guarded::read_u64);
    let (Some(count), Some(type_word)) = (guarded::read_u64(code), type_word) else {
        return Validity::Invalid;
    };
    if type_word as usize != interpreter.code_type {
        return Validity::Invalid;
    }
    let count = if interpreter.layout.short_reference_count { count & 0xffff_ffff } else { count };
    if count == 0 || count > MAX_REFERENCES {
        return Validity::Ended;
    }
    Validity::Alive
}

/// Index of the instruction in code units, -1 before the first; `None` when it is out of range.
#[inline(always)]
fn unit(interpreter: &Interpreter, link: &FrameLink) -> Option<i64> {
    let unit = match &interpreter.layout.frames {
        FrameChain::Interpreter(_) => {
            let first = link.code.checked_add(interpreter.layout.code.instructions.as_ref()?.first)?;
            (link.instruction.wrapping_sub(first as u64) as i64) >> 1
        }
        FrameChain::Objects(layout) => (i64::from(link.instruction as u32 as i32) * layout.bytes_per_step) >> 1,
    };
    (-1..=FrameWord::MAX_UNIT).contains(&unit).then_some(unit)
}

/// Whether the frame is complete. Below the first traceable instruction a function is still being entered; the interpreter's
/// own cleanup frames never pass it. Frame objects (up to 3.10) are always complete.
#[inline(never)]
fn has_begun(interpreter: &Interpreter, code: usize, unit: i64) -> bool {
    let Some(instructions) = &interpreter.layout.code.instructions else { return true };
    match code.checked_add(instructions.first_traceable).and_then(guarded::read_u64) {
        Some(first_traceable) => unit >= i64::from(first_traceable as u32 as i32),
        None => false,
    }
}

/// Start of a thread's frame chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStart {
    /// The leaf frame; 0 when the thread runs no Python.
    pub leaf: usize,
    /// The frame that called the current activation of the interpreter loop, read independently of `leaf` (3.11, 3.12).
    pub caller: Option<usize>,
}

/// The start of the chain of the thread whose state is at `thread`; `None` when it cannot be read.
#[inline]
pub fn start(interpreter: &Interpreter, thread: usize) -> Option<ChainStart> {
    let read = |address: usize| guarded::read_u64(address).map(|word| word as usize);
    match &interpreter.layout.frames {
        FrameChain::Objects(layout) => {
            Some(ChainStart { leaf: read(thread.checked_add(layout.current)?)?, caller: None })
        }
        FrameChain::Interpreter(layout) => match layout.current {
            CurrentFrame::InThread(offset) => {
                Some(ChainStart { leaf: read(thread.checked_add(offset)?)?, caller: None })
            }
            CurrentFrame::OnCStack { holder, frame, below, .. } => {
                let holder = read(thread.checked_add(holder)?)?;
                let leaf = read(holder.checked_add(frame)?)?;
                let below = read(holder.checked_add(below)?)?;
                let caller = if below == 0 { None } else { Some(read(below.checked_add(frame)?)?) };
                Some(ChainStart { leaf, caller })
            }
        },
    }
}

/// Whether the state at `thread` belongs to the profiled interpreter.
#[inline]
pub fn is_ours(interpreter: &Interpreter, thread: usize) -> bool {
    thread.checked_add(fixed::INTERPRETER).and_then(guarded::read_u64) == Some(interpreter.main as u64)
}

/// Kernel thread id or pthread handle in the state at `thread`.
#[inline]
pub fn thread_id_word(layout: &ThreadLayout, thread: usize) -> Option<u64> {
    let (super::layout::ThreadId::Kernel(offset) | super::layout::ThreadId::Pthread(offset)) = layout.id;
    guarded::read_u64(thread.checked_add(offset)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::context_signal::ContextProbe;
    use crate::runtime::layout;

    unsafe extern "C" fn no_thread() -> *mut pyo3::ffi::PyThreadState {
        std::ptr::null_mut()
    }

    fn interpreter(minor: u8) -> Interpreter {
        Interpreter {
            layout: *layout::for_version((3, minor)).unwrap(),
            current_thread: no_thread,
            first_thread: None,
            main: 0,
            loop_entry: 0,
            code_type: 1,
            frame_type: 1,
            int_type: 1,
            context: ContextProbe::new(),
        }
    }

    #[test]
    fn words_that_are_no_address_are_classified_without_a_panic() {
        for minor in 9..=15 {
            let interpreter = interpreter(minor);
            for code in [0, 8, 4096, usize::MAX & !7, usize::MAX - 4095, 1 << 63] {
                let link = FrameLink {
                    code,
                    previous: usize::MAX,
                    instruction: u64::MAX,
                    is_entry: false,
                    is_bottom: false,
                    is_on_data_stack: true,
                };
                assert_eq!(classify(&interpreter, &link), FrameClass::Invalid, "3.{minor}, code {code:#x}");
                assert!(!has_begun(&interpreter, code, 0) || minor < 11);
                assert_eq!(start(&interpreter, code), None);
                assert!(!is_ours(&interpreter, code));
                assert_eq!(read(&interpreter, code), None);
            }
        }
    }
}
