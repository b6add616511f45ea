//! The steps of a walk over what is no method's own code: code of the VM's making, native code, which leaves an anchor where
//! Java called it, calls into Java, which pass a wrapper along, and the end of a virtual thread's own frames. Called by
//! `walk_signal` alone, in the handler.

use spanprof_signal::{guarded, RawFrame};

use super::cache_signal::Code;
use super::frame_word;
use super::instructions_signal::{self, Built};
use super::memory_signal::word;
use super::registers_signal::{self, Registers};
use super::walk_signal::{Cause, Step, Walk, LAST_SP, SENDER_SP};

/// Native frames looked through for the Java frame that called them.
const MAX_NATIVE_FRAMES: usize = 32;
/// A fault's handler has no more on the stack, with what it calls.
const MAX_HANDLER_WORDS: usize = 512;
/// The code that calls into Java is shorter.
const CALL_STUB_BYTES: usize = 256;
/// What the stub at a method's entry keeps between its frame pointer and its return address.
const ENTRY_COOKIE: usize = usize::MAX;

impl Walk<'_, '_> {
    /// Code of the VM's own making.
    pub fn stub(&mut self, code: &Code) -> Step {
        if !self.stack.push(frame_word::stub(self.pc)) {
            return Step::End;
        }
        if !self.leaf {
            return match code.frame_bytes {
                0 => self.out_of_frameless(),
                frame_bytes => self.over(frame_bytes),
            };
        }
        if self.is_in_call_stub() {
            return self.called_into();
        }
        let link = registers_signal::link(&self.interrupted).filter(|pc| self.layout.is_code(*pc));
        if let Some(return_to) = link.filter(|_| code.frame_bytes == 0 || code.before_frame) {
            return self.to(return_to, self.sp, self.fp);
        }
        if instructions_signal::enters_interpreter(self.pc) {
            let noted = Some(self.interrupted.byte_code).filter(|sp| self.is_sp(*sp));
            let moved = self.kept_caller().map(|pc| (pc, self.sp));
            if let Some((return_to, sp)) = moved.or_else(|| Some((self.caller_on_top()?, self.sp + 8))) {
                return self.to(return_to, noted.unwrap_or(sp), self.fp);
            }
        }
        let edge = instructions_signal::prologue(self.pc).or_else(|| instructions_signal::epilogue(self.pc));
        let way_out = match edge {
            Some(Built::Nothing) => Some(Some(0)),
            Some(Built::Pushed) => Some(Some(8)),
            _ => instructions_signal::way_out(self.pc),
        };
        let return_at = match way_out {
            Some(Some(above)) => self.sp.checked_add(above),
            Some(None) => self.fp.checked_add(8).filter(|_| self.fp >= self.sp),
            None if code.frame_bytes > 0 && !code.before_frame => return self.over(code.frame_bytes),
            None => return self.called_stub(code),
        };
        let Some((at, return_to)) = return_at.and_then(|at| Some((at, word(at)?))) else {
            // The frame that it takes down at its end is not built yet.
            return self.called_stub(code);
        };
        if !self.layout.is_code(return_to) {
            // The VM itself called it, or a native function; else it was followed wrongly.
            let is_call = instructions_signal::follows_call(return_to);
            return if is_call { self.out_of_native() } else { self.called_stub(code) };
        }
        // On its way out it takes up the caller's frame pointer, last of all, if it kept it.
        let kept = at.checked_sub(8).filter(|kept| edge == Some(Built::Pushed) || *kept == self.fp);
        let fp = kept.and_then(word).unwrap_or(self.fp);
        self.to(return_to, at + 8, fp)
    }

    /// To who called code that cannot be followed to its end.
    fn called_stub(&mut self, code: &Code) -> Step {
        // Frames end where the stack pointer is even to two words; on the way in it is not yet.
        let has_frame = code.frame_bytes >= 16 && self.sp.is_multiple_of(16) && code.frame_bytes.is_multiple_of(16);
        if has_frame && self.sp.checked_add(code.frame_bytes - 8).is_some_and(|at| self.is_call_at(at)) {
            return self.over(code.frame_bytes);
        }
        if let Some(return_to) = self.caller_on_top() {
            return self.to(return_to, self.sp + 8, self.fp);
        }
        match self.kept_caller() {
            // Interpreted callers go by their frame pointer.
            Some(return_to) => self.to(return_to, self.sp, self.fp),
            None => self.by_frame_pointer(1, Cause::Stub),
        }
    }

    /// Who called an adapter between compiled and interpreted code, while it has the return address off the stack to move the
    /// arguments, before it puts it back on top of them.
    fn kept_caller(&self) -> Option<usize> {
        Some(self.interrupted.kept_caller).filter(|pc| self.is_call(*pc))
    }

    fn caller_on_top(&self) -> Option<usize> {
        word(self.sp).filter(|pc| self.is_call(*pc))
    }

    /// To who called code without a frame, which has called something itself: it takes what it kept off the stack, and
    /// where it throws an exception on, its own return address as well.
    fn out_of_frameless(&mut self) -> Step {
        let above = instructions_signal::way_out(self.pc).flatten().and_then(|above| self.sp.checked_add(above));
        let return_at = above.into_iter().flat_map(|at| [at, at - 8]).find(|at| *at >= self.sp && self.is_call_at(*at));
        match return_at.and_then(|at| Some((word(at)?, at + 8))) {
            Some((return_to, sp)) => self.to(return_to, sp, self.fp),
            None => self.by_frame_pointer(1, Cause::Stub),
        }
    }

    /// Whether this is the code that calls from the VM into Java, with its frame in order: what it was passed names the
    /// thread first.
    fn is_in_call_stub(&self) -> bool {
        let is_near = self.pc.abs_diff(self.layout.call_stub_return) < CALL_STUB_BYTES;
        let has_frame = is_near && self.fp >= self.sp && self.fp < self.limit;
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).filter(|_| has_frame).and_then(word);
        let is_passed = |wrapper: &usize| *wrapper > self.fp && *wrapper < self.limit;
        self.java_thread != 0 && wrapper.filter(is_passed).and_then(word) == Some(self.java_thread)
    }

    /// Whether code of the VM's goes on at `pc` after a call.
    fn is_call(&self, pc: usize) -> bool {
        self.layout.is_code(pc) && (self.layout.is_interpreter(pc) || instructions_signal::follows_call(pc))
    }

    fn is_call_at(&self, at: usize) -> bool {
        word(at).is_some_and(|pc| self.is_call(pc))
    }

    /// Looks through frames with frame pointers for code of the VM's.
    fn by_frame_pointer(&mut self, at_most: usize, otherwise: Cause) -> Step {
        match self.caller_by_frame_pointer(at_most) {
            Some([pc, sp, fp]) => self.to(pc, sp, fp),
            None => Step::Broken(otherwise),
        }
    }

    fn caller_by_frame_pointer(&self, at_most: usize) -> Option<[usize; 3]> {
        let (mut low, mut frame) = (self.sp, self.fp);
        for _ in 0..at_most {
            if frame < low || frame >= self.limit || !frame.is_multiple_of(8) {
                break;
            }
            let (pc, next) = (word(frame + 8)?, word(frame)?);
            if self.layout.is_code(pc) {
                return Some([pc, frame + 16, next]);
            }
            if let Some(pc) = word(frame + 16).filter(|code| pc == ENTRY_COOKIE && self.layout.is_code(*code)) {
                return Some([pc, frame + 24, next]);
            }
            (low, frame) = (frame + 16, next);
        }
        None
    }

    /// Native code: only at the leaf, for what Java calls out to leaves an anchor.
    pub fn native(&mut self) -> Step {
        if !self.leaf {
            return Step::Broken(Cause::Native);
        }
        if !self.stack.push(RawFrame::native(self.pc as u64)) {
            return Step::End;
        }
        self.out_of_native()
    }

    /// From native code, or code that it called, to the Java code that called it, if any.
    fn out_of_native(&mut self) -> Step {
        if self.java_thread == 0 {
            return Step::End;
        }
        match self.anchored(self.java_thread + self.layout.anchor) {
            Step::On => return Step::On,
            // Java code that calls out without an anchor calls a leaf.
            Step::End | Step::Broken(_) => {}
        }
        let caller = self.native_caller();
        // A handler lies below whatever the frame pointers lead to.
        let end = caller.map_or(self.limit, |[_, sp, _]| sp);
        if let Some(fault) = self.fault(end) {
            (self.pc, self.sp, self.fp, self.interrupted) = (fault.pc, fault.sp, fault.fp, fault);
            return Step::On;
        }
        let on_top = || word(self.sp).filter(|pc| self.layout.is_code(*pc) && instructions_signal::follows_call(*pc));
        match caller.or_else(|| Some([on_top()?, self.sp + 8, self.fp])) {
            Some([pc, sp, fp]) => self.to(pc, sp, fp),
            // No Java frame is there: the thread runs code of the VM's, or of its own.
            None => Step::End,
        }
    }

    /// Who called a native function without an anchor: at its edges by what is on top of the stack, else by frame pointers.
    fn native_caller(&self) -> Option<[usize; 3]> {
        let returns = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        let at_edge = match instructions_signal::native_edge(self.pc) {
            Some(Built::Nothing) => returns(self.sp).map(|pc| [pc, self.sp + 8, self.fp]),
            Some(Built::Pushed) => returns(self.sp + 8).and_then(|pc| Some([pc, self.sp + 16, word(self.sp)?])),
            _ => None,
        };
        at_edge.or_else(|| self.caller_by_frame_pointer(MAX_NATIVE_FRAMES))
    }

    /// What Java code executed when it faulted, as null checks and full stacks do, if a handler of that runs: its frame is
    /// looked for word by word, for handlers have no frame pointers. Words that handlers before it left are passed by.
    #[cold]
    fn fault(&self, end: usize) -> Option<Registers> {
        let returns_to = Some(guarded::signal_trampoline()).filter(|code| *code != 0 && guarded::is_in_place())?;
        // A handler that returns has taken the word off the stack, which is still there.
        let words = (self.sp.checked_sub(8)?..end).step_by(8).take(MAX_HANDLER_WORDS);
        words
            .filter(|at| word(*at) == Some(returns_to))
            .filter_map(registers_signal::at_fault)
            .find(|fault| fault.sp > self.sp && fault.sp < self.limit && self.layout.is_code(fault.pc))
    }

    /// To the last Java frame that an anchor tells of.
    pub fn anchored(&mut self, anchor: usize) -> Step {
        let layout = self.layout;
        let Some(sp) = word(anchor.wrapping_add(layout.anchor_sp)) else { return Step::Broken(Cause::Anchor) };
        if sp == 0 {
            return Step::End;
        }
        let told = word(anchor.wrapping_add(layout.anchor_pc)).filter(|pc| *pc != 0);
        let (Some(pc), Some(fp)) =
            (told.or_else(|| word(sp.checked_sub(8)?)), word(anchor.wrapping_add(layout.anchor_fp)))
        else {
            return Step::Broken(Cause::Anchor);
        };
        if sp < self.sp || sp >= self.limit {
            return Step::Broken(Cause::Anchor);
        }
        self.to(pc, sp, fp)
    }

    /// To the caller of an interpreted frame that deoptimization has made and not filled: it has its links, no position on the
    /// operand stack and no method yet (`SharedRuntime::generate_deopt_blob`, JDK 17 to 25: "make it walkable"). The method is
    /// unknown until `Deoptimization::unpack_frames` has written it, so the frame is left out.
    #[cold]
    pub fn over_unfilled(&mut self) -> Option<Step> {
        let frame = self.fp;
        let is_unfilled = !self.leaf && word(frame.checked_sub(LAST_SP)?)? == 0;
        let (pc, sp, fp) = (word(frame + 8)?, word(frame.checked_sub(SENDER_SP)?)?, word(frame)?);
        let is_linked = self.layout.is_code(pc) && sp > frame + 8 && sp < self.limit && sp.is_multiple_of(8);
        (is_unfilled && is_linked).then(|| self.to(pc, sp, fp))
    }

    /// A call from native code into Java: its wrapper tells which Java frame called that native code, if any.
    pub fn called_into(&mut self) -> Step {
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).and_then(word);
        match wrapper {
            Some(wrapper) if self.fp >= self.sp && self.fp < self.limit => {
                self.anchored(wrapper.wrapping_add(self.layout.wrapper_anchor))
            }
            _ => Step::Broken(Cause::Anchor),
        }
    }

    /// The caller of a virtual thread's frame lies in the heap; the frames that carry the virtual thread are below it.
    pub fn rest_in_heap(&mut self) -> Step {
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
