//! Walks a Java thread's stack in the handler, leaf first: compiled frames by their frame size, interpreted frames by their
//! frame pointer. Every load is guarded. A step that does not move towards the stack base ends the walk with a cause. Not
//! here: stubs, native code and entry frames (`non_java_frames_signal`).

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{prefetch, DropReason, RawFrame, RawStack};

use super::code_heap_signal::{blob_of, code_begin, frame_bytes, frame_complete, kind_of, BlobKind};
use super::instructions_signal::{self, FrameState};
use super::layout::VmLayout;
use super::memory_signal::{int, word};
use super::method_signal::Method;
use super::pc_cache_signal::{self, PcInfo, MAX_CACHED};
use super::prefetch_signal::WalkHistory;
use super::raw_frame;
use super::registers_signal::{self, JavaRegisters};
use super::scope_desc_signal::{decode, root_method, DecodeResult, Inlined};

/// Upper bound of a thread's stack size, for stacks whose base is unknown.
const MAX_STACK_BYTES: usize = 64 << 20;
/// Upper bound of steps per walk.
const MAX_STEPS: usize = 4096;
/// Upper bound of an interpreted frame with its expression stack and monitors.
const MAX_INTERPRETED_BYTES: usize = 1 << 20;
/// Slots of an interpreted frame, below its frame pointer.
pub const SENDER_SP: usize = 8;
pub const LAST_SP: usize = 16;
const METHOD: usize = 24;
const BCP: usize = 64;
/// Size of an interpreted frame before its method is stored.
const MAX_PARTIAL_BYTES: usize = 16;
/// `_thread_in_native` and `_thread_blocked` (`hotspot/share/utilities/globalDefinitions.hpp`, JDK 17 to 25).
const NATIVE_OR_BLOCKED: [i32; 2] = [4, 10];
/// Prefetch distance on the stack.
const STACK_PREFETCH_BYTES: usize = 512;

static CACHE_HITS: AtomicU64 = AtomicU64::new(0);
static CACHE_MISSES: AtomicU64 = AtomicU64::new(0);
static BROKEN: [AtomicU64; CAUSES.len()] = [const { AtomicU64::new(0) }; CAUSES.len()];

/// The cause of a broken walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Generated code outside of any code blob, or without a known frame size.
    Code,
    Interpreter,
    Stub,
    /// Native code that was not called from Java.
    Native,
    /// An invalid `JavaFrameAnchor`.
    Anchor,
    /// The caller's frame is not above the callee's.
    Order,
    /// Any of these, in the walk of a waiting thread.
    Waiting,
}

/// Names of the causes in `stats()`.
pub const CAUSES: [&str; 7] = [
    "java.walks_broken.code",
    "java.walks_broken.interpreter",
    "java.walks_broken.stub",
    "java.walks_broken.native",
    "java.walks_broken.anchor",
    "java.walks_broken.order",
    "java.walks_broken.waiting",
];

/// Program counters found in the cache, and program counters decoded.
pub fn counts() -> (u64, u64) {
    (CACHE_HITS.load(Ordering::Relaxed), CACHE_MISSES.load(Ordering::Relaxed))
}

/// Broken walks, by cause.
pub fn broken() -> [u64; CAUSES.len()] {
    std::array::from_fn(|cause| BROKEN[cause].load(Ordering::Relaxed))
}

/// The state of one walk: its output, and the registers of the current frame.
pub struct StackWalker<'a, 'b> {
    pub layout: &'a VmLayout,
    pub stack: &'a mut RawStack<'b>,
    pub interrupted: JavaRegisters,
    pub java_thread: usize,
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// Base (highest address) of the thread's stack.
    pub limit: usize,
    /// Whether `pc` is the interrupted one; else it is a return address.
    pub leaf: bool,
    has_java: bool,
    /// Records frames for the prefetch of the thread's next walk; `None` when another thread walks.
    history: Option<&'a WalkHistory>,
    compiled: usize,
    hits: usize,
}

/// The result of one step.
pub enum StepResult {
    Continue,
    End,
    Broken(Cause),
}

/// Walks the interrupted thread. Returns whether a Java frame was found.
pub fn walk(
    layout: &VmLayout,
    registers: &JavaRegisters,
    java_thread: usize,
    history: Option<&WalkHistory>,
    stack: &mut RawStack<'_>,
) -> bool {
    let sp = registers.sp;
    prefetch::range(sp as *const u8, STACK_PREFETCH_BYTES);
    let stack_base = if java_thread == 0 { None } else { word(java_thread + layout.stack_base) };
    let limit =
        stack_base.filter(|base| *base > sp && base - sp < MAX_STACK_BYTES).unwrap_or(sp.saturating_add(8 << 20));
    if let Some(history) = history.filter(|_| java_thread != 0) {
        history.prefetch_frames();
    }
    let mut walk = StackWalker { history, ..StackWalker::new(layout, stack, *registers, java_thread, limit) };
    if let Some(cause) = walk.walk_to_root() {
        BROKEN[cause as usize].fetch_add(1, Ordering::Relaxed);
    }
    walk.has_java
}

/// Accepts the walk of a waiting thread that did not run meanwhile; a broken walk is counted.
pub fn accept_waiting_walk(stack: &RawStack<'_>) {
    if stack.frames().last().is_some_and(|root| root.as_reason().is_some()) {
        BROKEN[Cause::Waiting as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Walks a thread that waits outside Java code, from its frame anchor. False if it has no anchor.
pub fn walk_waiting(layout: &VmLayout, java_thread: usize, stack: &mut RawStack<'_>) -> bool {
    let Some(limit) = word(java_thread + layout.stack_base) else { return false };
    let mut walk =
        StackWalker { leaf: false, ..StackWalker::new(layout, stack, JavaRegisters::default(), java_thread, limit) };
    let StepResult::Continue = walk.resume_at_anchor(java_thread + layout.anchor) else { return false };
    walk.walk_to_root();
    walk.has_java
}

/// The state of a thread that is in native code or blocked and has no Java frames.
pub fn state_without_java(layout: &VmLayout, java_thread: usize) -> Option<i32> {
    let state = int(java_thread + layout.thread_state?).filter(|state| NATIVE_OR_BLOCKED.contains(state));
    let anchor = word(java_thread + layout.anchor + layout.anchor_sp);
    state.filter(|_| anchor == Some(0))
}

impl<'a, 'b> StackWalker<'a, 'b> {
    /// A walk that begins at the leaf of an interrupted thread.
    fn new(
        layout: &'a VmLayout,
        stack: &'a mut RawStack<'b>,
        interrupted: JavaRegisters,
        java_thread: usize,
        limit: usize,
    ) -> Self {
        let JavaRegisters { pc, sp, fp, .. } = interrupted;
        Self {
            layout,
            stack,
            interrupted,
            java_thread,
            pc,
            sp,
            fp,
            limit,
            leaf: true,
            has_java: false,
            history: None,
            compiled: 0,
            hits: 0,
        }
    }

    /// Walks to the root; returns the cause if the walk breaks off.
    fn walk_to_root(&mut self) -> Option<Cause> {
        let mut cached = [RawFrame::default(); MAX_CACHED];
        let mut cause = Some(Cause::Order);
        for _ in 0..MAX_STEPS {
            let before = self.sp;
            match self.step(&mut cached) {
                StepResult::Continue if self.sp < before || self.sp >= self.limit || !self.sp.is_multiple_of(8) => {
                    break
                }
                StepResult::Continue => prefetch::range((self.sp + STACK_PREFETCH_BYTES) as *const u8, 64),
                StepResult::End => {
                    cause = None;
                    break;
                }
                StepResult::Broken(reason) => {
                    cause = Some(reason);
                    break;
                }
            }
        }
        if let Some(history) = self.history.filter(|_| self.compiled > 0) {
            history.finish(self.compiled);
        }
        CACHE_HITS.fetch_add(self.hits as u64, Ordering::Relaxed);
        if cause.is_some() {
            self.stack.push(RawFrame::reason(DropReason::InvalidFrame));
        }
        cause
    }

    #[inline]
    fn step(&mut self, cached: &mut [RawFrame; MAX_CACHED]) -> StepResult {
        let layout = self.layout;
        if self.pc == layout.call_stub_return && !self.leaf {
            return self.entry_frame();
        }
        if !layout.is_code(self.pc) {
            return self.native_frame();
        }
        if layout.is_interpreter(self.pc) {
            return self.interpreted_frame();
        }
        if let Some((info, len)) = pc_cache_signal::find(self.pc, cached) {
            if int(info.blob + layout.compile_id) == Some(info.compile_id as i32) {
                self.hits += 1;
                return self.compiled_frame(&info, cached.get(..len).unwrap_or(&[]));
            }
        }
        self.step_uncached().unwrap_or(StepResult::Broken(Cause::Code))
    }

    /// A step at a program counter that is not in the cache.
    #[cold]
    fn step_uncached(&mut self) -> Option<StepResult> {
        let (layout, pc) = (self.layout, self.pc);
        let blob = blob_of(layout, pc)?;
        let kind = kind_of(layout, blob)?;
        let begin = code_begin(layout, blob)?;
        let before_frame = pc < frame_complete(layout, blob, begin)?;
        let frame_bytes = frame_bytes(layout, blob)?;
        let mut info = PcInfo { blob, compile_id: 0, frame_bytes, before_frame };
        match kind {
            BlobKind::Compiled | BlobKind::NativeWrapper => {}
            BlobKind::ContinuationStub if !self.leaf => return Some(self.continuation_return()),
            BlobKind::ContinuationStub | BlobKind::Stub => return Some(self.stub(&info)),
        }
        if self.leaf && instructions_signal::is_to_interpreter_stub(pc) {
            // `pc` is in the caller's to-interpreter stub. The called method has no frame yet.
            return Some(match word(self.sp).filter(|pc| layout.is_code(*pc)) {
                Some(return_to) => self.set_caller(return_to, self.sp + 8, self.fp),
                None => StepResult::Broken(Cause::Code),
            });
        }
        CACHE_MISSES.fetch_add(1, Ordering::Relaxed);
        info.compile_id = int(blob + layout.compile_id)? as u32;
        let mut inlined = Inlined::new();
        if self.leaf && before_frame {
            if root_method(layout, blob, 0, &mut inlined) == DecodeResult::Failed {
                return None;
            }
            pc_cache_signal::insert(pc, &info, inlined.frames());
            return Some(self.compiled_frame(&info, inlined.frames()));
        }
        let found = decode(layout, blob, begin, pc, self.leaf, &mut inlined);
        if found == DecodeResult::Failed {
            return None;
        }
        let mut is_cacheable = found != DecodeResult::MethodOnly || kind == BlobKind::NativeWrapper || self.leaf;
        // `pc` may be in an out-of-line GC barrier stub, which saves registers on top of the frame while it calls the VM.
        let may_be_slow_path = found == DecodeResult::MethodOnly
            || (found == DecodeResult::NextPcDesc && !self.leaf)
            || instructions_signal::releases_stack(pc);
        let slow_path = if may_be_slow_path { instructions_signal::slow_path(pc, begin) } else { None };
        if let Some(slow_path) =
            slow_path.filter(|slow_path| found == DecodeResult::MethodOnly || slow_path.saved_bytes > 0)
        {
            info.frame_bytes += slow_path.saved_bytes;
            decode(layout, blob, begin, slow_path.resume_pc, self.leaf, &mut inlined);
            is_cacheable = true;
        } else if found == DecodeResult::MethodOnly && kind == BlobKind::Compiled && !self.leaf {
            // Deoptimized code returns to the deopt handler; its original pc is stored in the frame.
            let saved_pc = int(blob + layout.original_pc).and_then(|at| word(self.sp.checked_add(at as usize)?));
            if let Some(original) = saved_pc.filter(|at| *at != pc && blob_of(layout, *at) == Some(blob)) {
                decode(layout, blob, begin, original, false, &mut inlined);
            }
        } else {
            info.frame_bytes += match self.leaf {
                true => instructions_signal::pushed_argument_bytes(pc),
                false => instructions_signal::stack_argument_bytes(pc),
            };
        }
        if is_cacheable {
            pc_cache_signal::insert(pc, &info, inlined.frames());
        }
        Some(self.compiled_frame(&info, inlined.frames()))
    }

    #[inline]
    fn compiled_frame(&mut self, info: &PcInfo, frames: &[RawFrame]) -> StepResult {
        if let Some(history) = self.history {
            history.record(self.compiled, self.pc, frames.len(), info.blob + self.layout.compile_id);
            self.compiled += 1;
        }
        for frame in frames {
            if !self.stack.push(*frame) {
                return StepResult::End;
            }
        }
        self.has_java = true;
        if self.leaf {
            if let Some((return_to, sp, fp)) = self.caller_of_partial_frame(info) {
                return self.set_caller(return_to, sp, fp);
            }
        }
        self.skip_frame(info.frame_bytes)
    }

    /// The caller of leaf code whose frame is not built yet, partly built, or already removed.
    fn caller_of_partial_frame(&self, info: &PcInfo) -> Option<(usize, usize, usize)> {
        let return_address = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        if let Some(return_to) = registers_signal::link(&self.interrupted).filter(|_| info.before_frame) {
            return Some((return_to, self.sp, self.fp));
        }
        let after_push = || Some((return_address(self.sp.checked_add(8)?)?, self.sp + 16, word(self.sp)?));
        let no_frame = || Some((return_address(self.sp)?, self.sp + 8, self.fp));
        let state = match info.before_frame {
            true => instructions_signal::prologue(self.pc),
            false => Some(instructions_signal::epilogue(self.pc)?),
        };
        match state {
            Some(FrameState::NotBuilt) => no_frame(),
            Some(FrameState::FpPushed) => after_push(),
            Some(FrameState::FpNotSaved) => {
                let sp = self.sp.checked_add(info.frame_bytes)?;
                Some((return_address(sp.checked_sub(8)?)?, sp, self.fp))
            }
            Some(FrameState::Complete) => None,
            None => no_frame().or_else(after_push),
        }
    }

    /// Steps to the caller of a frame of known size.
    #[inline]
    pub fn skip_frame(&mut self, frame_bytes: usize) -> StepResult {
        let Some(sp) = self.sp.checked_add(frame_bytes).filter(|_| frame_bytes >= 16) else {
            return StepResult::Broken(Cause::Code);
        };
        match (word(sp - 8), word(sp - 16)) {
            (Some(pc), Some(fp)) => self.set_caller(pc, sp, fp),
            _ => StepResult::Broken(Cause::Code),
        }
    }

    #[inline]
    pub fn set_caller(&mut self, pc: usize, sp: usize, fp: usize) -> StepResult {
        (self.pc, self.sp, self.fp) = (pc, sp, fp);
        self.leaf = false;
        StepResult::Continue
    }

    fn interpreted_frame(&mut self) -> StepResult {
        let layout = self.layout;
        let frame = self.fp;
        let is_valid = frame >= self.sp
            && frame < self.limit
            && (METHOD..MAX_INTERPRETED_BYTES).contains(&(frame - self.sp))
            && frame.is_multiple_of(8)
            && !self.is_at_interpreter_edge();
        let method = if is_valid { word(frame - METHOD).and_then(|method| Method::at(layout, method)) } else { None };
        let Some(method) = method else {
            let skipped = if is_valid { self.skip_skeletal_frame() } else { None };
            return skipped.unwrap_or_else(|| self.partial_interpreted_frame());
        };
        let in_register = if self.leaf { method.index_of(layout, self.interrupted.bcp) } else { None };
        let in_frame = || word(frame - BCP).and_then(|at| method.index_of(layout, at));
        let index = in_register.or_else(in_frame).unwrap_or(raw_frame::NO_INDEX);
        if !self.stack.push(raw_frame::method(method.address, method.fingerprint, index)) {
            return StepResult::End;
        }
        self.has_java = true;
        match (word(frame + 8), word(frame - SENDER_SP), word(frame)) {
            (Some(pc), Some(sp), Some(fp)) if sp > frame => self.set_caller(pc, sp, fp),
            _ => StepResult::Broken(Cause::Interpreter),
        }
    }

    /// Whether the registers show that the interpreter enters or leaves a method. The frame pointer may then belong to an
    /// interpreted method further up, if compiled frames in between did not change it.
    fn is_at_interpreter_edge(&self) -> bool {
        let JavaRegisters { bcp, method, saved_return, fp, .. } = self.interrupted;
        // Callees and native methods leave both registers unchanged too, but then no return address is found.
        let has_return_address =
            || [word(self.sp), Some(saved_return)].into_iter().flatten().any(|pc| self.layout.is_code(pc));
        let is_built =
            || word(fp.wrapping_sub(METHOD)) == Some(method) && word(fp.wrapping_sub(SENDER_SP)) == Some(bcp);
        let enters =
            || self.is_sp(bcp) && has_return_address() && Method::at(self.layout, method).is_some() && !is_built();
        self.leaf && (self.is_leaving_method() || enters())
    }

    /// Whether the interpreter is returning: `bcp` then holds the return address and `method` the caller's stack pointer.
    fn is_leaving_method(&self) -> bool {
        self.layout.is_code(self.interrupted.bcp) && self.is_sp(self.interrupted.method)
    }

    /// Whether `sp` is a possible stack pointer of the caller.
    pub fn is_sp(&self, sp: usize) -> bool {
        sp >= self.sp && sp < self.limit && sp.is_multiple_of(8)
    }

    /// Steps over the interpreter before its frame is built, or after it is removed.
    fn partial_interpreted_frame(&mut self) -> StepResult {
        let return_address = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        if !self.leaf {
            // The lookup of the exception handler: return address and exception are on the stack, possibly below an
            // alignment word that is popped again.
            let at = if instructions_signal::releases_stack(self.pc) { self.sp + 8 } else { self.sp };
            return return_address(at)
                .map_or(StepResult::Broken(Cause::Interpreter), |pc| self.set_caller(pc, at + 16, self.fp));
        }
        let JavaRegisters { bcp, method, saved_return, .. } = self.interrupted;
        if self.is_leaving_method() {
            return self.set_caller(bcp, method, self.fp);
        }
        // The first words of the frame exist: the caller's stack pointer, then one or two more.
        let is_partial = self.fp.wrapping_sub(self.sp) <= MAX_PARTIAL_BYTES && self.fp.is_multiple_of(8);
        let sender = self.fp.checked_sub(SENDER_SP).and_then(word).filter(|sp| *sp >= self.fp + 16 && *sp < self.limit);
        if let (true, Some(return_to), Some(sp)) = (is_partial, self.fp.checked_add(8).and_then(return_address), sender)
        {
            if !self.push_entered_method() {
                return StepResult::End;
            }
            return match word(self.fp) {
                Some(fp) => self.set_caller(return_to, sp, fp),
                None => StepResult::Broken(Cause::Interpreter),
            };
        }
        // The caller's stack pointer is in a register: `bcp` on entry, `method` on return. The return address is popped
        // while locals are allocated, then pushed again.
        let sp = [bcp, method].into_iter().find(|sp| self.is_sp(*sp));
        let on_top = return_address(self.sp).filter(|_| sp != Some(self.sp));
        let in_register = || Some(saved_return).filter(|pc| sp.is_some() && self.layout.is_code(*pc));
        let Some(return_to) = on_top.or_else(in_register) else { return StepResult::Broken(Cause::Interpreter) };
        if !self.push_entered_method() {
            return StepResult::End;
        }
        self.set_caller(return_to, sp.unwrap_or(self.sp + 8), self.fp)
    }

    /// Pushes the method that the interpreter enters; false when the stack buffer is full.
    fn push_entered_method(&mut self) -> bool {
        let Some(method) = Method::at(self.layout, self.interrupted.method) else { return true };
        self.has_java = true;
        self.stack.push(raw_frame::method(method.address, method.fingerprint, raw_frame::NO_INDEX))
    }
}
