//! One frame of the chain, read through the guarded door and judged: the part of the walk that both captures share.
//! Runs in handlers. Not here: which frames a thread has and in which order (`capture_signal`, `capture_other`).

use spanprof_signal::{guarded, RawFrame};

use super::frame_word::FrameWord;
use super::interpreter::Interpreter;
use super::layout::{
    fixed, ActivationBottom, CurrentFrame, FrameChain, FrameObjectLayout, InterpreterFrameLayout, ThreadLayout,
};
use super::sampled_code_signal::SAMPLED_CODE;

/// A link of the chain as it stands in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
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
    /// It lies on the thread's data stack, where frames are pushed and popped like C frames (from 3.11).
    pub is_on_data_stack: bool,
}

/// What a link is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// A frame to show.
    Frame(RawFrame),
    /// Not a frame of the program, or one that has not begun: the caller is charged.
    Skipped,
    /// The frame is being torn down: its code object has already ended.
    Ended,
    /// Not a frame at all.
    Invalid,
}

/// Reference counts above this are pointers of a free list.
const MAX_REFERENCES: u64 = 1 << 40;
/// Frames whose function has not begun lie below this instruction, except in functions with many cells.
const MAX_PROLOGUE_UNITS: i64 = 8;
/// The highest owner that any version writes.
const MAX_OWNER: u8 = 4;

/// Reads the frame at `address`. `None`: not readable, or not a frame.
///
/// Inlined by force, as is [`judge`]: handed over in memory, a link costs more in stalled loads than all reads together.
#[inline(always)]
pub fn read(interpreter: &Interpreter, address: usize) -> Option<Link> {
    match &interpreter.layout.frames {
        FrameChain::Interpreter(layout) => read_interpreter_frame(layout, address),
        FrameChain::Objects(layout) => read_frame_object(interpreter, layout, address),
    }
}

#[inline(always)]
fn read_interpreter_frame(layout: &InterpreterFrameLayout, address: usize) -> Option<Link> {
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
    Some(Link {
        // Code objects are 8 bytes apart at least; from 3.14 the low bits are tags.
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
fn read_frame_object(interpreter: &Interpreter, layout: &FrameObjectLayout, address: usize) -> Option<Link> {
    let field = |offset: usize| guarded::read_u64(address.checked_add(offset)?);
    // A frame object that ended waits for the next call, its looks unchanged but for the references.
    let references = field(0)?;
    let is_dead = references == 0 || references > MAX_REFERENCES;
    if address & 7 != 0 || is_dead || field(fixed::TYPE)? as usize != interpreter.frame_type {
        return None;
    }
    Some(Link {
        code: field(layout.code)? as usize,
        previous: field(layout.back)? as usize,
        instruction: field(layout.last_instruction)? & 0xffff_ffff,
        is_entry: false,
        is_bottom: false,
        is_on_data_stack: false,
    })
}

/// The raw frame of a link, after its code object was validated and marked as sampled.
#[inline(always)]
pub fn judge(interpreter: &Interpreter, link: &Link) -> Judged {
    if link.is_entry {
        return Judged::Skipped;
    }
    let code = link.code as u64;
    if code < RawFrame::FIRST_RUNTIME_CODE || code & 7 != 0 {
        return Judged::Invalid;
    }
    let generation = match SAMPLED_CODE.generation_if_marked(code) {
        Some(generation) => generation,
        None => match validate(interpreter, link.code) {
            Validity::Alive => SAMPLED_CODE.mark(code),
            Validity::Ended => return Judged::Ended,
            Validity::Invalid => return Judged::Invalid,
        },
    };
    let Some(unit) = unit(interpreter, link) else { return Judged::Invalid };
    if unit < MAX_PROLOGUE_UNITS && !has_begun(interpreter, link.code, unit) {
        return Judged::Skipped;
    }
    Judged::Frame(RawFrame { code, at: FrameWord::new(generation, unit).0 })
}

enum Validity {
    Alive,
    Ended,
    Invalid,
}

/// Whether a code object stands at `code`. Up to 3.11 a frame may still be linked while its code ends.
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

/// Index of the instruction in code units, -1 before the first; `None` when it lies outside any code.
#[inline(always)]
fn unit(interpreter: &Interpreter, link: &Link) -> Option<i64> {
    let unit = match &interpreter.layout.frames {
        FrameChain::Interpreter(_) => {
            let first = link.code.checked_add(interpreter.layout.code.instructions.as_ref()?.first)?;
            (link.instruction.wrapping_sub(first as u64) as i64) >> 1
        }
        FrameChain::Objects(layout) => (i64::from(link.instruction as u32 as i32) * layout.bytes_per_step) >> 1,
    };
    (-1..=FrameWord::MAX_UNIT).contains(&unit).then_some(unit)
}

/// Whether the frame is complete: below the first traceable instruction a function is still being entered, and the
/// interpreter's own cleanup frames stay there for ever. Frame objects (to 3.10) are complete from the start.
#[inline(never)]
fn has_begun(interpreter: &Interpreter, code: usize, unit: i64) -> bool {
    let Some(instructions) = &interpreter.layout.code.instructions else { return true };
    match code.checked_add(instructions.first_traceable).and_then(guarded::read_u64) {
        Some(first_traceable) => unit >= i64::from(first_traceable as u32 as i32),
        None => false,
    }
}

/// Where a thread's chain begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStart {
    /// The leaf frame; 0 when the thread runs no Python.
    pub leaf: usize,
    /// The frame that called the current activation of the interpreter loop, known independently of `leaf` (3.11, 3.12).
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

/// Whether the state at `thread` belongs to the interpreter we profile.
#[inline]
pub fn is_ours(interpreter: &Interpreter, thread: usize) -> bool {
    thread.checked_add(fixed::INTERPRETER).and_then(guarded::read_u64) == Some(interpreter.main as u64)
}

/// Kernel thread id or pthread handle that the state at `thread` names.
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
    fn words_that_are_no_address_are_judged_without_a_panic() {
        for minor in 9..=15 {
            let interpreter = interpreter(minor);
            for code in [0, 8, 4096, usize::MAX & !7, usize::MAX - 4095, 1 << 63] {
                let link = Link {
                    code,
                    previous: usize::MAX,
                    instruction: u64::MAX,
                    is_entry: false,
                    is_bottom: false,
                    is_on_data_stack: true,
                };
                assert_eq!(judge(&interpreter, &link), Judged::Invalid, "3.{minor}, code {code:#x}");
                assert!(!has_begun(&interpreter, code, 0) || minor < 11);
                assert_eq!(start(&interpreter, code), None);
                assert!(!is_ours(&interpreter, code));
                assert_eq!(read(&interpreter, code), None);
            }
        }
    }
}
