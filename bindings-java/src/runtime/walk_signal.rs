//! The walk of a Java thread's stack, leaf first, in the handler: compiled code by its frame size, interpreted frames by
//! their frame pointer. Every load is guarded; what does not lead towards the root ends the walk with a reason. Not here: what
//! lies between methods (`outside_signal`).

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{prefetch, DropReason, RawFrame, RawStack};

use super::cache_signal::{self, Code, MAX_CACHED};
use super::code_heap_signal::{blob_of, code_begin, frame_bytes, frame_complete, kind_of, Kind};
use super::frame_word;
use super::instructions_signal::{self, Built};
use super::layout::Layout;
use super::memory_signal::{int, word};
use super::method_signal::Method;
use super::recall_signal::Recalled;
use super::registers_signal::{self, Registers};
use super::scopes_signal::{decode, method_alone, Found, Inlined};

/// Stacks whose end the VM does not tell are no larger.
const MAX_STACK_BYTES: usize = 64 << 20;
/// The deepest stack has fewer frames.
const MAX_STEPS: usize = 4096;
/// An interpreted frame with its expressions and locks is no larger.
const MAX_INTERPRETED_BYTES: usize = 1 << 20;
/// Frames of an interpreted method, from its frame pointer.
pub const SENDER_SP: usize = 8;
pub const LAST_SP: usize = 16;
const METHOD: usize = 24;
const BYTE_CODE: usize = 64;
/// What an interpreted frame has before its method is in it.
const MAX_BEGUN_BYTES: usize = 16;
/// `_thread_in_native` and `_thread_blocked` (`hotspot/share/utilities/globalDefinitions.hpp`, JDK 17 to 25).
const OUTSIDE_OF_JAVA: [i32; 2] = [4, 10];
/// How far ahead the stack is asked for.
const STACK_AHEAD_BYTES: usize = 512;

static CACHE_HITS: AtomicU64 = AtomicU64::new(0);
static CACHE_MISSES: AtomicU64 = AtomicU64::new(0);
static BROKEN: [AtomicU64; CAUSES.len()] = [const { AtomicU64::new(0) }; CAUSES.len()];

/// What a walk could not be led on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Generated code that no block holds, or whose frame is of no known size.
    Code,
    Interpreter,
    Stub,
    /// Native code that was called by no Java code.
    Native,
    /// What the VM left of where native code was called.
    Anchor,
    /// The caller's frame is not where a caller's is.
    Order,
    /// Any of these, of a thread that waited.
    Waiting,
}

/// Their names in `stats()`.
pub const CAUSES: [&str; 7] = [
    "java.walks_broken.code",
    "java.walks_broken.interpreter",
    "java.walks_broken.stub",
    "java.walks_broken.native",
    "java.walks_broken.anchor",
    "java.walks_broken.order",
    "java.walks_broken.waiting",
];

/// Places found in the cache, places decoded.
pub fn counts() -> (u64, u64) {
    (CACHE_HITS.load(Ordering::Relaxed), CACHE_MISSES.load(Ordering::Relaxed))
}

/// Walks that ended with a reason, by cause.
pub fn broken() -> [u64; CAUSES.len()] {
    std::array::from_fn(|cause| BROKEN[cause].load(Ordering::Relaxed))
}

pub struct Walk<'a, 'b> {
    pub layout: &'a Layout,
    pub stack: &'a mut RawStack<'b>,
    pub interrupted: Registers,
    pub java_thread: usize,
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// End of the thread's stack.
    pub limit: usize,
    /// Whether `pc` was interrupted, rather than called from.
    pub leaf: bool,
    has_java: bool,
    /// What the thread's next walk asks for; none for a walk from another thread.
    recalled: Option<&'a Recalled>,
    compiled: usize,
    hits: usize,
}

/// What a step led to.
pub enum Step {
    On,
    End,
    Broken(Cause),
}

/// Walks the interrupted thread; whether any Java frame was found.
pub fn walk(
    layout: &Layout,
    registers: &Registers,
    java_thread: usize,
    recalled: Option<&Recalled>,
    stack: &mut RawStack<'_>,
) -> bool {
    let sp = registers.sp;
    prefetch::range(sp as *const u8, STACK_AHEAD_BYTES);
    let told = if java_thread == 0 { None } else { word(java_thread + layout.stack_base) };
    let limit = told.filter(|base| *base > sp && base - sp < MAX_STACK_BYTES).unwrap_or(sp.saturating_add(8 << 20));
    if let Some(recalled) = recalled.filter(|_| java_thread != 0) {
        recalled.fetch_all();
    }
    let mut walk = Walk { recalled, ..Walk::new(layout, stack, *registers, java_thread, limit) };
    if let Some(cause) = walk.go_to_the_root() {
        BROKEN[cause as usize].fetch_add(1, Ordering::Relaxed);
    }
    walk.has_java
}

/// A walk of a thread that waited holds: it had not run meanwhile.
pub fn waiting_walk_holds(stack: &RawStack<'_>) {
    if stack.frames().last().is_some_and(|root| root.as_reason().is_some()) {
        BROKEN[Cause::Waiting as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// Walks a thread that waits outside of Java code, from the anchor it left; false when it left none.
pub fn walk_waiting(layout: &Layout, java_thread: usize, stack: &mut RawStack<'_>) -> bool {
    let Some(limit) = word(java_thread + layout.stack_base) else { return false };
    let mut walk = Walk { leaf: false, ..Walk::new(layout, stack, Registers::default(), java_thread, limit) };
    let Step::On = walk.anchored(java_thread + layout.anchor) else { return false };
    walk.go_to_the_root();
    walk.has_java
}

/// The state of a thread that is in native code or blocked and has no Java frames.
pub fn state_without_java(layout: &Layout, java_thread: usize) -> Option<i32> {
    let state = int(java_thread + layout.thread_state?).filter(|state| OUTSIDE_OF_JAVA.contains(state));
    let anchor = word(java_thread + layout.anchor + layout.anchor_sp);
    state.filter(|_| anchor == Some(0))
}

impl<'a, 'b> Walk<'a, 'b> {
    /// At the leaf of an interrupted thread.
    fn new(
        layout: &'a Layout,
        stack: &'a mut RawStack<'b>,
        interrupted: Registers,
        java_thread: usize,
        limit: usize,
    ) -> Self {
        let Registers { pc, sp, fp, .. } = interrupted;
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
            recalled: None,
            compiled: 0,
            hits: 0,
        }
    }

    /// What could not be followed, if anything.
    fn go_to_the_root(&mut self) -> Option<Cause> {
        let mut cached = [RawFrame::default(); MAX_CACHED];
        let mut cause = Some(Cause::Order);
        for _ in 0..MAX_STEPS {
            let before = self.sp;
            match self.step(&mut cached) {
                Step::On if self.sp < before || self.sp >= self.limit || !self.sp.is_multiple_of(8) => break,
                Step::On => prefetch::range((self.sp + STACK_AHEAD_BYTES) as *const u8, 64),
                Step::End => {
                    cause = None;
                    break;
                }
                Step::Broken(because) => {
                    cause = Some(because);
                    break;
                }
            }
        }
        if let Some(recalled) = self.recalled.filter(|_| self.compiled > 0) {
            recalled.end(self.compiled);
        }
        CACHE_HITS.fetch_add(self.hits as u64, Ordering::Relaxed);
        if cause.is_some() {
            self.stack.push(RawFrame::reason(DropReason::InvalidFrame));
        }
        cause
    }

    #[inline]
    fn step(&mut self, cached: &mut [RawFrame; MAX_CACHED]) -> Step {
        let layout = self.layout;
        if self.pc == layout.call_stub_return && !self.leaf {
            return self.called_into();
        }
        if !layout.is_code(self.pc) {
            return self.native();
        }
        if layout.is_interpreter(self.pc) {
            return self.interpreted();
        }
        if let Some((code, len)) = cache_signal::find(self.pc, cached) {
            if int(code.blob + layout.compile_id) == Some(code.compile_id as i32) {
                self.hits += 1;
                return self.compiled(&code, cached.get(..len).unwrap_or(&[]));
            }
        }
        self.looked_up().unwrap_or(Step::Broken(Cause::Code))
    }

    /// A program counter that the cache does not know.
    #[cold]
    fn looked_up(&mut self) -> Option<Step> {
        let (layout, pc) = (self.layout, self.pc);
        let blob = blob_of(layout, pc)?;
        let kind = kind_of(layout, blob)?;
        let begin = code_begin(layout, blob)?;
        let before_frame = pc < frame_complete(layout, blob, begin)?;
        let frame_bytes = frame_bytes(layout, blob)?;
        let mut code = Code { blob, compile_id: 0, frame_bytes, before_frame };
        match kind {
            Kind::Compiled | Kind::Wrapper => {}
            Kind::Continuation if !self.leaf => return Some(self.rest_in_heap()),
            Kind::Continuation | Kind::Stub => return Some(self.stub(&code)),
        }
        if self.leaf && instructions_signal::relays(pc) {
            // Not the method: its caller's word of what to interpret. The caller's own code is where it returns to.
            return Some(match word(self.sp).filter(|pc| layout.is_code(*pc)) {
                Some(return_to) => self.to(return_to, self.sp + 8, self.fp),
                None => Step::Broken(Cause::Code),
            });
        }
        CACHE_MISSES.fetch_add(1, Ordering::Relaxed);
        code.compile_id = int(blob + layout.compile_id)? as u32;
        let mut inlined = Inlined::new();
        if self.leaf && before_frame {
            if method_alone(layout, blob, 0, &mut inlined) == Found::Nothing {
                return None;
            }
            cache_signal::keep(pc, &code, inlined.frames());
            return Some(self.compiled(&code, inlined.frames()));
        }
        let found = decode(layout, blob, begin, pc, self.leaf, &mut inlined);
        if found == Found::Nothing {
            return None;
        }
        let mut is_sure = found != Found::Method || kind == Kind::Wrapper || self.leaf;
        // Collectors' code beside the method, which keeps registers on top of the frame while it calls the VM.
        let is_beside =
            found == Found::Method || (found == Found::Near && !self.leaf) || instructions_signal::releases(pc);
        let detour = if is_beside { instructions_signal::detour(pc, begin) } else { None };
        if let Some(detour) = detour.filter(|detour| found == Found::Method || detour.kept_bytes > 0) {
            code.frame_bytes += detour.kept_bytes;
            decode(layout, blob, begin, detour.resumes, self.leaf, &mut inlined);
            is_sure = true;
        } else if found == Found::Method && kind == Kind::Compiled && !self.leaf {
            // Code that is no longer trusted returns to a handler of its own; where it was is kept in the frame.
            let kept = int(blob + layout.original_pc).and_then(|at| word(self.sp.checked_add(at as usize)?));
            if let Some(original) = kept.filter(|at| *at != pc && blob_of(layout, *at) == Some(blob)) {
                decode(layout, blob, begin, original, false, &mut inlined);
            }
        } else {
            code.frame_bytes += match self.leaf {
                true => instructions_signal::pushed_bytes(pc),
                false => instructions_signal::passed_bytes(pc),
            };
        }
        if is_sure {
            cache_signal::keep(pc, &code, inlined.frames());
        }
        Some(self.compiled(&code, inlined.frames()))
    }

    #[inline]
    fn compiled(&mut self, code: &Code, frames: &[RawFrame]) -> Step {
        if let Some(recalled) = self.recalled {
            recalled.keep(self.compiled, self.pc, frames.len(), code.blob + self.layout.compile_id);
            self.compiled += 1;
        }
        for frame in frames {
            if !self.stack.push(*frame) {
                return Step::End;
            }
        }
        self.has_java = true;
        if self.leaf {
            if let Some((return_to, sp, fp)) = self.without_frame(code) {
                return self.to(return_to, sp, fp);
            }
        }
        self.over(code.frame_bytes)
    }

    /// The caller, when the code at the leaf has no frame yet, or no more, or not the whole of it.
    fn without_frame(&self, code: &Code) -> Option<(usize, usize, usize)> {
        let returns = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        if let Some(return_to) = registers_signal::link(&self.interrupted).filter(|_| code.before_frame) {
            return Some((return_to, self.sp, self.fp));
        }
        let pushed = || Some((returns(self.sp.checked_add(8)?)?, self.sp + 16, word(self.sp)?));
        let bare = || Some((returns(self.sp)?, self.sp + 8, self.fp));
        let built = match code.before_frame {
            true => instructions_signal::prologue(self.pc),
            false => Some(instructions_signal::epilogue(self.pc)?),
        };
        match built {
            Some(Built::Nothing) => bare(),
            Some(Built::Pushed) => pushed(),
            Some(Built::WithoutPointer) => {
                let sp = self.sp.checked_add(code.frame_bytes)?;
                Some((returns(sp.checked_sub(8)?)?, sp, self.fp))
            }
            Some(Built::Whole) => None,
            None => bare().or_else(pushed),
        }
    }

    /// To the caller of a frame of known size.
    #[inline]
    pub fn over(&mut self, frame_bytes: usize) -> Step {
        let Some(sp) = self.sp.checked_add(frame_bytes).filter(|_| frame_bytes >= 16) else {
            return Step::Broken(Cause::Code);
        };
        match (word(sp - 8), word(sp - 16)) {
            (Some(pc), Some(fp)) => self.to(pc, sp, fp),
            _ => Step::Broken(Cause::Code),
        }
    }

    #[inline]
    pub fn to(&mut self, pc: usize, sp: usize, fp: usize) -> Step {
        (self.pc, self.sp, self.fp) = (pc, sp, fp);
        self.leaf = false;
        Step::On
    }

    fn interpreted(&mut self) -> Step {
        let layout = self.layout;
        let frame = self.fp;
        let near = frame >= self.sp
            && frame < self.limit
            && (METHOD..MAX_INTERPRETED_BYTES).contains(&(frame - self.sp))
            && frame.is_multiple_of(8)
            && !self.is_at_edge_of_interpreter();
        let method = if near { word(frame - METHOD).and_then(|method| Method::at(layout, method)) } else { None };
        let Some(method) = method else {
            let unfilled = if near { self.over_unfilled() } else { None };
            return unfilled.unwrap_or_else(|| self.without_interpreted_frame());
        };
        let live = if self.leaf { method.index_of(layout, self.interrupted.byte_code) } else { None };
        let kept = || word(frame - BYTE_CODE).and_then(|at| method.index_of(layout, at));
        let index = live.or_else(kept).unwrap_or(frame_word::NO_INDEX);
        if !self.stack.push(frame_word::method(method.address, method.fingerprint, index)) {
            return Step::End;
        }
        self.has_java = true;
        match (word(frame + 8), word(frame - SENDER_SP), word(frame)) {
            (Some(pc), Some(sp), Some(fp)) if sp > frame => self.to(pc, sp, fp),
            _ => Step::Broken(Cause::Interpreter),
        }
    }

    /// Whether the registers say that the interpreter enters or leaves a method, whatever frame its pointer leads to: that of
    /// an interpreted method further up, where compiled code between them left it alone. Within a method they say otherwise.
    fn is_at_edge_of_interpreter(&self) -> bool {
        let Registers { byte_code, method, kept_caller, fp, .. } = self.interrupted;
        // What a method called leaves both in them as well, and native methods keep both, but their caller is not at hand.
        let is_told = || [word(self.sp), Some(kept_caller)].into_iter().flatten().any(|pc| self.layout.is_code(pc));
        let is_built =
            || word(fp.wrapping_sub(METHOD)) == Some(method) && word(fp.wrapping_sub(SENDER_SP)) == Some(byte_code);
        let enters = || self.is_sp(byte_code) && is_told() && Method::at(self.layout, method).is_some() && !is_built();
        self.leaf && (self.leaves_method() || enters())
    }

    /// Whether the interpreter is on its way out: the return address is where its place in the byte code was, the caller's
    /// stack pointer where the method was.
    fn leaves_method(&self) -> bool {
        self.layout.is_code(self.interrupted.byte_code) && self.is_sp(self.interrupted.method)
    }

    /// Whether a caller's stack pointer may be this.
    pub fn is_sp(&self, sp: usize) -> bool {
        sp >= self.sp && sp < self.limit && sp.is_multiple_of(8)
    }

    /// The interpreter before its frame is there, or when it is no more.
    fn without_interpreted_frame(&mut self) -> Step {
        let returns = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        if !self.leaf {
            // It asks who catches an exception, with the return address and the exception on the stack, perhaps below a word
            // that evens it out, which is taken off again.
            let at = if instructions_signal::releases(self.pc) { self.sp + 8 } else { self.sp };
            return returns(at).map_or(Step::Broken(Cause::Interpreter), |pc| self.to(pc, at + 16, self.fp));
        }
        let Registers { byte_code, method, kept_caller, .. } = self.interrupted;
        if self.leaves_method() {
            return self.to(byte_code, method, self.fp);
        }
        // Its first words are there: the caller's stack pointer, then one or two more.
        let begun = self.fp.wrapping_sub(self.sp) <= MAX_BEGUN_BYTES && self.fp.is_multiple_of(8);
        let sender = self.fp.checked_sub(SENDER_SP).and_then(word).filter(|sp| *sp >= self.fp + 16 && *sp < self.limit);
        if let (true, Some(return_to), Some(sp)) = (begun, self.fp.checked_add(8).and_then(returns), sender) {
            if !self.entered_method() {
                return Step::End;
            }
            return match word(self.fp) {
                Some(fp) => self.to(return_to, sp, fp),
                None => Step::Broken(Cause::Interpreter),
            };
        }
        // The caller's stack pointer is in a register, on the way out in the other one. The return address is taken off the
        // stack to make room for the method's variables, and put back on top.
        let sp = [byte_code, method].into_iter().find(|sp| self.is_sp(*sp));
        let on_top = returns(self.sp).filter(|_| sp != Some(self.sp));
        let kept = || Some(kept_caller).filter(|pc| sp.is_some() && self.layout.is_code(*pc));
        let Some(return_to) = on_top.or_else(kept) else { return Step::Broken(Cause::Interpreter) };
        if !self.entered_method() {
            return Step::End;
        }
        self.to(return_to, sp.unwrap_or(self.sp + 8), self.fp)
    }

    /// The method that the interpreter enters; false when there is no room for its frame.
    fn entered_method(&mut self) -> bool {
        let Some(method) = Method::at(self.layout, self.interrupted.method) else { return true };
        self.has_java = true;
        self.stack.push(frame_word::method(method.address, method.fingerprint, frame_word::NO_INDEX))
    }
}
