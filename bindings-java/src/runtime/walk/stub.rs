//! Steps of the stack walker over stubs: generated code without methods, mostly without a known frame size. Called only by
//! `walker` and `compiled`, in the handler.
//!
//! # Versions
//! Upstream: `hotspot/share/runtime/stubRoutines.hpp`, `hotspot/cpu/x86/sharedRuntime_x86_64.cpp`. Names are for the drain
//! thread only: the walk follows instructions, so a renamed stub needs no change.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | i2c and c2i adapters share the blob `I2C/C2I adapters` | `is_c2i_adapter`, by its instructions |
//! | 8–25 | the stub of a poll in a loop begins with a word for the return address, which it takes from `JavaThread::_saved_exception_pc` | `polled_at` |
//! | 17 | c2i adapters pop the return address before they store the sender sp; others store it first | `STORES_SENDER_SP` in `instructions` |
//! | 25 | runtime stubs of C1 are named `C1 Runtime …_blob`; in 21 `… Runtime1 stub` | `methods::stub` |
//! | collectors with entry barriers | the barrier stub pushes a cookie between frame pointer and return address | `ENTRY_COOKIE` |

use super::environment::{WalkEnvironment, WalkFeature};
use super::frame_state::FrameState;
use super::instructions;
use super::pc_cache::PcInfo;
use super::registers;
use super::stack_pointer;
use super::walker::{Cause, StackWalker, StepResult};
use crate::runtime::vm::raw_frame;

/// Upper bound of the size of the call stub.
const CALL_STUB_BYTES: usize = 256;
/// The value that the nmethod entry barrier stub pushes between its frame pointer and its return address.
const ENTRY_COOKIE: usize = usize::MAX;

impl<E: WalkEnvironment> StackWalker<'_, '_, E> {
    /// Steps over a stub whose code begins at `begin`.
    pub fn stub(&mut self, info: &PcInfo, begin: usize) -> StepResult {
        self.memory.met(WalkFeature::Stub);
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
        let link = registers::link(&self.interrupted).filter(|pc| self.layout.is_code(*pc));
        if let Some(return_to) = link.filter(|_| info.frame_bytes == 0 || info.before_frame) {
            return self.set_caller(return_to, self.sp, self.fp);
        }
        if let Some((return_to, sp)) = self.polled_at(begin) {
            return self.set_caller(return_to, sp, self.fp);
        }
        if instructions::is_c2i_adapter(self.memory, self.pc) {
            let sender_sp = Some(self.interrupted.bcp).filter(|sp| self.is_sp(*sp));
            let in_register = self.saved_return().map(|pc| (pc, self.sp));
            self.memory.met(WalkFeature::Adapter);
            if let Some((return_to, sp)) = in_register.or_else(|| Some((self.caller_on_top()?, self.sp + 8))) {
                return self.set_caller(return_to, sender_sp.unwrap_or(sp), self.fp);
            }
        }
        let frame_state =
            instructions::prologue(self.memory, self.pc).or_else(|| instructions::epilogue(self.memory, self.pc));
        let return_address_offset = match frame_state {
            Some(FrameState::NotBuilt) => Some(Some(0)),
            Some(FrameState::FpPushed) => Some(Some(8)),
            _ => stack_pointer::return_address_offset(self.memory, self.pc),
        };
        let return_at = match return_address_offset {
            Some(Some(offset)) => self.sp.checked_add(offset),
            Some(None) => self.fp.checked_add(8).filter(|_| self.fp >= self.sp),
            None if info.frame_bytes > 0 && !info.before_frame => return self.skip_frame(info.frame_bytes),
            None => return self.caller_of_opaque_stub(info),
        };
        let Some((at, return_to)) = return_at.and_then(|at| Some((at, self.word(at)?))) else {
            // The stub's frame, which its last instructions remove, is not built yet.
            return self.caller_of_opaque_stub(info);
        };
        // Otherwise the VM or a native function called the stub, or the instructions were followed wrongly.
        if !self.layout.is_code(return_to) && !self.is_native_call(return_to) {
            return self.caller_of_opaque_stub(info);
        }
        // A stub that has saved the caller's frame pointer restores it right before it returns.
        let saved_fp_at = at
            .checked_sub(8)
            .filter(|saved_fp_at| frame_state == Some(FrameState::FpPushed) || *saved_fp_at == self.fp);
        let fp = saved_fp_at.and_then(|at| self.word(at)).unwrap_or(self.fp);
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
            None => self.caller_by_frame_pointer(),
        }
    }

    /// Where compiled code met a safepoint, and its stack pointer: the VM's signal handler continues the thread at the stub that waits
    /// for the end of the safepoint (`SafepointBlob`), which is where a pending signal is delivered.
    fn polled_at(&self, begin: usize) -> Option<(usize, usize)> {
        let stored_at = self.layout.saved_exception_pc.filter(|_| self.java_thread != 0)?;
        let pushed_bytes = instructions::poll_stub_bytes(self.memory, begin, self.pc)?;
        let pc = self.word(self.java_thread + stored_at).filter(|pc| self.layout.is_code(*pc))?;
        Some((pc, self.sp + pushed_bytes))
    }

    /// The caller of an i2c or c2i adapter while it holds the return address in a register to move the arguments.
    fn saved_return(&self) -> Option<usize> {
        Some(self.interrupted.saved_return).filter(|pc| self.is_call(*pc))
    }

    fn caller_on_top(&self) -> Option<usize> {
        self.word(self.sp).filter(|pc| self.is_call(*pc))
    }

    /// The caller of a frameless stub during a call that the stub makes. The stub pops its saved words and, where it
    /// forwards an exception, also its own return address.
    fn caller_of_frameless_stub(&mut self) -> StepResult {
        let above = stack_pointer::return_address_offset(self.memory, self.pc)
            .flatten()
            .and_then(|offset| self.sp.checked_add(offset));
        let return_at =
            above.into_iter().flat_map(|at| [at, at.wrapping_sub(8)]).find(|at| *at >= self.sp && self.is_call_at(*at));
        match return_at.and_then(|at| Some((self.word(at)?, at + 8))) {
            Some((return_to, sp)) => self.set_caller(return_to, sp, self.fp),
            None => self.caller_by_frame_pointer(),
        }
    }

    /// Whether `pc` is in the call stub with its frame built: the first field of the `JavaCallWrapper` is the thread.
    fn is_in_call_stub(&self) -> bool {
        let is_near = self.pc.abs_diff(self.layout.call_stub_return) < CALL_STUB_BYTES;
        let has_frame = is_near && self.fp >= self.sp && self.fp < self.limit;
        let wrapper =
            self.fp.checked_add_signed(self.layout.call_wrapper).filter(|_| has_frame).and_then(|at| self.word(at));
        let is_passed = |wrapper: &usize| *wrapper > self.fp && *wrapper < self.limit;
        self.java_thread != 0 && wrapper.filter(is_passed).and_then(|at| self.word(at)) == Some(self.java_thread)
    }

    /// Whether `pc` is a return address in the code cache.
    pub fn is_call(&self, pc: usize) -> bool {
        self.layout.is_code(pc) && (self.layout.is_interpreter(pc) || instructions::follows_call(self.memory, pc))
    }

    /// Whether `pc` may be a return address in native code.
    fn is_native_call(&self, pc: usize) -> bool {
        let is_in_file = self.memory.unwind_tables().is_none_or(|tables| tables.is_in_file(pc as u64));
        is_in_file && instructions::follows_call(self.memory, pc)
    }

    fn is_call_at(&self, at: usize) -> bool {
        self.word(at).is_some_and(|pc| self.is_call(pc))
    }

    /// The caller in the code cache by the frame pointer; in native code, that of the stub of an upcall.
    fn caller_by_frame_pointer(&mut self) -> StepResult {
        let frame = self.fp;
        let is_frame = self.is_sp(frame);
        let (Some(pc), Some(fp)) = (self.word(frame.wrapping_add(8)).filter(|_| is_frame), self.word(frame)) else {
            return StepResult::Broken(Cause::Stub);
        };
        if self.layout.is_code(pc) || self.is_native_call(pc) {
            return self.set_caller(pc, frame + 16, fp);
        }
        match self.word(frame + 16).filter(|code| pc == ENTRY_COOKIE && self.layout.is_code(*code)) {
            Some(pc) => self.set_caller(pc, frame + 24, fp),
            None => StepResult::Broken(Cause::Stub),
        }
    }
}
