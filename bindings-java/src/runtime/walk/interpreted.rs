//! Steps of the stack walker over the interpreter: a frame has its links and its method at fixed distances from the frame
//! pointer. Called only by `walker`, in the handler.
//!
//! # Versions
//! Upstream: `hotspot/cpu/x86/frame_x86.hpp`, `hotspot/share/interpreter/abstractInterpreter.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | words below the frame pointer: 1 sender sp, 2 last sp, 3 method | `SENDER_SP`, `LAST_SP`, `METHOD` |
//! | after 8, by 11 | the bytecode pointer moves from word 7 to word 8 | `VmLayout::interpreted_bcp` |
//! | 8–25 | skeletal frames of deoptimization have links and no method | `skip_skeletal_frame` |

use super::environment::{WalkEnvironment, WalkFeature};
use super::instructions;
use super::method::Method;
use super::registers::JavaRegisters;
use super::walker::{Cause, StackWalker, StepResult};
use crate::runtime::vm::raw_frame;

/// Upper bound of an interpreted frame with its expression stack and monitors.
const MAX_INTERPRETED_BYTES: usize = 1 << 20;
/// Slots of an interpreted frame, below its frame pointer.
const SENDER_SP: usize = 8;
const LAST_SP: usize = 16;
const METHOD: usize = 24;
/// A return address, 255 arguments and an alignment word.
const MAX_ARGUMENT_BYTES: usize = (1 + 255 + 1) * 8;
/// Size of an interpreted frame before its method is stored.
const MAX_PARTIAL_BYTES: usize = 16;

impl<E: WalkEnvironment> StackWalker<'_, '_, E> {
    /// Steps over an interpreted frame.
    pub fn interpreted_frame(&mut self) -> StepResult {
        if let Some((return_to, sp)) = self.caller_of_intrinsic() {
            return self.set_caller(return_to, sp, self.fp);
        }
        let layout = self.layout;
        let frame = self.fp;
        let is_valid = self.is_interpreted_frame(frame) && !self.is_at_interpreter_edge();
        let Some(method) = (if is_valid { self.interpreted_method(frame) } else { None }) else {
            let skipped = if is_valid { self.skip_skeletal_frame() } else { None };
            return skipped.unwrap_or_else(|| self.partial_interpreted_frame());
        };
        self.memory.met(WalkFeature::Interpreted);
        let in_register = if self.leaf { method.index_of(layout, self.interrupted.bcp) } else { None };
        let in_frame =
            || self.word(frame.checked_sub(layout.interpreted_bcp)?).and_then(|at| method.index_of(layout, at));
        let index = in_register.or_else(in_frame).unwrap_or(raw_frame::NO_INDEX);
        if !self.stack.push(method.frame(self.memory, layout, index)) {
            return StepResult::End;
        }
        self.has_java = true;
        match (self.word(frame + 8), self.word(frame - SENDER_SP), self.word(frame)) {
            (Some(pc), Some(sp), Some(fp)) if sp > frame => self.set_caller(pc, sp, fp),
            _ => StepResult::Broken(Cause::Interpreter),
        }
    }

    /// The caller of an intrinsic such as `CRC32C.updateBytes` or `Math.sin`, below the stub that it calls: its return address
    /// and its stack pointer. The interpreter enters intrinsics without a frame. If the caller is compiled, the frame pointer
    /// belongs to an interpreted method further up.
    fn caller_of_intrinsic(&self) -> Option<(usize, usize)> {
        if self.leaf || self.has_java {
            return None;
        }
        let return_at = self.sp.checked_add(instructions::intrinsic_return_offset(self.memory, self.pc)?)?;
        let sender_sp = self.interrupted.bcp;
        let has_arguments = sender_sp > return_at && sender_sp - return_at <= MAX_ARGUMENT_BYTES;
        let is_caller = |pc: &usize| has_arguments && self.is_sp(sender_sp) && self.layout.is_code(*pc);
        self.word(return_at).filter(is_caller).map(|return_to| (return_to, sender_sp))
    }

    /// Whether a frame pointer is that of an interpreted frame at the top of the stack.
    fn is_interpreted_frame(&self, frame: usize) -> bool {
        frame >= self.sp
            && frame < self.limit
            && (METHOD..MAX_INTERPRETED_BYTES).contains(&(frame - self.sp))
            && frame.is_multiple_of(8)
    }

    /// The method of the interpreted frame at the top of the stack, if this is its frame pointer.
    pub fn interpreted_method(&self, frame: usize) -> Option<Method> {
        let method = if self.is_interpreted_frame(frame) { self.word(frame - METHOD) } else { None };
        Method::at(self.memory, self.layout, method?)
    }

    /// Whether the registers show that the interpreter enters or leaves a method. The frame pointer may then belong to an
    /// interpreted method further up, if compiled frames in between did not change it.
    fn is_at_interpreter_edge(&self) -> bool {
        let JavaRegisters { bcp, method, saved_return, fp, .. } = self.interrupted;
        // Callees and native methods leave both registers unchanged too, but then no return address is found.
        let has_return_address =
            || [self.word(self.sp), Some(saved_return)].into_iter().flatten().any(|pc| self.layout.is_code(pc));
        let is_built =
            || self.word(fp.wrapping_sub(METHOD)) == Some(method) && self.word(fp.wrapping_sub(SENDER_SP)) == Some(bcp);
        let enters = || {
            self.is_sp(bcp)
                && has_return_address()
                && Method::at(self.memory, self.layout, method).is_some()
                && !is_built()
        };
        self.leaf && (self.is_leaving_method() || enters())
    }

    /// Whether the interpreter is returning: `bcp` then holds the return address and `method` the caller's stack pointer.
    fn is_leaving_method(&self) -> bool {
        self.layout.is_code(self.interrupted.bcp) && self.is_sp(self.interrupted.method)
    }

    /// Steps over the interpreter before its frame is built, or after it is removed.
    fn partial_interpreted_frame(&mut self) -> StepResult {
        self.memory.met(WalkFeature::PartialInterpretedFrame);
        let return_address = |at: usize| self.word(at).filter(|pc| self.layout.is_code(*pc));
        if !self.leaf {
            // The lookup of the exception handler: return address and exception are on the stack, possibly below an
            // alignment word that is popped again.
            let address =
                if instructions::releases_stack(self.memory, self.pc) { self.sp.wrapping_add(8) } else { self.sp };
            return return_address(address)
                .map_or(StepResult::Broken(Cause::Interpreter), |pc| self.set_caller(pc, address + 16, self.fp));
        }
        let JavaRegisters { bcp, method, saved_return, .. } = self.interrupted;
        if self.is_leaving_method() {
            return self.set_caller(bcp, method, self.fp);
        }
        // The first words of the frame exist: the caller's stack pointer, then one or two more.
        let is_partial = self.fp.wrapping_sub(self.sp) <= MAX_PARTIAL_BYTES && self.fp.is_multiple_of(8);
        let sender = self
            .fp
            .checked_sub(SENDER_SP)
            .and_then(|at| self.word(at))
            .filter(|sp| *sp >= self.fp + 16 && *sp < self.limit);
        if let (true, Some(return_to), Some(sp)) = (is_partial, self.fp.checked_add(8).and_then(return_address), sender)
        {
            if !self.push_entered_method() {
                return StepResult::End;
            }
            return match self.word(self.fp) {
                Some(fp) => self.set_caller(return_to, sp, fp),
                None => StepResult::Broken(Cause::Interpreter),
            };
        }
        // The caller's stack pointer is in a register: `bcp` on entry, `method` on return. The return address is popped
        // while locals are allocated, then pushed again.
        let sp = [bcp, method].into_iter().find(|sp| self.is_sp(*sp));
        let on_top = self.word(self.sp).filter(|_| sp != Some(self.sp));
        let in_register = Some(saved_return).filter(|_| sp.is_some());
        // Mathematical functions of Java 8 are entered without a frame, and keep other words on top of their return address.
        let below_sender = Some(bcp).filter(|sp| self.is_sp(*sp)).and_then(|sp| self.word(sp.checked_sub(8)?));
        let candidates = [on_top, in_register, below_sender];
        let is_code = |pc: &usize| self.layout.is_code(*pc);
        // A deoptimized caller has no call before its return address.
        let return_to = candidates.into_iter().flatten().find(|pc| self.is_call(*pc));
        let Some(return_to) = return_to.or_else(|| on_top.filter(is_code)).or_else(|| in_register.filter(is_code))
        else {
            return StepResult::Broken(Cause::Interpreter);
        };
        if !self.push_entered_method() {
            return StepResult::End;
        }
        self.set_caller(return_to, sp.unwrap_or(self.sp.wrapping_add(8)), self.fp)
    }

    /// Pushes the method that the interpreter enters; false when the stack buffer is full.
    fn push_entered_method(&mut self) -> bool {
        let Some(method) = Method::at(self.memory, self.layout, self.interrupted.method) else { return true };
        self.has_java = true;
        self.stack.push(method.frame(self.memory, self.layout, raw_frame::NO_INDEX))
    }

    /// Skips a skeletal interpreter frame of deoptimization. It has its links, but no expression stack position and no
    /// method yet (`SharedRuntime::generate_deopt_blob`, JDK 8 to 25: "Make it walkable"). `Deoptimization::unpack_frames`
    /// writes the method later, so the frame is left out.
    #[cold]
    fn skip_skeletal_frame(&mut self) -> Option<StepResult> {
        let frame = self.fp;
        let is_skeletal = !self.leaf && self.word(frame.checked_sub(LAST_SP)?)? == 0;
        let (pc, sp, fp) = (self.word(frame + 8)?, self.word(frame.checked_sub(SENDER_SP)?)?, self.word(frame)?);
        let is_linked = self.layout.is_code(pc) && sp > frame + 8 && sp < self.limit && sp.is_multiple_of(8);
        if is_skeletal && is_linked {
            self.memory.met(WalkFeature::SkeletalFrame);
        }
        (is_skeletal && is_linked).then(|| self.set_caller(pc, sp, fp))
    }
}
