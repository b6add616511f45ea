//! Walks a Java thread's stack in the handler, leaf first: compiled frames by their frame size, interpreted frames by their
//! frame pointer. Every load is guarded. A step that does not move towards the stack base ends the walk with a cause. Not
//! here: stubs, native code and entry frames (`stub`, `native`).

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{prefetch, DropReason, RawFrame, RawStack};

use super::environment::WalkEnvironment;
use super::pc_cache::MAX_CACHED;
use super::prefetch::WalkHistory;
use super::registers::JavaRegisters;
use crate::runtime::vm::layout::VmLayout;

/// Maximum size of a thread's stack; a stack base further above the stack pointer counts as unknown.
const MAX_STACK_BYTES: usize = 64 << 20;
/// Size that is assumed above the stack pointer if the stack base is unknown.
const DEFAULT_STACK_BYTES: usize = 8 << 20;
/// Upper bound of steps per walk.
const MAX_STEPS: usize = 4096;
/// `_thread_in_native` and `_thread_blocked` (`hotspot/share/utilities/globalDefinitions.hpp`, JDK 8 to 25).
const NATIVE_OR_BLOCKED: [i32; 2] = [4, 10];
const STACK_PREFETCH_BYTES: usize = 512;

static CACHE_HITS: AtomicU64 = AtomicU64::new(0);
pub static CACHE_MISSES: AtomicU64 = AtomicU64::new(0);
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
pub struct StackWalker<'a, 'b, E> {
    pub memory: E,
    pub layout: &'a VmLayout,
    pub stack: &'a mut RawStack<'b>,
    pub interrupted: JavaRegisters,
    /// The context of the signal that interrupted the thread; `None` in walks of other threads and of recordings.
    pub context: Option<&'a libc::ucontext_t>,
    pub java_thread: usize,
    /// Address of the anchor with the next Java frame; 0 where no anchor is known.
    pub anchor: usize,
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// Base (highest address) of the thread's stack.
    pub limit: usize,
    /// Whether `pc` is the interrupted one; else it is a return address.
    pub leaf: bool,
    pub has_java: bool,
    /// Records frames for the prefetch of the thread's next walk; `None` when another thread walks.
    pub history: Option<&'a WalkHistory>,
    /// Compiled frames so far.
    pub compiled: usize,
    hits: usize,
}

pub enum StepResult {
    Continue,
    End,
    Broken(Cause),
}

/// Walks the interrupted thread. Returns whether a Java frame was found.
pub fn walk(
    memory: impl WalkEnvironment,
    layout: &VmLayout,
    (registers, context): (&JavaRegisters, Option<&libc::ucontext_t>),
    java_thread: usize,
    history: Option<&WalkHistory>,
    stack: &mut RawStack<'_>,
) -> bool {
    let sp = registers.sp;
    prefetch::range(sp as *const u8, STACK_PREFETCH_BYTES);
    let stack_base = if java_thread == 0 { None } else { memory.load(java_thread + layout.stack_base) };
    let limit = stack_base
        .filter(|base| *base > sp && base - sp < MAX_STACK_BYTES)
        .unwrap_or(sp.saturating_add(DEFAULT_STACK_BYTES));
    if let Some(history) = history.filter(|_| java_thread != 0) {
        history.prefetch_frames();
    }
    let mut walk =
        StackWalker { history, context, ..StackWalker::new(memory, layout, stack, *registers, java_thread, limit) };
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
pub fn walk_waiting(
    memory: impl WalkEnvironment,
    layout: &VmLayout,
    java_thread: usize,
    stack: &mut RawStack<'_>,
) -> bool {
    let Some(limit) = memory.load(java_thread + layout.stack_base) else { return false };
    let mut walk = StackWalker {
        leaf: false,
        ..StackWalker::new(memory, layout, stack, JavaRegisters::default(), java_thread, limit)
    };
    let StepResult::Continue = walk.resume_at_anchor(walk.anchor) else { return false };
    walk.walk_to_root();
    walk.has_java
}

/// The state of a thread that is in native code or blocked and has no Java frames.
pub fn state_without_java(memory: impl WalkEnvironment, layout: &VmLayout, java_thread: usize) -> Option<i32> {
    let state = memory.int(java_thread + layout.thread_state?).filter(|state| NATIVE_OR_BLOCKED.contains(state));
    let anchor = memory.load(java_thread + layout.anchor + layout.anchor_sp);
    state.filter(|_| anchor == Some(0))
}

impl<'a, 'b, E: WalkEnvironment> StackWalker<'a, 'b, E> {
    /// A walk that begins at the leaf of an interrupted thread.
    fn new(
        memory: E,
        layout: &'a VmLayout,
        stack: &'a mut RawStack<'b>,
        interrupted: JavaRegisters,
        java_thread: usize,
        limit: usize,
    ) -> Self {
        let JavaRegisters { pc, sp, fp, .. } = interrupted;
        Self {
            memory,
            layout,
            stack,
            interrupted,
            context: None,
            java_thread,
            anchor: if java_thread == 0 { 0 } else { java_thread + layout.anchor },
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
                StepResult::Continue => prefetch::range(self.sp.wrapping_add(STACK_PREFETCH_BYTES) as *const u8, 64),
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
        if let Some((info, len)) = self.memory.find_pc(self.pc, cached) {
            if self.memory.int(info.blob + layout.compile_id) == Some(info.compile_id as i32) {
                self.hits += 1;
                return self.compiled_frame(&info, cached.get(..len).unwrap_or(&[]));
            }
        }
        self.step_uncached().unwrap_or(StepResult::Broken(Cause::Code))
    }

    /// The word at an address.
    #[inline(always)]
    pub fn word(&self, address: usize) -> Option<usize> {
        self.memory.load(address)
    }

    /// Steps to the caller of a frame of known size.
    #[inline]
    pub fn skip_frame(&mut self, frame_bytes: usize) -> StepResult {
        let Some(sp) = self.sp.checked_add(frame_bytes).filter(|_| frame_bytes >= 16) else {
            return StepResult::Broken(Cause::Code);
        };
        match (self.word(sp - 8), self.word(sp - 16)) {
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

    /// Whether `sp` is a possible stack pointer of the caller.
    pub fn is_sp(&self, sp: usize) -> bool {
        sp >= self.sp && sp < self.limit && sp.is_multiple_of(8)
    }
}
