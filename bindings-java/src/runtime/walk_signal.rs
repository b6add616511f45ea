//! The walk of a Java thread's stack, leaf first, in the handler: compiled code by its frame size, interpreted frames by
//! their frame pointer, calls out of Java by the anchor that the VM leaves behind, calls into Java by the wrapper that the
//! VM passes along. Every load is guarded; what does not lead towards the root ends the walk with a reason.

use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_signal::{DropReason, RawFrame, RawStack};

use super::cache_signal::{self, Code, MAX_CACHED};
use super::code_heap_signal::{blob_of, code_begin, frame_bytes, frame_complete, kind_of, Kind};
use super::frame_word;
use super::layout::Layout;
use super::memory_signal::{int, word};
use super::method_signal::Method;
use super::registers_signal::{self, Registers};
use super::scopes_signal::{decode, method_alone, Found, Inlined};

/// Stacks whose end the VM does not tell are no larger.
const MAX_STACK_BYTES: usize = 64 << 20;
/// The deepest stack has fewer frames.
const MAX_STEPS: usize = 4096;
/// Native frames looked through for the Java frame that called them.
const MAX_NATIVE_FRAMES: usize = 32;
/// An interpreted frame with its expressions and locks is no larger.
const MAX_INTERPRETED_BYTES: usize = 1 << 20;
/// Frames of an interpreted method, from its frame pointer.
const SENDER_SP: usize = 8;
const METHOD: usize = 24;
const BYTE_CODE: usize = 64;

static CACHE_HITS: AtomicU64 = AtomicU64::new(0);
static CACHE_MISSES: AtomicU64 = AtomicU64::new(0);
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// Places found in the cache, places decoded, walks that ended with a reason.
pub fn counts() -> (u64, u64, u64) {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    (read(&CACHE_HITS), read(&CACHE_MISSES), read(&BROKEN))
}

struct Walk<'a, 'b> {
    layout: &'a Layout,
    stack: &'a mut RawStack<'b>,
    interrupted: &'a Registers,
    java_thread: usize,
    pc: usize,
    sp: usize,
    fp: usize,
    /// End of the thread's stack.
    limit: usize,
    /// Whether `pc` was interrupted, rather than called from.
    leaf: bool,
    has_java: bool,
}

enum Step {
    On,
    End,
    Broken,
}

/// Walks the interrupted thread; whether any Java frame was found.
pub fn walk(layout: &Layout, registers: &Registers, java_thread: usize, stack: &mut RawStack<'_>) -> bool {
    let Registers { pc, sp, fp, .. } = *registers;
    let told = if java_thread == 0 { None } else { word(java_thread + layout.stack_base) };
    let limit = told.filter(|base| *base > sp && base - sp < MAX_STACK_BYTES).unwrap_or(sp.saturating_add(8 << 20));
    let interrupted = registers;
    let mut walk = Walk { layout, stack, interrupted, java_thread, pc, sp, fp, limit, leaf: true, has_java: false };
    walk.go_to_the_root();
    walk.has_java
}

/// Walks a thread that waits outside of Java code, from the anchor it left; false when it left none.
pub fn walk_waiting(layout: &Layout, java_thread: usize, stack: &mut RawStack<'_>) -> bool {
    let Some(limit) = word(java_thread + layout.stack_base) else { return false };
    let interrupted = &Registers::default();
    let (pc, sp, fp) = (0, 0, 0);
    let mut walk = Walk { layout, stack, interrupted, java_thread, pc, sp, fp, limit, leaf: false, has_java: false };
    let Step::On = walk.anchored(java_thread + layout.anchor) else { return false };
    walk.go_to_the_root();
    walk.has_java
}

impl Walk<'_, '_> {
    fn go_to_the_root(&mut self) {
        for _ in 0..MAX_STEPS {
            let before = self.sp;
            match self.step() {
                Step::On if self.sp < before || self.sp >= self.limit || !self.sp.is_multiple_of(8) => break,
                Step::On => {}
                Step::End => return,
                Step::Broken => break,
            }
        }
        self.broken();
    }

    fn broken(&mut self) {
        BROKEN.fetch_add(1, Ordering::Relaxed);
        self.stack.push(RawFrame::reason(DropReason::InvalidFrame));
    }

    fn step(&mut self) -> Step {
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
        let mut cached = [RawFrame::default(); MAX_CACHED];
        if let Some((code, len)) = cache_signal::find(self.pc, &mut cached) {
            if int(code.blob + layout.compile_id) == Some(code.compile_id as i32) {
                CACHE_HITS.fetch_add(1, Ordering::Relaxed);
                return self.compiled(&code, cached.get(..len).unwrap_or(&[]));
            }
        }
        self.looked_up().unwrap_or(Step::Broken)
    }

    /// A program counter that the cache does not know.
    fn looked_up(&mut self) -> Option<Step> {
        let (layout, pc) = (self.layout, self.pc);
        let blob = blob_of(layout, pc)?;
        let kind = kind_of(layout, blob)?;
        let begin = code_begin(layout, blob)?;
        let complete = frame_complete(layout, blob, begin)?;
        let frame_bytes = frame_bytes(layout, blob)?;
        let code = Code { blob, compile_id: 0, frame_bytes, complete };
        match kind {
            Kind::Compiled => {}
            Kind::Continuation if !self.leaf => return Some(self.rest_in_heap()),
            Kind::Continuation | Kind::Stub => return Some(self.stub(&code)),
        }
        CACHE_MISSES.fetch_add(1, Ordering::Relaxed);
        let code = Code { compile_id: int(blob + layout.compile_id)? as u32, ..code };
        let mut inlined = Inlined::new();
        let found = if self.leaf && pc < complete {
            method_alone(layout, blob, 0, &mut inlined)
        } else {
            decode(layout, blob, begin, pc, &mut inlined)
        };
        match found {
            Found::Nothing => return None,
            Found::Method if !self.leaf => {
                // Code that is no longer trusted returns to a handler of its own; where it was is kept in the frame.
                let kept = int(blob + layout.original_pc).and_then(|at| word(self.sp.checked_add(at as usize)?));
                if let Some(original) = kept.filter(|at| *at != pc && blob_of(layout, *at) == Some(blob)) {
                    decode(layout, blob, begin, original, &mut inlined);
                }
            }
            Found::Method | Found::Scopes => cache_signal::keep(pc, &code, inlined.frames()),
        }
        Some(self.compiled(&code, inlined.frames()))
    }

    fn compiled(&mut self, code: &Code, frames: &[RawFrame]) -> Step {
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

    /// The caller, when the code at the leaf has no frame yet or no more.
    fn without_frame(&self, code: &Code) -> Option<(usize, usize, usize)> {
        let returns = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        let before = self.pc < code.complete;
        if let Some(return_to) = registers_signal::link(self.interrupted).filter(|_| before) {
            return Some((return_to, self.sp, self.fp));
        }
        let pushed = || Some((returns(self.sp.checked_add(8)?)?, self.sp + 16, word(self.sp)?));
        let bare = || Some((returns(self.sp)?, self.sp + 8, self.fp));
        if before {
            return bare().or_else(pushed);
        }
        match registers_signal::epilogue(self.pc)? {
            registers_signal::Epilogue::FrameGone => bare(),
            registers_signal::Epilogue::FramePointerLeft => pushed(),
        }
    }

    /// To the caller of a frame of known size.
    fn over(&mut self, frame_bytes: usize) -> Step {
        let Some(sp) = self.sp.checked_add(frame_bytes).filter(|_| frame_bytes >= 16) else { return Step::Broken };
        match (word(sp - 8), word(sp - 16)) {
            (Some(pc), Some(fp)) => self.to(pc, sp, fp),
            _ => Step::Broken,
        }
    }

    fn to(&mut self, pc: usize, sp: usize, fp: usize) -> Step {
        (self.pc, self.sp, self.fp) = (pc, sp, fp);
        self.leaf = false;
        Step::On
    }

    fn interpreted(&mut self) -> Step {
        let layout = self.layout;
        let frame = self.fp;
        let near = frame >= self.sp
            && frame < self.limit
            && frame - self.sp < MAX_INTERPRETED_BYTES
            && frame.is_multiple_of(8);
        let method = if near { word(frame - METHOD).and_then(|method| Method::at(layout, method)) } else { None };
        let Some(method) = method else { return self.entering_interpreter() };
        let live = if self.leaf { method.index_of(layout, self.interrupted.byte_code) } else { None };
        let kept = || word(frame - BYTE_CODE).and_then(|at| method.index_of(layout, at));
        let index = live.or_else(kept).unwrap_or(frame_word::NO_INDEX);
        if !self.stack.push(frame_word::method(method.address, method.fingerprint, index)) {
            return Step::End;
        }
        self.has_java = true;
        match (word(frame + 8), word(frame - SENDER_SP), word(frame)) {
            (Some(pc), Some(sp), Some(fp)) if sp > frame => self.to(pc, sp, fp),
            _ => Step::Broken,
        }
    }

    /// The interpreter before its frame is there: the caller's stack pointer is in a register.
    fn entering_interpreter(&mut self) -> Step {
        let return_to = word(self.sp).filter(|pc| self.leaf && self.layout.is_code(*pc));
        let Some(return_to) = return_to else { return Step::Broken };
        if let Some(method) = Method::at(self.layout, self.interrupted.method) {
            let frame = frame_word::method(method.address, method.fingerprint, frame_word::NO_INDEX);
            if !self.stack.push(frame) {
                return Step::End;
            }
            self.has_java = true;
        }
        let told = self.interrupted.byte_code;
        let sp = if told > self.sp && told < self.limit && told.is_multiple_of(8) { told } else { self.sp + 8 };
        self.to(return_to, sp, self.fp)
    }

    fn stub(&mut self, code: &Code) -> Step {
        if !self.stack.push(frame_word::stub(self.pc)) {
            return Step::End;
        }
        let layout = self.layout;
        if code.frame_bytes > 0 && (!self.leaf || self.pc >= code.complete) {
            return self.over(code.frame_bytes);
        }
        if self.leaf {
            let link = registers_signal::link(self.interrupted).filter(|pc| layout.is_code(*pc));
            if let Some(return_to) = link {
                return self.to(return_to, self.sp, self.fp);
            }
            if let Some(return_to) = word(self.sp).filter(|pc| layout.is_code(*pc)) {
                return self.to(return_to, self.sp + 8, self.fp);
            }
        }
        self.by_frame_pointer(1)
    }

    /// Looks through frames with frame pointers for code of the VM's.
    fn by_frame_pointer(&mut self, at_most: usize) -> Step {
        let (mut low, mut frame) = (self.sp, self.fp);
        for _ in 0..at_most {
            if frame < low || frame >= self.limit || !frame.is_multiple_of(8) {
                break;
            }
            let (Some(pc), Some(next)) = (word(frame + 8), word(frame)) else { break };
            if self.layout.is_code(pc) {
                return self.to(pc, frame + 16, next);
            }
            (low, frame) = (frame + 16, next);
        }
        Step::Broken
    }

    /// Native code: only at the leaf, for what Java calls out to leaves an anchor.
    fn native(&mut self) -> Step {
        if !self.leaf {
            return Step::Broken;
        }
        if !self.stack.push(RawFrame::native(self.pc as u64)) {
            return Step::End;
        }
        if self.java_thread == 0 {
            return Step::End;
        }
        match self.anchored(self.java_thread + self.layout.anchor) {
            Step::On => return Step::On,
            // Java code that calls out without an anchor calls a leaf.
            Step::End | Step::Broken => {}
        }
        if let Some(return_to) = word(self.sp).filter(|pc| self.layout.is_code(*pc)) {
            return self.to(return_to, self.sp + 8, self.fp);
        }
        match self.by_frame_pointer(MAX_NATIVE_FRAMES) {
            Step::On => Step::On,
            // No Java frame is there: the thread runs code of the VM's, or of its own.
            _ => Step::End,
        }
    }

    /// To the last Java frame that an anchor tells of.
    fn anchored(&mut self, anchor: usize) -> Step {
        let layout = self.layout;
        let Some(sp) = word(anchor.wrapping_add(layout.anchor_sp)) else { return Step::Broken };
        if sp == 0 {
            return Step::End;
        }
        let told = word(anchor.wrapping_add(layout.anchor_pc)).filter(|pc| *pc != 0);
        let (Some(pc), Some(fp)) =
            (told.or_else(|| word(sp.checked_sub(8)?)), word(anchor.wrapping_add(layout.anchor_fp)))
        else {
            return Step::Broken;
        };
        if sp < self.sp || sp >= self.limit {
            return Step::Broken;
        }
        self.to(pc, sp, fp)
    }

    /// A call from native code into Java: its wrapper tells which Java frame called that native code, if any.
    fn called_into(&mut self) -> Step {
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).and_then(word);
        match wrapper {
            Some(wrapper) if self.fp >= self.sp && self.fp < self.limit => {
                self.anchored(wrapper.wrapping_add(self.layout.wrapper_anchor))
            }
            _ => Step::Broken,
        }
    }

    /// The caller of a virtual thread's frame lies in the heap; the frames that carry the virtual thread are below it.
    fn rest_in_heap(&mut self) -> Step {
        if !self.stack.push(frame_word::IN_HEAP) {
            return Step::End;
        }
        let entry = self.layout.continuation_entry.and_then(|at| word(self.java_thread.checked_add(at)?));
        match entry {
            Some(sp) if self.layout.continuation_return != 0 && sp >= self.sp && sp < self.limit => {
                self.to(self.layout.continuation_return, sp, self.fp)
            }
            _ => Step::End,
        }
    }
}
