//! Finds the start of the frame chain when a signal interrupts the entry of the interpreter loop (3.11 and 3.12 only). The
//! thread state already points to the loop's new `_PyCFrame` on the C stack, but compilers store its fields some instructions
//! later. Until then both fields, the leaf frame and the previous record, are left over from an earlier activation. The
//! address of the previous record is then in a register; that record and its frames are complete. Runs in handlers.
//!
//! # Changes in CPython
//! | version | change | handled in |
//! |---|---|---|
//! | up to 3.10 | the current frame is in the thread state | `start_below` returns `None` |
//! | 3.11 | `_PyCFrame` on the C stack holds it, after `use_tracing` (`Include/cpython/pystate.h`); `is_entry` marks the bottom frame | `CurrentFrame::OnCStack`, `ActivationBottom::Flag` |
//! | 3.12 | `use_tracing` is gone; an entry frame is at the bottom | `ActivationBottom::EntryFrame` |
//! | 3.13 | no `_PyCFrame`: the current frame is in the thread state | `start_below` returns `None` |

use spanprof_signal::{HandlerContext, Memory};

use super::frame::{is_last_record, ChainStart, FrameClass, FrameReader, STACK_BYTES};
use crate::runtime::interpreter::layout::{CurrentFrame, FrameChain};

/// The fields are stored within this many bytes of the loop's entry (96 and 166 in GCC's builds; 84 on arm64, in Debian's 3.11); no
/// instruction in this range executes bytecode.
pub const ENTRY_BYTES: u64 = 192;
/// The loop's own record lies within this distance of its stack pointer; the previous record is at least two C frames above.
const OWN_RECORD_BYTES: u64 = 512;

/// Whether the signal interrupted the entry of the interpreter loop.
#[inline]
pub fn is_entering<M: Memory>(reader: &FrameReader<'_, M>, registers: &InterruptedRegisters<'_>) -> bool {
    registers.program_counter().wrapping_sub(reader.interpreter.loop_entry as u64) < ENTRY_BYTES
}

/// The chain without the function that is being entered. `None`: not interrupted there, or no register holds the record; the
/// walk then starts from the thread state.
#[inline]
pub fn start_below<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    registers: Option<&InterruptedRegisters<'_>>,
) -> Option<ChainStart> {
    let FrameChain::Interpreter(frames) = &reader.interpreter.layout.frames else { return None };
    let CurrentFrame::OnCStack { holder, frame, below, .. } = frames.current else { return None };
    let registers = registers.filter(|registers| is_entering(reader, registers))?;
    let own = reader.word(thread, holder)? as u64;
    if own.wrapping_sub(registers.stack_pointer()) >= OWN_RECORD_BYTES {
        return None;
    }
    let mut nearest: Option<(u64, ChainStart)> = None;
    registers.each(|word| {
        let is_nearer = nearest.is_none_or(|(known, _)| word < known);
        if word > own && word - own < STACK_BYTES as u64 && word & 7 == 0 && is_nearer {
            if let Some(start) = record(reader, thread, word as usize, frame, below) {
                nearest = Some((word, start));
            }
        }
    });
    nearest.map(|(_, start)| start)
}

/// The chain that starts at the `_PyCFrame` at `address`, if there is one: it points to a frame with a code object, and to a
/// previous record further up the stack or in the thread state.
fn record<M: Memory>(
    reader: &FrameReader<'_, M>,
    thread: usize,
    address: usize,
    frame: usize,
    below: usize,
) -> Option<ChainStart> {
    // Any word may be in a register.
    let guess = |address: usize, offset: usize| reader.memory.guess(address.checked_add(offset)?);
    let leaf = guess(address, frame)?;
    let below = guess(address, below)?;
    if below <= address && !is_last_record(below, thread) {
        return None;
    }
    if reader.classify(&reader.read_guess(leaf)?) == FrameClass::Invalid {
        return None;
    }
    let caller = guess(below, frame)?;
    Some(ChainStart { leaf, caller: Some(caller), record: address })
}

/// Registers of the interrupted thread.
pub struct InterruptedRegisters<'a> {
    context: &'a libc::ucontext_t,
}

impl<'a> InterruptedRegisters<'a> {
    /// From the handler's `ucontext` argument; `None` outside a handler.
    #[inline]
    pub fn of(context: &'a HandlerContext) -> Option<Self> {
        // SAFETY: null, or the ucontext_t that the kernel passed to the running handler.
        unsafe { context.ucontext.cast::<libc::ucontext_t>().as_ref() }.map(|context| Self { context })
    }

    /// Address of the interrupted instruction.
    #[inline]
    pub fn program_counter(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return self.context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64;
        #[cfg(target_arch = "aarch64")]
        return self.context.uc_mcontext.pc;
    }

    #[inline]
    fn stack_pointer(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        return self.context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
        #[cfg(target_arch = "aarch64")]
        return self.context.uc_mcontext.sp;
    }

    /// The return address of the interrupted function if it is a leaf function without a stack frame; otherwise any word.
    #[inline]
    pub fn return_address_of_a_leaf(&self, memory: &impl Memory) -> Option<u64> {
        #[cfg(target_arch = "x86_64")]
        return memory.word(self.stack_pointer() as usize).map(|word| word as u64);
        #[cfg(target_arch = "aarch64")]
        return {
            let _ = memory;
            Some(spanprof_unwind::return_address(self.context.uc_mcontext.regs[30]))
        };
    }

    /// Visits every word in a general register and, where compilers combine two fields in one store, in a vector register.
    pub fn each(&self, mut visit: impl FnMut(u64)) {
        #[cfg(target_arch = "x86_64")]
        {
            for &word in &self.context.uc_mcontext.gregs[..=libc::REG_RSP as usize] {
                visit(word as u64);
            }
            for &word in saved_vectors(self.context).iter().flat_map(|saved| saved.vectors.as_flattened()) {
                visit(word);
            }
        }
        #[cfg(target_arch = "aarch64")]
        for &word in &self.context.uc_mcontext.regs {
            visit(word);
        }
    }
}

/// The kernel's copy of the floating-point and vector registers (layout of the FXSAVE instruction), up to the vectors.
#[cfg(target_arch = "x86_64")]
#[repr(C)]
struct SavedVectors {
    _floating_point: [u64; 20],
    vectors: [[u64; 2]; 16],
}

/// Words of the kernel's context before the pointer to the saved vectors: the general registers.
#[cfg(target_arch = "x86_64")]
const WORDS_BEFORE_VECTORS: usize = 23;

#[cfg(target_arch = "x86_64")]
const _: () = assert!(size_of::<libc::mcontext_t>() >= 8 * (WORDS_BEFORE_VECTORS + 1));
// The C libraries use different names, or none, for the same struct of the kernel.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
const _: () = {
    assert!(std::mem::offset_of!(libc::mcontext_t, fpregs) == 8 * WORDS_BEFORE_VECTORS);
    assert!(std::mem::offset_of!(libc::_libc_fpstate, _xmm) == std::mem::offset_of!(SavedVectors, vectors));
};

#[cfg(target_arch = "x86_64")]
fn saved_vectors(context: &libc::ucontext_t) -> Option<&SavedVectors> {
    let words = (&raw const context.uc_mcontext).cast::<*const SavedVectors>();
    // SAFETY: the context is the kernel's and has the asserted size; the word after the general registers is null or points to
    // the registers that the kernel saved.
    unsafe { words.add(WORDS_BEFORE_VECTORS).read().as_ref() }
}

/// Recorded registers in the form in which the kernel passes them to a handler.
#[cfg(all(test, target_arch = "x86_64"))]
pub struct RecordedRegisters {
    context: Box<libc::ucontext_t>,
    _vectors: Box<SavedVectors>,
}

#[cfg(all(test, target_arch = "x86_64"))]
impl RecordedRegisters {
    /// From the words that [`InterruptedRegisters::each`] visited.
    pub fn new(program_counter: u64, words: &[u64]) -> Self {
        let (general, vectors) = words.split_at(libc::REG_RSP as usize + 1);
        let mut saved = Box::new(SavedVectors { _floating_point: [0; 20], vectors: [[0; 2]; 16] });
        saved.vectors.as_flattened_mut().copy_from_slice(vectors);
        // SAFETY: plain data of the kernel, for which all-zero bytes are valid; the pointer's place has the asserted offset.
        let context = unsafe {
            let mut context: Box<libc::ucontext_t> = Box::new(std::mem::zeroed());
            let words = (&raw mut context.uc_mcontext).cast::<*const SavedVectors>();
            words.add(WORDS_BEFORE_VECTORS).write(&raw const *saved);
            context
        };
        let mut registers = Self { context, _vectors: saved };
        let all = &mut registers.context.uc_mcontext.gregs;
        all.iter_mut().zip(general).for_each(|(register, word)| *register = *word as i64);
        all[libc::REG_RIP as usize] = program_counter as i64;
        registers
    }

    /// The registers, for a walk.
    pub fn interrupted(&self) -> InterruptedRegisters<'_> {
        InterruptedRegisters { context: &self.context }
    }
}
