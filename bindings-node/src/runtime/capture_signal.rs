//! The walk in the handler: the interrupted thread's frames, leaf first, along frame pointers through guarded loads. Node
//! is built with frame pointers, and so is all code of V8; interpreted functions give the address of their byte code.
//!
//! # What is shown
//! * Native frames between the leaf and the first frame of V8 are kept; those below, which call into JavaScript, are not.
//! * Where the chain breaks inside native code without frame pointers, V8 walks from its last exit frame instead.
//! * Above native frames stands what V8 does in them: it collects or compiles.
//! * A thread without JavaScript shows its native frames and its name.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{guarded, Captured, DropReason, HandlerContext, RawFrame, RawStack};

use super::js_thread_signal::{self, holds, JsThread, Landmarks};
use super::ring_position_signal::RingPosition;
use super::self_test::{self, Means};
use super::v8::{RegisterState, SampleInfo, V8};
use super::{context_signal, marker, thread_kind_signal};

/// Links followed at most.
const MAX_LINKS: usize = 4096;
/// Frames that V8 walks at most.
const MAX_FALLBACK: usize = 192;
/// A frame pointer moves towards the root by less than this.
const MAX_FRAME_BYTES: usize = 4 << 20;
const PAGE: usize = 4095;

/// Map word of byte-code arrays: learnt from frames that surely have one, the same for every isolate.
static BYTECODE_MAP: AtomicU64 = AtomicU64::new(0);
/// Walks by our own means, with V8's help, and of which only the native part is known.
pub static OWN_WALKS: AtomicU64 = AtomicU64::new(0);
pub static V8_WALKS: AtomicU64 = AtomicU64::new(0);
pub static NATIVE_WALKS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
pub struct Registers {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
}

impl Registers {
    /// Those of the caller, on normal ground.
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
        let kind = thread_kind_signal::seen(handler.thread_id, stack.frames());
        stack.push(marker::thread(handler.thread_id, kind));
        return Captured::Walked;
    };
    stack.context = context_signal::read(thread);
    walk_thread(thread, &registers, stack);
    if let Some(recent) = thread.recent() {
        // SAFETY: in the handler of the thread that the entry belongs to.
        unsafe { recent.note(stack.frames(), stack.context, RingPosition::now()) };
    }
    Captured::Walked
}

/// Walks a JavaScript thread that a signal of another kind has interrupted.
///
/// # Safety
/// In that signal's handler, on the thread itself, with the kernel's context.
pub unsafe fn walk_interrupted(thread: &JsThread, ucontext: *const libc::c_void, stack: &mut RawStack<'_>) {
    // SAFETY: the caller's promise.
    if let Some(ucontext) = unsafe { ucontext.cast::<libc::ucontext_t>().as_ref() } {
        walk_thread(thread, &registers(ucontext), stack);
    }
}

fn walk_thread(thread: &JsThread, registers: &Registers, stack: &mut RawStack<'_>) {
    if thread.is_listing.load(Ordering::Relaxed) {
        stack.push(RawFrame::native(registers.pc as u64));
        stack.push(marker::LISTING);
        return;
    }
    let Some((v8, landmarks)) = super::published_v8().zip(js_thread_signal::landmarks()) else {
        return walk_native(registers, stack);
    };
    let walk = Walk::of(v8, landmarks, thread);
    match self_test::means() == Means::Own && walk.own(registers, stack) {
        true => OWN_WALKS.fetch_add(1, Ordering::Relaxed),
        false if walk.by_v8(registers, stack) => V8_WALKS.fetch_add(1, Ordering::Relaxed),
        false => NATIVE_WALKS.fetch_add(1, Ordering::Relaxed),
    };
}

/// A walk of one thread.
pub struct Walk<'a> {
    v8: &'a V8,
    landmarks: &'a Landmarks,
    thread: &'a JsThread,
    high: usize,
}

impl<'a> Walk<'a> {
    pub fn of(v8: &'a V8, landmarks: &'a Landmarks, thread: &'a JsThread) -> Self {
        Self { v8, landmarks, thread, high: thread.stack_high.load(Ordering::Relaxed) }
    }

    /// `pc` must have been through `said`.
    fn is_v8(&self, pc: usize) -> bool {
        self.landmarks.built_in.holds(pc) || self.thread.has_code(pc)
    }

    /// Only built-in code is, and the interpreter; that is looked at first, since most code is not.
    fn is_never_shown(&self, pc: usize) -> bool {
        self.landmarks.built_in.holds(pc) && holds(&self.landmarks.hidden, pc)
    }

    fn is_interpreter(&self, pc: usize) -> bool {
        self.landmarks.built_in.holds(pc) && holds(&self.landmarks.interpreter, pc)
    }

    fn is_hidden(&self, pc: usize) -> bool {
        self.is_never_shown(pc) || self.is_interpreter(pc)
    }

    /// Built-in code by the program's own addresses.
    fn said(&self, pc: usize) -> usize {
        self.landmarks.built_in.said_by_program(pc, self.thread.built_in_copy.load(Ordering::Relaxed))
    }

    /// True when a frame of V8 was reached. False leaves the native frames of the leaf in `stack`.
    pub fn own(&self, registers: &Registers, stack: &mut RawStack<'_>) -> bool {
        let Registers { pc, sp, mut fp } = *registers;
        let mut pc = self.said(pc);
        let mut low = sp;
        let mut reached = false;
        let mut learned = false;
        if self.is_v8(pc) {
            reached = true;
            if !self.leaf(pc, sp, fp, stack) {
                return true;
            }
        } else if !stack.push(RawFrame::native(pc as u64)) {
            return false;
        }
        for _ in 0..MAX_LINKS {
            if fp < low || fp % 8 != 0 || fp.saturating_add(16) > self.high || fp.wrapping_sub(low) > MAX_FRAME_BYTES {
                break;
            }
            let (Some(next), Some(return_to)) = (word(fp), word(fp.wrapping_add(8))) else { break };
            if return_to <= PAGE {
                break;
            }
            // Nothing here may overflow: a frame that is none can hold any word.
            (low, fp, pc) = (fp.wrapping_add(16), next, self.said(return_to));
            let pushed = if self.is_interpreter(pc) {
                // The frame that returns into the interpreter is the handler's; the one above it is the function's.
                let learns = !std::mem::replace(&mut learned, true);
                self.begin_v8(&mut reached, registers, stack)
                    && self.interpreted(fp, learns).is_none_or(|at| stack.push(place(at)))
            } else if self.is_v8(pc) {
                let hidden = self.is_never_shown(pc);
                self.begin_v8(&mut reached, registers, stack) && (hidden || stack.push(place(pc.wrapping_sub(1))))
            } else {
                reached || stack.push(RawFrame::native((pc as u64).wrapping_sub(1)))
            };
            if !pushed {
                return reached;
            }
        }
        reached
    }

    /// The first frame of V8 below native ones: what these do stands between them.
    fn begin_v8(&self, reached: &mut bool, registers: &Registers, stack: &mut RawStack<'_>) -> bool {
        if std::mem::replace(reached, true) {
            return true;
        }
        let mut frame = [0usize];
        match () {
            () if self.is_collecting() => stack.push(marker::COLLECTING),
            () if self.ask_v8(registers, &mut frame).is_compiling() => stack.push(marker::COMPILING),
            () => true,
        }
    }

    fn is_collecting(&self) -> bool {
        self.thread.collecting.load(Ordering::Relaxed) != 0
    }

    /// Has V8 walk, and say what it does.
    fn ask_v8(&self, registers: &Registers, frames: &mut [usize]) -> SampleInfo {
        let state = RegisterState { pc: registers.pc, sp: registers.sp, fp: registers.fp, lr: 0, callee_saved: 0 };
        let mut info = SampleInfo::default();
        let isolate = self.thread.isolate.load(Ordering::Relaxed);
        if isolate == 0 {
            return info;
        }
        // SAFETY: V8's own sampler calls it so: on the isolate's thread, inside a handler, with the interrupted registers.
        unsafe {
            (self.v8.stack_sample)(isolate, &state, frames.as_mut_ptr(), frames.len(), &mut info);
        }
        info
    }

    /// The interrupted frame, in code of V8; and its caller where the frame is not yet, or no longer, set up.
    fn leaf(&self, pc: usize, sp: usize, fp: usize, stack: &mut RawStack<'_>) -> bool {
        if self.is_interpreter(pc) {
            return self.checked(fp).is_none_or(|at| stack.push(place(at)));
        }
        let hidden = self.is_never_shown(pc);
        if !hidden && !stack.push(place(pc)) {
            return false;
        }
        // Code without a frame of its own, called by an interpreted function.
        if let Some(at) = self.checked(fp).filter(|_| !self.thread.has_code(pc) || frame_is_absent(pc).is_some()) {
            return stack.push(place(at));
        }
        let caller =
            frame_is_absent(pc).and_then(|offset| word(sp.wrapping_add(offset))).map(|caller| self.said(caller));
        match caller {
            Some(caller) if !self.is_v8(caller) || self.is_never_shown(caller) => true,
            Some(caller) => stack.push(place(caller.wrapping_sub(1))),
            None => true,
        }
    }

    /// The byte-code address of the interpreted frame at `fp`. Learns its map where asked to: of one frame in a walk, since
    /// it lies in memory that nothing else here touches.
    fn interpreted(&self, fp: usize, learns: bool) -> Option<usize> {
        let (array, offset) = self.slots(fp)?;
        if let Some(map) = learns.then(|| word(array.wrapping_sub(1))).flatten() {
            BYTECODE_MAP.store(map as u64, Ordering::Relaxed);
        }
        Some(array.wrapping_add(offset))
    }

    /// As `interpreted`, where the frame at `fp` may be another.
    fn checked(&self, fp: usize) -> Option<usize> {
        let (array, offset) = self.slots(fp)?;
        let map = BYTECODE_MAP.load(Ordering::Relaxed);
        (map != 0 && word(array.wrapping_sub(1))? as u64 == map).then_some(array.wrapping_add(offset))
    }

    fn slots(&self, fp: usize) -> Option<(usize, usize)> {
        let array = word(fp.wrapping_add_signed(self.v8.bytecode_array))?;
        let offset = word(fp.wrapping_add_signed(self.v8.bytecode_offset))?;
        let small = offset & 0xffff_ffff == 0 && offset >> 32 != 0 && offset >> 32 < 1 << 28;
        (array & 3 == 1 && array > PAGE && small).then_some((array, offset >> 32))
    }

    /// V8's own walk: from its last exit frame, or from the registers when they are JavaScript's.
    pub fn by_v8(&self, registers: &Registers, stack: &mut RawStack<'_>) -> bool {
        let mut frames = [0usize; MAX_FALLBACK];
        let info = self.ask_v8(registers, &mut frames);
        let walked = frames.get(..info.frames).unwrap_or(&[]);
        // What a broken chain led to is not to be believed, but for the leaf.
        stack.clear();
        let leaf = self.said(registers.pc);
        if !self.is_v8(leaf) {
            stack.push(RawFrame::native(leaf as u64));
        } else if !self.is_hidden(leaf) {
            stack.push(place(leaf));
        }
        match () {
            () if self.is_collecting() => drop(stack.push(marker::COLLECTING)),
            () if info.is_compiling() => drop(stack.push(marker::COMPILING)),
            () => {}
        }
        for pc in walked.iter().map(|pc| self.said(*pc)).filter(|pc| *pc > PAGE) {
            // Byte code is not machine code: its address is the executing one.
            let frame = match () {
                () if pc == info.external_callback => RawFrame::native(pc as u64),
                () if self.is_v8(pc) => place(pc.wrapping_sub(1)),
                () => place(pc),
            };
            if !self.is_hidden(pc) && !stack.push(frame) {
                break;
            }
        }
        !walked.is_empty()
    }
}

/// A place in code of V8: its page is the code, so that what ends is forgotten by pages.
pub fn place(address: usize) -> RawFrame {
    RawFrame { code: (address & !PAGE) as u64, at: (address & PAGE) as u64 }
}

fn word(address: usize) -> Option<usize> {
    guarded::read_u64(address).map(|word| word as usize)
}

/// Where the return address lies above the stack pointer when the code at `pc` has no frame there: at its first
/// instructions (`push rbp; mov rbp, rsp`) or at its `ret`.
#[cfg(target_arch = "x86_64")]
fn frame_is_absent(pc: usize) -> Option<usize> {
    let bytes = guarded::read_u64(pc.checked_sub(1)?)?.to_le_bytes();
    match bytes {
        [_, 0x55, 0x48, 0x89, 0xe5, ..] | [_, 0x55, 0x48, 0x8b, 0xec, ..] | [_, 0xc3, ..] | [_, 0xc2, ..] => Some(0),
        [0x55, 0x48, 0x89, 0xe5, ..] | [0x55, 0x48, 0x8b, 0xec, ..] => Some(8),
        _ => None,
    }
}

/// The return address is in the link register there; it is not looked for.
#[cfg(target_arch = "aarch64")]
fn frame_is_absent(_pc: usize) -> Option<usize> {
    None
}

fn walk_native(registers: &Registers, stack: &mut RawStack<'_>) {
    let Registers { pc, sp, mut fp } = *registers;
    let mut low = sp;
    let mut room = stack.push(RawFrame::native(pc as u64));
    while room && fp >= low && fp % 8 == 0 && fp.wrapping_sub(low) <= MAX_FRAME_BYTES {
        let (Some(next), Some(return_to)) = (word(fp), word(fp.wrapping_add(8))) else { break };
        if return_to <= PAGE {
            break;
        }
        room = stack.push(RawFrame::native((return_to as u64).wrapping_sub(1)));
        (low, fp) = (fp.wrapping_add(16), next);
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext.gregs;
    Registers {
        pc: registers[libc::REG_RIP as usize] as usize,
        sp: registers[libc::REG_RSP as usize] as usize,
        fp: registers[libc::REG_RBP as usize] as usize,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext;
    Registers { pc: registers.pc as usize, sp: registers.sp as usize, fp: registers.regs[29] as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn code_before_its_frame_and_at_its_return_has_none() {
        let code: [u8; 16] = [0x90, 0x55, 0x48, 0x89, 0xe5, 0x90, 0xc3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let at = |offset: usize| frame_is_absent(code.as_ptr() as usize + offset);
        assert_eq!([at(1), at(2), at(5), at(6)], [Some(0), Some(8), None, Some(0)]);
    }

    #[test]
    fn a_place_is_its_page_and_what_is_left() {
        assert_eq!(place(0x1234_5678), RawFrame { code: 0x1234_5000, at: 0x678 });
    }
}
