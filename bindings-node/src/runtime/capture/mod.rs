//! The capture function of the signal handler: the interrupted thread's context and stack. Native code is unwound by tables and
//! V8's code along frame pointers (`frame_pointers`), through guarded loads.
//!
//! * Where native code ends early, `[invalid_frame]` is followed by the frames of V8's own walk, from its last exit frame.
//! * A caller that was found without a rule counts only if V8's walk meets it too.
//! * A thread without JavaScript has its native frames and a frame with its name.

#[cfg(feature = "record-stacks")]
pub mod recording;
pub mod self_walk;

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{Captured, DropReason, HandlerContext, ProcessMemory, RawFrame, RawStack};
use spanprof_unwind::{shows_native_callees, UnwindTables, WalkEnd};

use super::v8::{self, RegisterState, SampleInfo, V8};
use super::walk::frame_pointers::{code_frame, FramePointerWalk, V8WalkOutcome, WalkTables, WalkedThread};
use super::walk::frameless::ROOT_BIAS;
use super::walk::js_thread::{self, BuiltinRanges, JsThread};
use super::walk::native_code::{walk_native, NativeUnwinding, StackRegisters, PAGE};
use super::walk::ring_position::RingPosition;
use super::walk::walk_method::{self, WalkMethod};
use super::walk::{context, synthetic_frame, thread_kind};

/// Stack that a walk of a JavaScript thread takes at most. Measured on painted stacks, x86-64: 5.8 KiB where V8 walks (Node.js 22).
pub const WALK_BYTES: usize = 8 << 10;

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
        walk_without_v8(&registers, Some(ucontext), stack);
        let kind = thread_kind::classify(handler.thread_id, stack.frames());
        stack.push(synthetic_frame::thread(handler.thread_id, kind));
        return Captured::Walked;
    };
    stack.context = context::read(thread);
    if !handler.has_stack(WALK_BYTES) {
        return Captured::Dropped(DropReason::StackTooSmall);
    }
    walk_thread(thread, &registers, Some(ucontext), stack);
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
        walk_thread(thread, &registers(ucontext), Some(ucontext), stack);
    }
}

/// Walks the calling thread inside an allocator hook. `leaf` replaces its native frames above JavaScript. Where no JavaScript
/// runs it is the only frame: native frames would begin with those of the hook.
pub fn walk_allocation(leaf: RawFrame, stack: &mut RawStack<'_>) -> Captured {
    let registers = StackRegisters::here();
    match js_thread::by_thread_id(spanprof_os::thread_id()) {
        Some(thread) => {
            stack.context = context::read(thread);
            walk_thread(thread, &registers, None, stack);
        }
        None => walk_without_v8(&registers, None, stack),
    }
    let native = stack.frames().iter().position(|frame| synthetic_frame::is_code(*frame)).unwrap_or(stack.len());
    stack.replace_leaf(native, leaf);
    Captured::Walked
}

fn walk_thread(
    thread: &JsThread,
    registers: &StackRegisters,
    context: Option<&libc::ucontext_t>,
    stack: &mut RawStack<'_>,
) {
    if thread.is_listing.load(Ordering::Relaxed) {
        stack.push(RawFrame::native(registers.pc as u64));
        stack.push(synthetic_frame::LISTING);
        return;
    }
    let Some((v8, builtin_ranges)) = v8::published().zip(js_thread::builtin_ranges()) else {
        return walk_without_v8(registers, context, stack);
    };
    let walk = V8StackWalk::new(v8, builtin_ranges, thread);
    // Before the walk: V8 takes more of the stack than all walks.
    let exit = walk.exit_frames(registers);
    let walks = match walk.walk(registers, context, &exit, stack) {
        WalkMethod::FramePointers => {
            #[cfg(feature = "record-stacks")]
            recording::record(&walk.0, thread, registers, exit.activity);
            &FRAME_POINTER_WALKS
        }
        WalkMethod::V8 => &V8_WALKS,
        WalkMethod::None => &NATIVE_WALKS,
    };
    walks.fetch_add(1, Ordering::Relaxed);
}

/// The tables of native code, unless the configuration leaves native callees out.
fn native_tables() -> Option<UnwindTables> {
    shows_native_callees().then(UnwindTables::borrow).flatten()
}

/// Walks a thread of which only native code is known.
fn walk_without_v8(registers: &StackRegisters, context: Option<&libc::ucontext_t>, stack: &mut RawStack<'_>) {
    let tables = native_tables();
    let native = tables.as_ref().map(|tables| NativeUnwinding { tables, context });
    walk_native(&ProcessMemory, registers, native.as_ref(), stack);
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
}

impl InterruptedThread<'_> {
    fn is_collecting(&self) -> bool {
        self.thread.active_collections.load(Ordering::Relaxed) != 0
    }

    /// Calls V8's own walk, which also returns the VM state.
    fn sample_by_v8(&self, registers: &StackRegisters, frames: &mut [usize]) -> SampleInfo {
        let state =
            RegisterState { pc: registers.pc, sp: registers.sp, fp: registers.fp, lr: registers.link, callee_saved: 0 };
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

/// What V8 tells of a thread in native code.
#[derive(Clone, Copy, Default)]
struct ExitFrames {
    /// The synthetic frame of V8's activity above JavaScript.
    activity: Option<RawFrame>,
    /// The first frame of JavaScript behind the last exit frame; `None` without one, and during a collection.
    first: Option<RawFrame>,
}

impl ExitFrames {
    /// Whether V8 knows no other frames than a stack with these.
    fn are_in(&self, stack: &RawStack<'_>) -> bool {
        self.first.is_none_or(|first| stack.frames().contains(&first))
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
        self.0.walk_frame_pointers(registers, None, stack)
    }

    /// V8's view of a thread in native code.
    #[inline(never)]
    fn exit_frames(&self, registers: &StackRegisters) -> ExitFrames {
        let (walk, thread) = (&self.0, self.0.thread());
        if walk.is_v8(walk.canonical(registers.pc)) {
            return ExitFrames::default();
        }
        if thread.is_collecting() {
            return ExitFrames { activity: Some(synthetic_frame::COLLECTING), first: None };
        }
        let mut frames = [0; 4];
        let info = thread.sample_by_v8(registers, &mut frames);
        let mut walked = frames.iter().take(info.frames).filter_map(|pc| self.v8_frame(*pc, &info));
        ExitFrames {
            activity: info.is_compiling().then_some(synthetic_frame::COMPILING),
            first: walked.find(|frame| frame.native_pc().is_none()),
        }
    }

    /// Walks the thread. The method is the one that found its frames of V8; `None`: it has native frames only.
    fn walk(
        &self,
        registers: &StackRegisters,
        context: Option<&libc::ucontext_t>,
        exit: &ExitFrames,
        stack: &mut RawStack<'_>,
    ) -> WalkMethod {
        let mut outcome = V8WalkOutcome::default();
        if walk_method::selected() == WalkMethod::FramePointers {
            let tables = native_tables();
            let native = tables.as_ref().map(|tables| NativeUnwinding { tables, context });
            outcome = self.0.walk(registers, native.as_ref(), exit.activity, stack);
            let is_whole = outcome.has_v8 || outcome.native_end == Some(WalkEnd::Root);
            if is_whole && (outcome.certain_frames.is_none() || exit.are_in(stack)) {
                if outcome.has_v8 {
                    return WalkMethod::FramePointers;
                }
                exit.activity.into_iter().for_each(|activity| _ = stack.push(activity));
                return WalkMethod::None;
            }
        }
        stack.truncate(outcome.certain_frames.unwrap_or(usize::MAX));
        if outcome.native_end.is_none() && outcome.certain_frames.is_none() {
            // The frames of a broken chain are discarded, except for the leaf.
            stack.clear();
            self.push_leaf(registers, stack);
        } else {
            let reason = outcome.native_end.and_then(WalkEnd::missing_callers);
            stack.push(RawFrame::reason(reason.unwrap_or(DropReason::InvalidFrame)));
        }
        if self.push_v8_frames(registers, stack) {
            WalkMethod::V8
        } else {
            WalkMethod::None
        }
    }

    /// Walks by V8's own function alone: from its last exit frame, or from the registers when they point into JavaScript.
    pub fn walk_by_v8(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        self.push_leaf(registers, stack);
        self.push_v8_frames(registers, stack)
    }

    fn push_leaf(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) {
        let leaf = self.0.canonical(registers.pc);
        if !self.0.is_v8(leaf) {
            stack.push(RawFrame::native(leaf as u64));
        } else if !self.0.is_hidden(leaf) {
            stack.push(code_frame(leaf));
        }
    }

    /// Pushes V8's activity and the frames of its walk. False without frames.
    fn push_v8_frames(&self, registers: &StackRegisters, stack: &mut RawStack<'_>) -> bool {
        let mut frames = [0usize; MAX_V8_FRAMES];
        let thread = self.0.thread();
        let info = thread.sample_by_v8(registers, &mut frames);
        if thread.is_collecting() {
            stack.push(synthetic_frame::COLLECTING);
        } else if info.is_compiling() {
            stack.push(synthetic_frame::COMPILING);
        }
        let walked = frames.get(..info.frames).unwrap_or(&[]);
        let mut shown = walked.iter().filter_map(|pc| self.v8_frame(*pc, &info));
        _ = shown.all(|frame| stack.push(frame));
        !walked.is_empty()
    }

    /// The frame of an address of V8's walk; `None` for one that is not shown.
    fn v8_frame(&self, pc: usize, info: &SampleInfo) -> Option<RawFrame> {
        let walk = &self.0;
        let pc = walk.canonical(pc);
        if pc <= PAGE || walk.is_hidden(pc) {
            return None;
        }
        // A bytecode address is that of the executing bytecode, not a return address.
        Some(if pc == info.external_callback {
            RawFrame::native(pc as u64)
        } else if walk.is_v8(pc) {
            code_frame(pc.wrapping_sub(1))
        } else {
            code_frame(pc)
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> StackRegisters {
    let registers = &context.uc_mcontext.gregs;
    StackRegisters {
        pc: registers[libc::REG_RIP as usize] as usize,
        sp: registers[libc::REG_RSP as usize] as usize,
        fp: registers[libc::REG_RBP as usize] as usize,
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> StackRegisters {
    let registers = &context.uc_mcontext;
    let [fp, link] = [29, 30].map(|number| registers.regs[number] as usize);
    StackRegisters { pc: registers.pc as usize, sp: registers.sp as usize, fp, link }
}
