//! Steps of the stack walker over native code with a frame anchor, entry frames (calls into Java), and continuation entries of
//! virtual threads. Called only by the other files of the walker, in the handler.
//!
//! # Versions
//! Upstream: `hotspot/share/runtime/javaFrameAnchor.hpp`, `hotspot/share/runtime/javaCalls.hpp` (`JavaCallWrapper`),
//! `hotspot/share/runtime/continuationEntry.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 17–25 | an anchor without a pc: the return address is below its sp | `resume_at_anchor` |
//! | 17–25 | the call wrapper is at HotSpot's `entry_frame_call_wrapper_offset` in an entry frame | `entry_frame` |
//! | 21 | `ContinuationEntry` is not exported: the carrier thread's frames are absent | `continuation_return` |

use spanprof_signal::RawFrame;

use super::environment::{WalkEnvironment, WalkFeature};
use super::frame_state::FrameState;
use super::instructions;
use super::registers::{self, JavaRegisters};
use super::walker::{Cause, StackWalker, StepResult};
use crate::runtime::vm::raw_frame;

/// Upper bound of native frames between the leaf and its Java caller.
const MAX_NATIVE_FRAMES: usize = 32;
/// Upper bound of the stack words of a fault handler and its callees.
const MAX_HANDLER_WORDS: usize = 512;

impl<E: WalkEnvironment> StackWalker<'_, '_, E> {
    /// Native code, at the leaf only: native calls from Java leave a frame anchor.
    pub fn native_frame(&mut self) -> StepResult {
        if !self.leaf {
            return StepResult::Broken(Cause::Native);
        }
        self.memory.met(WalkFeature::Native);
        if !self.stack.push(RawFrame::native(self.pc as u64)) {
            return StepResult::End;
        }
        self.caller_of_native_code()
    }

    /// The Java caller of native code, if any.
    pub fn caller_of_native_code(&mut self) -> StepResult {
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
            self.memory.met(WalkFeature::Fault);
            (self.pc, self.sp, self.fp, self.interrupted) = (fault.pc, fault.sp, fault.fp, fault);
            return StepResult::Continue;
        }
        let on_top =
            || self.word(self.sp).filter(|pc| self.layout.is_code(*pc) && instructions::follows_call(self.memory, *pc));
        match caller.or_else(|| Some([on_top()?, self.sp + 8, self.fp])) {
            Some([pc, sp, fp]) => self.set_caller(pc, sp, fp),
            // No Java frame: the thread runs code of the VM, or its own.
            None => StepResult::End,
        }
    }

    /// The caller of a native function without an anchor: by the top of the stack in its prologue and epilogue, else by
    /// frame pointers.
    fn native_caller(&self) -> Option<[usize; 3]> {
        let return_address = |at: usize| self.word(at).filter(|pc| self.layout.is_code(*pc));
        let in_edge = match instructions::native_frame_state(self.memory, self.pc) {
            Some(FrameState::NotBuilt) => return_address(self.sp).map(|pc| [pc, self.sp + 8, self.fp]),
            Some(FrameState::FpPushed) => {
                return_address(self.sp.wrapping_add(8)).and_then(|pc| Some([pc, self.sp + 16, self.word(self.sp)?]))
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
        let returns_to = self.memory.signal_trampoline()?;
        // A returning handler has popped the word, which is still in memory.
        let words = (self.sp.checked_sub(8)?..end).step_by(8).take(MAX_HANDLER_WORDS);
        words
            .filter(|at| self.word(*at) == Some(returns_to))
            .filter_map(|frame| registers::at_fault(self.memory, frame))
            .find(|fault| fault.sp > self.sp && fault.sp < self.limit && self.layout.is_code(fault.pc))
    }

    /// Continues at the last Java frame of a frame anchor.
    pub fn resume_at_anchor(&mut self, anchor: usize) -> StepResult {
        let layout = self.layout;
        let Some(sp) = self.word(anchor.wrapping_add(layout.anchor_sp)) else {
            return StepResult::Broken(Cause::Anchor);
        };
        if sp == 0 {
            return StepResult::End;
        }
        let anchor_pc = self.word(anchor.wrapping_add(layout.anchor_pc)).filter(|pc| *pc != 0);
        let (Some(pc), Some(fp)) =
            (anchor_pc.or_else(|| self.word(sp.checked_sub(8)?)), self.word(anchor.wrapping_add(layout.anchor_fp)))
        else {
            return StepResult::Broken(Cause::Anchor);
        };
        if sp < self.sp || sp >= self.limit {
            return StepResult::Broken(Cause::Anchor);
        }
        self.memory.met(WalkFeature::Anchor);
        self.set_caller(pc, sp, fp)
    }

    /// Steps over an entry frame: the anchor in its `JavaCallWrapper` leads to the Java frame that called the native code,
    /// if any.
    pub fn entry_frame(&mut self) -> StepResult {
        self.memory.met(WalkFeature::EntryFrame);
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).and_then(|at| self.word(at));
        match wrapper {
            Some(wrapper) if self.fp >= self.sp && self.fp < self.limit => {
                self.resume_at_anchor(wrapper.wrapping_add(self.layout.wrapper_anchor))
            }
            _ => StepResult::Broken(Cause::Anchor),
        }
    }

    /// Steps over the return to a caller in a heap stack chunk. The carrier thread's frames follow the virtual thread's.
    pub fn continuation_return(&mut self) -> StepResult {
        self.memory.met(WalkFeature::FramesInHeap);
        if !self.stack.push(raw_frame::IN_HEAP) {
            return StepResult::End;
        }
        let entry = self.layout.continuation_entry.and_then(|at| self.word(self.java_thread.checked_add(at)?));
        match entry {
            Some(sp) if self.layout.continuation_return != 0 && sp >= self.sp && sp < self.limit => {
                self.set_caller(self.layout.continuation_return, sp, self.fp)
            }
            _ => StepResult::End,
        }
    }
}
