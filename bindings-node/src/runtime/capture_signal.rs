//! The stack walk in the signal handler: the interrupted thread's frames, leaf first, along frame pointers through guarded
//! loads. Node.js and all code of V8 have frame pointers; interpreted frames give the address of their bytecode.
//!
//! # Frames of a stack
//! * Native frames between the leaf and the first frame of V8 are kept; those below, which call into JavaScript, are skipped.
//! * Where the chain breaks inside native code without frame pointers, V8 walks from its last exit frame instead.
//! * A synthetic frame above native ones gives V8's activity in them: collecting or compiling.
//! * A thread without JavaScript has its native frames and a frame with its name.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{guarded, Captured, DropReason, HandlerContext, RawFrame, RawStack};

use super::js_thread_signal::{self, contains, BuiltinRanges, JsThread};
use super::ring_position_signal::RingPosition;
use super::self_test::{self, WalkMethod};
use super::v8::{RegisterState, SampleInfo, V8};
use super::{context_signal, synthetic_frame, thread_kind_signal};

/// Maximum number of frame pointers followed.
const MAX_FRAME_POINTERS: usize = 4096;
/// Maximum number of frames that V8 walks.
const MAX_V8_FRAMES: usize = 192;
/// Maximum distance between two frame pointers.
const MAX_FRAME_BYTES: usize = 4 << 20;
const PAGE: usize = 4095;

/// V8's map of bytecode arrays: learned from frames known to be interpreted, the same for every isolate.
static BYTECODE_MAP: AtomicU64 = AtomicU64::new(0);
/// Walks along frame pointers, walks by V8, and walks that found native frames only.
pub static FRAME_POINTER_WALKS: AtomicU64 = AtomicU64::new(0);
pub static V8_WALKS: AtomicU64 = AtomicU64::new(0);
pub static NATIVE_WALKS: AtomicU64 = AtomicU64::new(0);

/// The registers at which a walk starts.
#[derive(Clone, Copy)]
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

    /// As above.
    #[inline(always)]
    #[cfg(target_arch = "aarch64")]
    pub fn here() -> Self {
        let (pc, sp, fp);
        // SAFETY: copies three registers.
        unsafe { std::arch::asm!("adr {}, .", "mov {}, sp", "mov {}, x29", out(reg) pc, out(reg) sp, out(reg) fp) };
        Self { pc, sp, fp }
    }
}

/// Walks the current thread.
///
/// # Safety
/// As for every [`spanprof_signal::CaptureFn`].
pub unsafe fn capture(handler: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    // SAFETY: the kernel's context of this signal, or null.
    let Some(ucontext) = (unsafe { handler.ucontext.cast::<libc::ucontext_t>().as_ref() }) else {
        return Captured::Dropped(DropReason::NoThreadState);
    };
    let registers = registers(ucontext);
    let Some(thread) = js_thread_signal::by_thread_id(handler.thread_id) else {
        walk_native(&registers, stack);
        let kind = thread_kind_signal::classify(handler.thread_id, stack.frames());
        stack.push(synthetic_frame::thread(handler.thread_id, kind));
        return Captured::Walked;
    };
    stack.context = context_signal::read(thread);
    walk_thread(thread, &registers, stack);
    if let Some(turn_stacks) = thread.turn_stacks() {
        // SAFETY: in the handler of the thread that the entry belongs to.
        unsafe { turn_stacks.record(stack.frames(), stack.context, RingPosition::now()) };
    }
    Captured::Walked
}

/// Walks a JavaScript thread that another signal has interrupted.
///
/// # Safety
/// In that signal's handler, on the thread itself, with the kernel's context.
pub unsafe fn walk_interrupted(thread: &JsThread, ucontext: *const libc::c_void, stack: &mut RawStack<'_>) {
    // SAFETY: guaranteed by the caller.
    if let Some(ucontext) = unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() } {
        walk_thread(thread, &registers(ucontext), stack);
    }
}

fn walk_thread(thread: &JsThread, registers: &StackRegisters, stack: &mut RawStack<'_>) {
    if thread.is_listing.load(Ordering::Relaxed) {
        stack.push(RawFrame::native(registers.pc as u64));
        stack.push(synthetic_frame::LISTING);
        return;
    }
    let Some((v8, builtin_ranges)) = super::published_v8().zip(js_thread_signal::builtin_ranges()) else {
        return walk_native(registers, stack);
    };
    let walk = V8StackWalk::new(v8, builtin_ranges, thread);
    match self_test::walk_method() == WalkMethod::FramePointers && walk.walk_frame_pointers(registers, stack) {
        true => FRAME_POINTER_WALKS.fetch_add(1, Ordering::Relaxed),
        false if walk.walk_by_v8(registers, stack) => V8_WALKS.fetch_add(1, Ordering::Relaxed),
        false => NATIVE_WALKS.fetch_add(1, Ordering::Relaxed),
    };
}

/// A stack walk of one JavaScript thread.
pub struct V8StackWalk<'a> {
    v8: &'a V8,
    builtin_ranges: &'a BuiltinRanges,
    thread: &'a JsThread,
    high: usize,
}

impl<'a> V8StackWalk<'a> {
    pub fn new(v8: &'a V8, builtin_ranges: &'a BuiltinRanges, thread: &'a JsThread) -> Self {
        Self { v8, builtin_ranges, thread, high: thread.stack_high.load(Ordering::Relaxed) }
    }

    /// Whether `pc`, a canonical address, is in V8's code.
    fn is_v8(&self, pc: usize) -> bool {
        self.builtin_ranges.builtins.contains(pc) || self.thread.has_code(pc)
    }

    /// Tests the range of all builtins first, since most code lies outside it.
    fn is_hidden_builtin(&self, pc: usize) -> bool {
        self.builtin_ranges.builtins.contains(pc) && contains(&self.builtin_ranges.hidden, pc)
    }

    fn is_interpreter(&self, pc: usize) -> bool {
        self.builtin_ranges.builtins.contains(pc) && contains(&self.builtin_ranges.interpreter, pc)
    }

    fn is_hidden(&self, pc: usize) -> bool {
        self.is_hidden_builtin(pc) || self.is_interpreter(pc)
    }

    /// Maps an address in remapped builtins to the program's own embedded builtins.
    fn canonical(&self, pc: usize) -> usize {
        self.builtin_ranges.builtins.canonical_address(pc, self.thread.remapped_builtins.load(Ordering::Relaxed))
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
        for _ in 0..MAX_FRAME_POINTERS {
            if fp < low || fp % 8 != 0 || fp.saturating_add(16) > self.high || fp.wrapping_sub(low) > MAX_FRAME_BYTES {
                break;
            }
            let (Some(next), Some(return_to)) = (word(fp), word(fp.wrapping_add(8))) else { break };
            if return_to <= PAGE {
                break;
            }
            // No arithmetic may overflow: a broken chain yields any word.
            (low, fp, pc) = (fp.wrapping_add(16), next, self.canonical(return_to));
            let pushed = if self.is_interpreter(pc) {
                // The frame that returns into the interpreter is a bytecode handler's; the frame above it is the function's.
                let learns = !std::mem::replace(&mut learned, true);
                self.enter_v8(&mut reached, registers, stack)
                    && self.bytecode_address(fp, learns).is_none_or(|at| stack.push(code_frame(at)))
            } else if self.is_v8(pc) {
                let hidden = self.is_hidden_builtin(pc);
                self.enter_v8(&mut reached, registers, stack) && (hidden || stack.push(code_frame(pc.wrapping_sub(1))))
            } else {
                reached || stack.push(RawFrame::native((pc as u64).wrapping_sub(1)))
            };
            if !pushed {
                return reached;
            }
        }
        reached
    }

    /// At the first frame of V8 below native ones: pushes V8's activity between them.
    fn enter_v8(&self, reached: &mut bool, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        if std::mem::replace(reached, true) {
            return true;
        }
        let mut frame = [0usize];
        match () {
            () if self.is_collecting() => stack.push(synthetic_frame::COLLECTING),
            () if self.sample_by_v8(registers, &mut frame).is_compiling() => stack.push(synthetic_frame::COMPILING),
            () => true,
        }
    }

    fn is_collecting(&self) -> bool {
        self.thread.active_collections.load(Ordering::Relaxed) != 0
    }

    /// Calls V8's own walk, which also returns the VM state.
    fn sample_by_v8(&self, registers: &StackRegisters, frames: &mut [usize]) -> SampleInfo {
        let state = RegisterState { pc: registers.pc, sp: registers.sp, fp: registers.fp, lr: 0, callee_saved: 0 };
        let mut info = SampleInfo::default();
        let isolate = self.thread.isolate.load(Ordering::Relaxed);
        if isolate == 0 {
            return info;
        }
        // SAFETY: as V8's own sampler: on the isolate's thread, inside a handler, with the interrupted registers.
        unsafe {
            (self.v8.stack_sample)(isolate, &state, frames.as_mut_ptr(), frames.len(), &mut info);
        }
        info
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
            .filter(|_| !self.thread.has_code(pc) || frameless_return_offset(pc).is_some())
        {
            return stack.push(code_frame(at));
        }
        let caller = frameless_return_offset(pc)
            .and_then(|offset| word(sp.wrapping_add(offset)))
            .map(|caller| self.canonical(caller));
        match caller {
            Some(caller) if !self.is_v8(caller) || self.is_hidden_builtin(caller) => true,
            Some(caller) => stack.push(code_frame(caller.wrapping_sub(1))),
            None => true,
        }
    }

    /// The bytecode address of the interpreted frame at `fp`. With `learns`, stores the array's map: once per walk, since that
    /// cache line is not touched otherwise.
    fn bytecode_address(&self, fp: usize, learns: bool) -> Option<usize> {
        let (array, offset) = self.interpreter_slots(fp)?;
        if let Some(map) = learns.then(|| word(array.wrapping_sub(1))).flatten() {
            BYTECODE_MAP.store(map as u64, Ordering::Relaxed);
        }
        Some(array.wrapping_add(offset))
    }

    /// As `bytecode_address`, where the frame at `fp` may not be interpreted.
    fn checked_bytecode_address(&self, fp: usize) -> Option<usize> {
        let (array, offset) = self.interpreter_slots(fp)?;
        let map = BYTECODE_MAP.load(Ordering::Relaxed);
        (map != 0 && word(array.wrapping_sub(1))? as u64 == map).then_some(array.wrapping_add(offset))
    }

    fn interpreter_slots(&self, fp: usize) -> Option<(usize, usize)> {
        let array = word(fp.wrapping_add_signed(self.v8.bytecode_array))?;
        let offset = word(fp.wrapping_add_signed(self.v8.bytecode_offset))?;
        let is_smi = offset & 0xffff_ffff == 0 && offset >> 32 != 0 && offset >> 32 < 1 << 28;
        (array & 3 == 1 && array > PAGE && is_smi).then_some((array, offset >> 32))
    }

    /// Walks by V8's own function: from its last exit frame, or from the registers when they point into JavaScript.
    pub fn walk_by_v8(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        let mut frames = [0usize; MAX_V8_FRAMES];
        let info = self.sample_by_v8(registers, &mut frames);
        let walked = frames.get(..info.frames).unwrap_or(&[]);
        // The frames of a broken chain are discarded, except for the leaf.
        stack.clear();
        let leaf = self.canonical(registers.pc);
        if !self.is_v8(leaf) {
            stack.push(RawFrame::native(leaf as u64));
        } else if !self.is_hidden(leaf) {
            stack.push(code_frame(leaf));
        }
        match () {
            () if self.is_collecting() => drop(stack.push(synthetic_frame::COLLECTING)),
            () if info.is_compiling() => drop(stack.push(synthetic_frame::COMPILING)),
            () => {}
        }
        for pc in walked.iter().map(|pc| self.canonical(*pc)).filter(|pc| *pc > PAGE) {
            // A bytecode address is that of the executing bytecode, not a return address.
            let frame = match () {
                () if pc == info.external_callback => RawFrame::native(pc as u64),
                () if self.is_v8(pc) => code_frame(pc.wrapping_sub(1)),
                () => code_frame(pc),
            };
            if !self.is_hidden(pc) && !stack.push(frame) {
                break;
            }
        }
        !walked.is_empty()
    }
}

/// A frame at an address in V8's code. Its page is the code id, so that ended code is invalidated by pages.
pub fn code_frame(address: usize) -> RawFrame {
    RawFrame { code: (address & !PAGE) as u64, at: (address & PAGE) as u64 }
}

fn word(address: usize) -> Option<usize> {
    guarded::read_u64(address).map(|word| word as usize)
}

/// Offset of the return address from the stack pointer when the code at `pc` has no frame: at its first instructions
/// (`push rbp; mov rbp, rsp`) or at its `ret`.
#[cfg(target_arch = "x86_64")]
fn frameless_return_offset(pc: usize) -> Option<usize> {
    let bytes = guarded::read_u64(pc.checked_sub(1)?)?.to_le_bytes();
    match bytes {
        [_, 0x55, 0x48, 0x89, 0xe5, ..] | [_, 0x55, 0x48, 0x8b, 0xec, ..] | [_, 0xc3, ..] | [_, 0xc2, ..] => Some(0),
        [0x55, 0x48, 0x89, 0xe5, ..] | [0x55, 0x48, 0x8b, 0xec, ..] => Some(8),
        _ => None,
    }
}

/// On this architecture the return address is in the link register, which is not read.
#[cfg(target_arch = "aarch64")]
fn frameless_return_offset(_pc: usize) -> Option<usize> {
    None
}

fn walk_native(registers: &StackRegisters, stack: &mut RawStack<'_>) {
    let StackRegisters { pc, sp, mut fp } = *registers;
    let mut low = sp;
    let mut has_capacity = stack.push(RawFrame::native(pc as u64));
    while has_capacity && fp >= low && fp % 8 == 0 && fp.wrapping_sub(low) <= MAX_FRAME_BYTES {
        let (Some(next), Some(return_to)) = (word(fp), word(fp.wrapping_add(8))) else { break };
        if return_to <= PAGE {
            break;
        }
        has_capacity = stack.push(RawFrame::native((return_to as u64).wrapping_sub(1)));
        (low, fp) = (fp.wrapping_add(16), next);
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> StackRegisters {
    let registers = &context.uc_mcontext.gregs;
    StackRegisters {
        pc: registers[libc::REG_RIP as usize] as usize,
        sp: registers[libc::REG_RSP as usize] as usize,
        fp: registers[libc::REG_RBP as usize] as usize,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> StackRegisters {
    let registers = &context.uc_mcontext;
    StackRegisters { pc: registers.pc as usize, sp: registers.sp as usize, fp: registers.regs[29] as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_return_address_is_found_before_the_frame_is_set_up_and_at_the_return() {
        let code: [u8; 16] = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0xc3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let at = |offset: usize| frameless_return_offset(code.as_ptr() as usize + offset);
        assert_eq!([at(1), at(2), at(5), at(6)], [Some(0), Some(8), None, Some(0)]);
    }

    #[test]
    fn a_code_frame_is_its_page_and_the_offset_in_it() {
        assert_eq!(code_frame(0x1234_5678), RawFrame { code: 0x1234_5000, at: 0x678 });
    }
}
