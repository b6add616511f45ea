//! Steps of the stack walker over frames that are not Java methods. These are stubs, native code with a frame anchor, entry
//! frames (calls into Java), and continuation entries of virtual threads. Called only by `walk_signal`, in the handler.

use spanprof_signal::{guarded, RawFrame};

use super::instructions_signal::{self, FrameState};
use super::memory_signal::word;
use super::pc_cache_signal::PcInfo;
use super::raw_frame;
use super::registers_signal::{self, JavaRegisters};
use super::walk_signal::{Cause, StackWalker, StepResult, LAST_SP, SENDER_SP};

/// Upper bound of native frames between the leaf and its Java caller.
const MAX_NATIVE_FRAMES: usize = 32;
/// Upper bound of the stack words of a fault handler and its callees.
const MAX_HANDLER_WORDS: usize = 512;
/// Upper bound of the size of the call stub.
const CALL_STUB_BYTES: usize = 256;
/// The value that the nmethod entry barrier stub pushes between its frame pointer and its return address.
const ENTRY_COOKIE: usize = usize::MAX;

impl StackWalker<'_, '_> {
    /// Steps over a stub.
    pub fn stub(&mut self, info: &PcInfo) -> StepResult {
        if !self.stack.push(raw_frame::stub(self.pc)) {
            return StepResult::End;
        }
        if !self.leaf {
            return match info.frame_bytes {
                0 => self.caller_of_frameless_stub(),
                frame_bytes => self.skip_frame(frame_bytes),
            };
        }
        if self.is_in_call_stub() {
            return self.entry_frame();
        }
        let link = registers_signal::link(&self.interrupted).filter(|pc| self.layout.is_code(*pc));
        if let Some(return_to) = link.filter(|_| info.frame_bytes == 0 || info.before_frame) {
            return self.set_caller(return_to, self.sp, self.fp);
        }
        if instructions_signal::is_c2i_adapter(self.pc) {
            let sender_sp = Some(self.interrupted.bcp).filter(|sp| self.is_sp(*sp));
            let in_register = self.saved_return().map(|pc| (pc, self.sp));
            if let Some((return_to, sp)) = in_register.or_else(|| Some((self.caller_on_top()?, self.sp + 8))) {
                return self.set_caller(return_to, sender_sp.unwrap_or(sp), self.fp);
            }
        }
        let frame_state = instructions_signal::prologue(self.pc).or_else(|| instructions_signal::epilogue(self.pc));
        let return_address_offset = match frame_state {
            Some(FrameState::NotBuilt) => Some(Some(0)),
            Some(FrameState::FpPushed) => Some(Some(8)),
            _ => instructions_signal::return_address_offset(self.pc),
        };
        let return_at = match return_address_offset {
            Some(Some(offset)) => self.sp.checked_add(offset),
            Some(None) => self.fp.checked_add(8).filter(|_| self.fp >= self.sp),
            None if info.frame_bytes > 0 && !info.before_frame => return self.skip_frame(info.frame_bytes),
            None => return self.caller_of_opaque_stub(info),
        };
        let Some((at, return_to)) = return_at.and_then(|at| Some((at, word(at)?))) else {
            // The stub's frame, which its last instructions remove, is not built yet.
            return self.caller_of_opaque_stub(info);
        };
        if !self.layout.is_code(return_to) {
            // The VM or a native function called the stub, or the instructions were followed wrongly.
            let is_call = instructions_signal::follows_call(return_to);
            return if is_call { self.caller_of_native_code() } else { self.caller_of_opaque_stub(info) };
        }
        // A stub that has saved the caller's frame pointer restores it right before it returns.
        let saved_fp_at = at
            .checked_sub(8)
            .filter(|saved_fp_at| frame_state == Some(FrameState::FpPushed) || *saved_fp_at == self.fp);
        let fp = saved_fp_at.and_then(word).unwrap_or(self.fp);
        self.set_caller(return_to, at + 8, fp)
    }

    /// The caller of a stub whose code cannot be followed to its end.
    fn caller_of_opaque_stub(&mut self, info: &PcInfo) -> StepResult {
        // A complete frame ends 16-byte aligned; during the call the stack pointer is not aligned yet.
        let has_frame = info.frame_bytes >= 16 && self.sp.is_multiple_of(16) && info.frame_bytes.is_multiple_of(16);
        if has_frame && self.sp.checked_add(info.frame_bytes - 8).is_some_and(|at| self.is_call_at(at)) {
            return self.skip_frame(info.frame_bytes);
        }
        if let Some(return_to) = self.caller_on_top() {
            return self.set_caller(return_to, self.sp + 8, self.fp);
        }
        match self.saved_return() {
            // Interpreted callers are walked by their frame pointer.
            Some(return_to) => self.set_caller(return_to, self.sp, self.fp),
            None => self.follow_frame_pointers(1, Cause::Stub),
        }
    }

    /// The caller of an i2c or c2i adapter while it holds the return address in a register to move the arguments.
    fn saved_return(&self) -> Option<usize> {
        Some(self.interrupted.saved_return).filter(|pc| self.is_call(*pc))
    }

    fn caller_on_top(&self) -> Option<usize> {
        word(self.sp).filter(|pc| self.is_call(*pc))
    }

    /// The caller of a frameless stub during a call that the stub makes. The stub pops its saved words and, where it
    /// forwards an exception, also its own return address.
    fn caller_of_frameless_stub(&mut self) -> StepResult {
        let above = instructions_signal::return_address_offset(self.pc)
            .flatten()
            .and_then(|offset| self.sp.checked_add(offset));
        let return_at = above.into_iter().flat_map(|at| [at, at - 8]).find(|at| *at >= self.sp && self.is_call_at(*at));
        match return_at.and_then(|at| Some((word(at)?, at + 8))) {
            Some((return_to, sp)) => self.set_caller(return_to, sp, self.fp),
            None => self.follow_frame_pointers(1, Cause::Stub),
        }
    }

    /// Whether `pc` is in the call stub with its frame built: the first field of the `JavaCallWrapper` is the thread.
    fn is_in_call_stub(&self) -> bool {
        let is_near = self.pc.abs_diff(self.layout.call_stub_return) < CALL_STUB_BYTES;
        let has_frame = is_near && self.fp >= self.sp && self.fp < self.limit;
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).filter(|_| has_frame).and_then(word);
        let is_passed = |wrapper: &usize| *wrapper > self.fp && *wrapper < self.limit;
        self.java_thread != 0 && wrapper.filter(is_passed).and_then(word) == Some(self.java_thread)
    }

    /// Whether `pc` is a return address in the code cache.
    fn is_call(&self, pc: usize) -> bool {
        self.layout.is_code(pc) && (self.layout.is_interpreter(pc) || instructions_signal::follows_call(pc))
    }

    fn is_call_at(&self, at: usize) -> bool {
        word(at).is_some_and(|pc| self.is_call(pc))
    }

    /// Follows frame pointers to the first frame in the code cache.
    fn follow_frame_pointers(&mut self, max_frames: usize, cause: Cause) -> StepResult {
        match self.caller_by_frame_pointer(max_frames) {
            Some([pc, sp, fp]) => self.set_caller(pc, sp, fp),
            None => StepResult::Broken(cause),
        }
    }

    fn caller_by_frame_pointer(&self, max_frames: usize) -> Option<[usize; 3]> {
        let (mut low, mut frame) = (self.sp, self.fp);
        for _ in 0..max_frames {
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

    /// Native code, at the leaf only: native calls from Java leave a frame anchor.
    pub fn native_frame(&mut self) -> StepResult {
        if !self.leaf {
            return StepResult::Broken(Cause::Native);
        }
        if !self.stack.push(RawFrame::native(self.pc as u64)) {
            return StepResult::End;
        }
        self.caller_of_native_code()
    }

    /// The Java caller of native code, if any.
    fn caller_of_native_code(&mut self) -> StepResult {
        if self.java_thread == 0 {
            return StepResult::End;
        }
        match self.resume_at_anchor(self.java_thread + self.layout.anchor) {
            StepResult::Continue => return StepResult::Continue,
            // Java calls leaf functions without an anchor.
            StepResult::End | StepResult::Broken(_) => {}
        }
        let caller = self.native_caller();
        // A signal handler's frame lies below the caller found by frame pointers.
        let end = caller.map_or(self.limit, |[_, sp, _]| sp);
        if let Some(fault) = self.registers_at_fault(end) {
            (self.pc, self.sp, self.fp, self.interrupted) = (fault.pc, fault.sp, fault.fp, fault);
            return StepResult::Continue;
        }
        let on_top = || word(self.sp).filter(|pc| self.layout.is_code(*pc) && instructions_signal::follows_call(*pc));
        match caller.or_else(|| Some([on_top()?, self.sp + 8, self.fp])) {
            Some([pc, sp, fp]) => self.set_caller(pc, sp, fp),
            // No Java frame: the thread runs code of the VM, or its own.
            None => StepResult::End,
        }
    }

    /// The caller of a native function without an anchor: by the top of the stack in its prologue and epilogue, else by
    /// frame pointers.
    fn native_caller(&self) -> Option<[usize; 3]> {
        let return_address = |at: usize| word(at).filter(|pc| self.layout.is_code(*pc));
        let in_edge = match instructions_signal::native_frame_state(self.pc) {
            Some(FrameState::NotBuilt) => return_address(self.sp).map(|pc| [pc, self.sp + 8, self.fp]),
            Some(FrameState::FpPushed) => {
                return_address(self.sp + 8).and_then(|pc| Some([pc, self.sp + 16, word(self.sp)?]))
            }
            _ => None,
        };
        in_edge.or_else(|| self.caller_by_frame_pointer(MAX_NATIVE_FRAMES))
    }

    /// The registers of Java code that faulted (null checks, stack overflow), while the VM's fault handler runs. Signal
    /// handlers have no frame pointers, so the stack is searched word by word for the signal frame. Stale words of earlier
    /// handlers are skipped.
    #[cold]
    fn registers_at_fault(&self, end: usize) -> Option<JavaRegisters> {
        let returns_to = Some(guarded::signal_trampoline()).filter(|code| *code != 0 && guarded::is_in_place())?;
        // A returning handler has popped the word, which is still in memory.
        let words = (self.sp.checked_sub(8)?..end).step_by(8).take(MAX_HANDLER_WORDS);
        words
            .filter(|at| word(*at) == Some(returns_to))
            .filter_map(registers_signal::at_fault)
            .find(|fault| fault.sp > self.sp && fault.sp < self.limit && self.layout.is_code(fault.pc))
    }

    /// Continues at the last Java frame of a frame anchor.
    pub fn resume_at_anchor(&mut self, anchor: usize) -> StepResult {
        let layout = self.layout;
        let Some(sp) = word(anchor.wrapping_add(layout.anchor_sp)) else { return StepResult::Broken(Cause::Anchor) };
        if sp == 0 {
            return StepResult::End;
        }
        let anchor_pc = word(anchor.wrapping_add(layout.anchor_pc)).filter(|pc| *pc != 0);
        let (Some(pc), Some(fp)) =
            (anchor_pc.or_else(|| word(sp.checked_sub(8)?)), word(anchor.wrapping_add(layout.anchor_fp)))
        else {
            return StepResult::Broken(Cause::Anchor);
        };
        if sp < self.sp || sp >= self.limit {
            return StepResult::Broken(Cause::Anchor);
        }
        self.set_caller(pc, sp, fp)
    }

    /// Skips a skeletal interpreter frame of deoptimization. It has its links, but no expression stack position and no
    /// method yet (`SharedRuntime::generate_deopt_blob`, JDK 17 to 25: "make it walkable"). `Deoptimization::unpack_frames`
    /// writes the method later, so the frame is left out.
    #[cold]
    pub fn skip_skeletal_frame(&mut self) -> Option<StepResult> {
        let frame = self.fp;
        let is_skeletal = !self.leaf && word(frame.checked_sub(LAST_SP)?)? == 0;
        let (pc, sp, fp) = (word(frame + 8)?, word(frame.checked_sub(SENDER_SP)?)?, word(frame)?);
        let is_linked = self.layout.is_code(pc) && sp > frame + 8 && sp < self.limit && sp.is_multiple_of(8);
        (is_skeletal && is_linked).then(|| self.set_caller(pc, sp, fp))
    }

    /// Steps over an entry frame: the anchor in its `JavaCallWrapper` leads to the Java frame that called the native code,
    /// if any.
    pub fn entry_frame(&mut self) -> StepResult {
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).and_then(word);
        match wrapper {
            Some(wrapper) if self.fp >= self.sp && self.fp < self.limit => {
                self.resume_at_anchor(wrapper.wrapping_add(self.layout.wrapper_anchor))
            }
            _ => StepResult::Broken(Cause::Anchor),
        }
    }

    /// Steps over the return to a caller in a heap stack chunk. The carrier thread's frames follow the virtual thread's.
    pub fn continuation_return(&mut self) -> StepResult {
        if !self.stack.push(raw_frame::IN_HEAP) {
            return StepResult::End;
        }
        let entry = self.layout.continuation_entry.and_then(|at| word(self.java_thread.checked_add(at)?));
        match entry {
            Some(sp) if self.layout.continuation_return != 0 && sp >= self.sp && sp < self.limit => {
                self.set_caller(self.layout.continuation_return, sp, self.fp)
            }
            _ => StepResult::End,
        }
    }
}
