//! Steps of the stack walker over compiled code: an nmethod's frame has a fixed size, its methods come from the debug info.
//! Called only by `walker`, in the handler.
//!
//! # Versions
//! Upstream: `hotspot/share/code/nmethod.hpp`, `hotspot/share/runtime/frame.cpp`, `hotspot/share/runtime/deoptimization.cpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | a deoptimized caller returns to the deopt handler; its pc is in the frame at `_orig_pc_offset` | `step_uncached` |
//! | 8–25 | to-interpreter stubs of compiled callers: `mov rbx, method; jmp` | `is_to_interpreter_stub` |
//! | 21–25 | frames below a continuation may be in heap stack chunks | `BlobKind::ContinuationStub` |
//! | 8 | mathematical functions keep words on top of the frame | `stack_pointer::temporary_bytes` |
//! | Graal 22–25 | code without debug info does not save the frame pointer (`AMD64HotSpotLIRGenerator`, `SaveRbp`) | `skip_compiled_frame` |

use std::sync::atomic::Ordering;

use spanprof_signal::RawFrame;

use super::code_heap::{blob_of, code_begin, frame_bytes, frame_complete, kind_of};
use super::environment::{BlobKind, WalkEnvironment, WalkFeature};
use super::frame_state::FrameState;
use super::instructions;
use super::pc_cache::PcInfo;
use super::registers;
use super::scopes::{decode, root_method, DecodeResult, Inlined};
use super::stack_pointer;
use super::walker::{Cause, StackWalker, StepResult, CACHE_MISSES};

impl<E: WalkEnvironment> StackWalker<'_, '_, E> {
    /// A step at a program counter that is not in the cache.
    #[cold]
    pub fn step_uncached(&mut self) -> Option<StepResult> {
        let (layout, pc) = (self.layout, self.pc);
        let blob = blob_of(self.memory, layout, pc)?;
        let kind = kind_of(self.memory, layout, blob)?;
        let begin = code_begin(self.memory, layout, blob)?;
        let before_frame = pc < frame_complete(self.memory, layout, blob, begin)?;
        let frame_bytes = frame_bytes(self.memory, layout, blob)?;
        let mut info = PcInfo { blob, compile_id: 0, frame_bytes, before_frame };
        match kind {
            BlobKind::Compiled | BlobKind::NativeWrapper => {}
            BlobKind::ContinuationStub if !self.leaf => return Some(self.continuation_return()),
            BlobKind::ContinuationStub | BlobKind::Stub => return Some(self.stub(&info, begin)),
        }
        if self.leaf && instructions::is_to_interpreter_stub(self.memory, pc) {
            // `pc` is in the caller's to-interpreter stub. The called method has no frame yet.
            return Some(match self.word(self.sp).filter(|pc| layout.is_code(*pc)) {
                Some(return_to) => self.set_caller(return_to, self.sp + 8, self.fp),
                None => StepResult::Broken(Cause::Code),
            });
        }
        CACHE_MISSES.fetch_add(1, Ordering::Relaxed);
        info.compile_id = self.memory.int(blob + layout.compile_id)? as u32;
        let mut inlined = Inlined::new();
        if self.leaf && before_frame {
            if root_method(self.memory, layout, blob, 0, &mut inlined) == DecodeResult::Failed {
                return None;
            }
            self.memory.insert_pc(pc, &info, inlined.frames());
            return Some(self.compiled_frame(&info, inlined.frames()));
        }
        let decoded = decode(self.memory, layout, blob, begin, pc, self.leaf, &mut inlined);
        if decoded == DecodeResult::Failed {
            return None;
        }
        let mut is_cacheable = decoded != DecodeResult::MethodOnly || kind == BlobKind::NativeWrapper || self.leaf;
        // `pc` may be in an out-of-line GC barrier stub, which saves registers on top of the frame while it calls the VM.
        let may_be_slow_path = decoded == DecodeResult::MethodOnly
            || (decoded == DecodeResult::NextPcDesc && !self.leaf)
            || instructions::releases_stack(self.memory, pc);
        let slow_path = if may_be_slow_path { stack_pointer::slow_path(self.memory, pc, begin) } else { None };
        if let Some(slow_path) =
            slow_path.filter(|slow_path| decoded == DecodeResult::MethodOnly || slow_path.saved_bytes > 0)
        {
            self.memory.met(WalkFeature::SlowPath);
            info.frame_bytes += slow_path.saved_bytes;
            decode(self.memory, layout, blob, begin, slow_path.resume_pc, self.leaf, &mut inlined);
            is_cacheable = true;
        } else if decoded == DecodeResult::MethodOnly && kind == BlobKind::Compiled && !self.leaf {
            // Deoptimized code returns to the deopt handler; its original pc is stored in the frame.
            let saved_pc =
                self.memory.int(blob + layout.original_pc).and_then(|at| self.word(self.sp.checked_add(at as usize)?));
            if let Some(original) = saved_pc.filter(|at| *at != pc && blob_of(self.memory, layout, *at) == Some(blob)) {
                self.memory.met(WalkFeature::OriginalPc);
                decode(self.memory, layout, blob, begin, original, false, &mut inlined);
            }
        } else {
            let argument_bytes = if self.leaf {
                instructions::pushed_argument_bytes(self.memory, pc)
            } else {
                instructions::stack_argument_bytes(self.memory, pc)
            };
            info.frame_bytes += match argument_bytes {
                0 if decoded != DecodeResult::Exact && kind == BlobKind::Compiled => {
                    stack_pointer::temporary_bytes(self.memory, pc, inlined.range_end(), info.frame_bytes)
                }
                bytes => bytes,
            };
        }
        if is_cacheable {
            self.memory.insert_pc(pc, &info, inlined.frames());
        }
        Some(self.compiled_frame(&info, inlined.frames()))
    }

    #[inline]
    pub fn compiled_frame(&mut self, info: &PcInfo, frames: &[RawFrame]) -> StepResult {
        if let Some(history) = self.history {
            history.record(self.compiled, self.pc, frames.len(), info.blob + self.layout.compile_id);
            self.compiled += 1;
        }
        self.memory.met(if frames.len() > 1 { WalkFeature::Inlined } else { WalkFeature::Compiled });
        for frame in frames {
            if !self.stack.push(*frame) {
                return StepResult::End;
            }
        }
        self.has_java = true;
        if self.leaf {
            if let Some((return_to, sp, fp)) = self.caller_of_partial_frame(info) {
                self.memory.met(WalkFeature::PartialFrame);
                return self.set_caller(return_to, sp, fp);
            }
        }
        self.skip_compiled_frame(info.frame_bytes)
    }

    /// Steps to the caller of compiled code. The caller's frame pointer is in the last word of the frame, or still in the register if
    /// the code calls nothing and was compiled by Graal. It matters for an interpreted caller, whose frame is the next one.
    #[inline]
    fn skip_compiled_frame(&mut self, frame_bytes: usize) -> StepResult {
        let (is_leaf, in_register) = (self.leaf, self.fp);
        let result = self.skip_frame(frame_bytes);
        if is_leaf && self.layout.is_interpreter(self.pc) && in_register != self.fp {
            let is_first = in_register < self.fp || self.interpreted_method(self.fp).is_none();
            if is_first && self.interpreted_method(in_register).is_some() {
                self.fp = in_register;
            }
        }
        result
    }

    /// The caller of the leaf, if the frame of the leaf is not yet built, partly built, or already removed.
    fn caller_of_partial_frame(&self, info: &PcInfo) -> Option<(usize, usize, usize)> {
        let return_address = |at: usize| self.word(at).filter(|pc| self.layout.is_code(*pc));
        if let Some(return_to) = registers::link(&self.interrupted).filter(|_| info.before_frame) {
            return Some((return_to, self.sp, self.fp));
        }
        let after_push = || Some((return_address(self.sp.checked_add(8)?)?, self.sp + 16, self.word(self.sp)?));
        let no_frame = || Some((return_address(self.sp)?, self.sp + 8, self.fp));
        let state = if info.before_frame {
            instructions::prologue(self.memory, self.pc)
        } else {
            Some(instructions::epilogue(self.memory, self.pc)?)
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
}
