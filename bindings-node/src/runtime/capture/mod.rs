//! The capture function of the signal handler: the interrupted thread's context and stack. A JavaScript thread is walked along
//! frame pointers (`frame_pointers`) through guarded loads.
//!
//! * Where the chain breaks inside native code without frame pointers, V8 walks from its last exit frame instead.
//! * A thread without JavaScript has its native frames and a frame with its name.

#[cfg(feature = "record-stacks")]
pub mod recording;
pub mod self_walk;

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{Captured, DropReason, HandlerContext, ProcessMemory, RawFrame, RawStack};

use super::v8::{self, RegisterState, SampleInfo, V8};
use super::walk::frame_pointers::{
    code_frame, walk_native, FramePointerWalk, StackRegisters, WalkTables, WalkedThread, PAGE,
};
use super::walk::frameless::ROOT_BIAS;
use super::walk::js_thread::{self, BuiltinRanges, JsThread};
use super::walk::ring_position::RingPosition;
use super::walk::walk_method::{self, WalkMethod};
use super::walk::{context, synthetic_frame, thread_kind};

/// Maximum number of frames that V8 walks.
const MAX_V8_FRAMES: usize = 192;

/// See [`WalkTables`].
static BYTECODE_MAP: AtomicU64 = AtomicU64::new(0);
/// Walks along frame pointers, walks by V8, and walks that found native frames only.
pub static FRAME_POINTER_WALKS: AtomicU64 = AtomicU64::new(0);
pub static V8_WALKS: AtomicU64 = AtomicU64::new(0);
pub static NATIVE_WALKS: AtomicU64 = AtomicU64::new(0);

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
    let Some(thread) = js_thread::by_thread_id(handler.thread_id) else {
        walk_native(&ProcessMemory, &registers, stack);
        let kind = thread_kind::classify(handler.thread_id, stack.frames());
        stack.push(synthetic_frame::thread(handler.thread_id, kind));
        return Captured::Walked;
    };
    stack.context = context::read(thread);
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

/// Walks the calling thread inside an allocator hook. `leaf` replaces its native frames above JavaScript. Where no JavaScript
/// runs it is the only frame: native frames would begin with those of the hook.
pub fn walk_allocation(leaf: RawFrame, stack: &mut RawStack<'_>) -> Captured {
    let registers = StackRegisters::here();
    match js_thread::by_thread_id(spanprof_os::thread_id()) {
        Some(thread) => {
            stack.context = context::read(thread);
            walk_thread(thread, &registers, stack);
        }
        None => walk_native(&ProcessMemory, &registers, stack),
    }
    let native = stack.frames().iter().position(|frame| synthetic_frame::is_code(*frame)).unwrap_or(stack.len());
    stack.replace_leaf(native, leaf);
    Captured::Walked
}

fn walk_thread(thread: &JsThread, registers: &StackRegisters, stack: &mut RawStack<'_>) {
    if thread.is_listing.load(Ordering::Relaxed) {
        stack.push(RawFrame::native(registers.pc as u64));
        stack.push(synthetic_frame::LISTING);
        return;
    }
    let Some((v8, builtin_ranges)) = v8::published().zip(js_thread::builtin_ranges()) else {
        return walk_native(&ProcessMemory, registers, stack);
    };
    let walk = V8StackWalk::new(v8, builtin_ranges, thread);
    match walk_method::selected() == WalkMethod::FramePointers && walk.walk_frame_pointers(registers, stack) {
        true => {
            #[cfg(feature = "record-stacks")]
            recording::record(&walk.0, thread, registers, stack);
            FRAME_POINTER_WALKS.fetch_add(1, Ordering::Relaxed)
        }
        false if walk.walk_by_v8(registers, stack) => V8_WALKS.fetch_add(1, Ordering::Relaxed),
        false => NATIVE_WALKS.fetch_add(1, Ordering::Relaxed),
    };
}

/// The interrupted JavaScript thread, and its V8.
#[derive(Clone, Copy)]
pub struct InterruptedThread<'a> {
    v8: &'a V8,
    thread: &'a JsThread,
}

impl WalkedThread for InterruptedThread<'_> {
    #[inline(always)]
    fn has_code(&self, pc: usize) -> bool {
        self.thread.has_code(pc)
    }

    fn activity(&self, registers: &StackRegisters) -> Option<RawFrame> {
        if self.is_collecting() {
            return Some(synthetic_frame::COLLECTING);
        }
        self.sample_by_v8(registers, &mut [0]).is_compiling().then_some(synthetic_frame::COMPILING)
    }
}

impl InterruptedThread<'_> {
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
}

/// A stack walk of one JavaScript thread of this process.
pub struct V8StackWalk<'a>(FramePointerWalk<'a, ProcessMemory, InterruptedThread<'a>>);

impl<'a> V8StackWalk<'a> {
    pub fn new(v8: &'a V8, builtin_ranges: &BuiltinRanges<'a>, thread: &'a JsThread) -> Self {
        let tables = WalkTables {
            builtin_ranges: *builtin_ranges,
            remapped_builtins: thread.remapped_builtins.load(Ordering::Relaxed),
            root: match thread.isolate.load(Ordering::Relaxed) {
                0 => 0,
                isolate => isolate.wrapping_add(ROOT_BIAS),
            },
            stack_high: thread.stack_high.load(Ordering::Relaxed),
            bytecode_array: v8.bytecode_array,
            bytecode_offset: v8.bytecode_offset,
            bytecode_map: &BYTECODE_MAP,
        };
        Self(FramePointerWalk::new(ProcessMemory, InterruptedThread { v8, thread }, tables))
    }

    /// See [`FramePointerWalk::walk_frame_pointers`].
    pub fn walk_frame_pointers(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        self.0.walk_frame_pointers(registers, stack)
    }

    /// Walks by V8's own function: from its last exit frame, or from the registers when they point into JavaScript.
    pub fn walk_by_v8(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        let mut frames = [0usize; MAX_V8_FRAMES];
        let (walk, thread) = (&self.0, self.0.thread());
        let info = thread.sample_by_v8(registers, &mut frames);
        let walked = frames.get(..info.frames).unwrap_or(&[]);
        // The frames of a broken chain are discarded, except for the leaf.
        stack.clear();
        let leaf = walk.canonical(registers.pc);
        if !walk.is_v8(leaf) {
            stack.push(RawFrame::native(leaf as u64));
        } else if !walk.is_hidden(leaf) {
            stack.push(code_frame(leaf));
        }
        if thread.is_collecting() {
            stack.push(synthetic_frame::COLLECTING);
        } else if info.is_compiling() {
            stack.push(synthetic_frame::COMPILING);
        }
        for pc in walked.iter().map(|pc| walk.canonical(*pc)).filter(|pc| *pc > PAGE) {
            // A bytecode address is that of the executing bytecode, not a return address.
            let frame = if pc == info.external_callback {
                RawFrame::native(pc as u64)
            } else if walk.is_v8(pc) {
                code_frame(pc.wrapping_sub(1))
            } else {
                code_frame(pc)
            };
            if !walk.is_hidden(pc) && !stack.push(frame) {
                break;
            }
        }
        !walked.is_empty()
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
