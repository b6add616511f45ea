//! Steps of the stack walker over native code by unwind tables and frame anchors, entry frames (calls into Java), and continuation
//! entries of virtual threads. Called only by the other files of the walker, in the handler.
//!
//! The tables lead from native code to the generated code that called it. The VM's anchor, where there is one, confirms it: the
//! stack pointers differ by at most two words, or a stub lies between. Else the walk continues at the anchor, and a gap stands for the missing frames.
//!
//! # Versions
//! Upstream: `hotspot/share/runtime/javaFrameAnchor.hpp`, `hotspot/share/runtime/javaCalls.hpp` (`JavaCallWrapper`),
//! `hotspot/share/runtime/continuationEntry.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | an anchor without a pc: the return address is below its sp | `resume_at_anchor` |
//! | 8–25 | the call wrapper is at HotSpot's `entry_frame_call_wrapper_offset` in an entry frame | `entry_frame` |
//! | 21 | `ContinuationEntry` is not exported: the carrier thread's frames are absent | `continuation_return` |

use spanprof_signal::{DropReason, RawFrame};
use spanprof_unwind::{NativeFrame, Registers, Walk, WalkEnd};

use super::environment::{NativeCaller, WalkEnvironment, WalkFeature};
use super::instructions;
use super::registers;
use super::walker::{Cause, StackWalker, StepResult};
use crate::runtime::vm::raw_frame;

/// Upper bound of native frames in a row.
const MAX_NATIVE_FRAMES: usize = 1024;
/// The interpreter calls the VM at most this far below the stack pointer in its anchor.
const MAX_ANCHOR_BYTES: usize = 16;

/// Where a walk of native code ended.
enum NativeEnd {
    /// In generated code.
    Caller { caller: NativeCaller, is_guessed: bool },
    /// In the first function of the thread.
    Root,
    /// Callers are missing, for this reason.
    Early(DropReason),
    /// A table is not built yet: the stack has no native callers, as without tables.
    Unknown,
    /// The stack has no more space.
    Full,
}

impl<E: WalkEnvironment> StackWalker<'_, '_, E> {
    /// Native code up to the generated code that called it: interrupted, or the caller of a stub or of an entry frame.
    pub fn native_frame(&mut self) -> StepResult {
        if self.leaf {
            self.memory.met(WalkFeature::Native);
            if !self.stack.push(RawFrame::native(self.pc as u64)) {
                return StepResult::End;
            }
        }
        let begin = self.stack.len();
        let anchor_sp = self.anchor_sp();
        let end = self.walk_native(anchor_sp);
        match end {
            NativeEnd::Full => return StepResult::End,
            NativeEnd::Caller { caller, is_guessed } => match anchor_sp {
                None => return self.enter_generated_code(caller),
                // A stub that native code called since the VM stored the anchor, such as that of an upcall.
                Some(sp) if sp.saturating_sub(caller.sp) > MAX_ANCHOR_BYTES && !is_guessed => {
                    return self.enter_generated_code(caller);
                }
                // The same frame: its anchor also has the pc that the VM expects there.
                Some(sp) if sp >= caller.sp && sp - caller.sp <= MAX_ANCHOR_BYTES => {
                    return self.resume_at_anchor(self.anchor);
                }
                Some(_) => self.stack.truncate(begin),
            },
            NativeEnd::Root if anchor_sp.is_none() => {
                if self.has_java {
                    self.stack.truncate(begin);
                }
                return StepResult::End;
            }
            NativeEnd::Root => self.stack.truncate(begin),
            NativeEnd::Early(_) | NativeEnd::Unknown => {}
        }
        if anchor_sp.is_none() && self.has_java {
            return StepResult::Broken(Cause::Native);
        }
        let gap = match end {
            NativeEnd::Early(reason) => Some(reason),
            NativeEnd::Unknown => None,
            _ => Some(DropReason::InvalidFrame),
        };
        let is_full = gap
            .filter(|_| self.memory.shows_native_callees())
            .is_some_and(|reason| !self.stack.push(RawFrame::reason(reason)));
        if is_full || anchor_sp.is_none() {
            return StepResult::End;
        }
        self.resume_at_anchor(self.anchor)
    }

    /// Writes native frames up to the generated code that called them. A frame that was found without a rule stays only if that
    /// code or the root of the thread is reached.
    fn walk_native(&mut self, anchor_sp: Option<usize>) -> NativeEnd {
        let Some(tables) = self.memory.unwind_tables() else {
            let known = self.memory.known_native_caller().filter(|_| self.leaf);
            let caller_end = |caller| NativeEnd::Caller { caller, is_guessed: false };
            return known.map_or(NativeEnd::Unknown, caller_end);
        };
        let mut walk = match self.context.filter(|_| self.leaf) {
            Some(context) => tables.walk_interrupted(self.memory, context),
            None => tables.walk(
                self.memory,
                Registers {
                    pc: (self.pc as u64).saturating_sub(u64::from(!self.leaf)),
                    stack_pointer: self.sp as u64,
                    frame_pointer: Some(self.fp as u64),
                    link: None,
                },
            ),
        };
        // Between Java frames, functions of the VM say nothing about the program.
        let hidden = if self.leaf || self.memory.shows_runtime() {
            0..0
        } else {
            tables.code_of_file(self.memory.vm_function() as u64)
        };
        let is_shown = self.memory.shows_native_callees();
        let limit = anchor_sp.unwrap_or(self.limit) as u64;
        let begin = self.stack.len();
        let (mut certain_frames, mut is_guessed, mut reason) = (begin, false, DropReason::UnknownCallers);
        for index in 0..MAX_NATIVE_FRAMES {
            let is_leaf = self.leaf && index == 0;
            let pc = walk.pc();
            is_guessed |= walk.is_guessed();
            if !is_leaf && is_shown && !hidden.contains(&pc) && !self.stack.push(RawFrame::native(pc)) {
                WalkEnd::Stopped.count();
                return NativeEnd::Full;
            }
            if !is_guessed {
                certain_frames = self.stack.len();
            }
            let step = walk.step();
            let caller = match step {
                Ok(frame) => self.generated_caller(walk.registers(), frame),
                Err(WalkEnd::NoRule) => self.caller_without_rule(&mut walk, is_leaf),
                Err(_) => None,
            };
            if let Some(caller) = caller {
                WalkEnd::OutsideFiles.count();
                if self.leaf {
                    self.memory.met_native_caller(caller);
                }
                is_guessed |= walk.is_guessed() || step.is_err();
                return NativeEnd::Caller { caller, is_guessed };
            }
            let end = match step {
                Ok(_) if walk.registers().stack_pointer <= limit => continue,
                Ok(_) => WalkEnd::InvalidFrame,
                Err(end) => end,
            };
            end.count();
            match end {
                WalkEnd::Root => return NativeEnd::Root,
                WalkEnd::TableMissing => {
                    self.stack.truncate(begin);
                    return NativeEnd::Unknown;
                }
                _ => {
                    reason = end.missing_callers().unwrap_or(reason);
                    break;
                }
            }
        }
        self.stack.truncate(certain_frames);
        NativeEnd::Early(reason)
    }

    /// The caller to which a frame leads, if it is generated code.
    fn generated_caller(&self, caller: Registers, frame: NativeFrame) -> Option<NativeCaller> {
        let (pc, sp) = (caller.pc as usize, caller.stack_pointer as usize);
        let context = if frame.is_signal_frame { frame.frame_address as usize } else { 0 };
        let fp = caller.frame_pointer.unwrap_or(0) as usize;
        self.layout.is_code(pc).then_some(NativeCaller { pc, sp, fp, context })
    }

    /// The generated code that called native code without a rule. On x86-64 the return address must be on top of the stack, because
    /// generated code uses the frame pointer for other values.
    fn caller_without_rule(&self, walk: &mut Walk<'_, E>, is_leaf: bool) -> Option<NativeCaller> {
        if !cfg!(target_arch = "x86_64") {
            let frame = walk.step_by_frame_pointer().ok()?;
            return self.generated_caller(walk.registers(), frame);
        }
        let pc = self.word(self.sp).filter(|_| is_leaf)?;
        let is_call = self.layout.is_code(pc) && instructions::follows_call(self.memory, pc);
        is_call.then_some(NativeCaller { pc, sp: self.sp + 8, fp: self.fp, context: 0 })
    }

    /// Continues in the generated code that called native code.
    fn enter_generated_code(&mut self, caller: NativeCaller) -> StepResult {
        if caller.context == 0 {
            return self.set_caller(caller.pc, caller.sp, caller.fp);
        }
        self.memory.met(WalkFeature::Fault);
        let Some(interrupted) = registers::interrupted_by_signal(self.memory, caller.context) else {
            return StepResult::Broken(Cause::Native);
        };
        (self.pc, self.sp, self.fp, self.interrupted) = (interrupted.pc, interrupted.sp, interrupted.fp, interrupted);
        self.leaf = true;
        StepResult::Continue
    }

    /// The stack pointer of the Java frame that called native code, if the VM has it.
    fn anchor_sp(&self) -> Option<usize> {
        let address = Some(self.anchor).filter(|anchor| *anchor != 0)?.checked_add(self.layout.anchor_sp)?;
        self.word(address).filter(|sp| *sp >= self.sp && *sp < self.limit)
    }

    /// Continues at the last Java frame of a frame anchor, if there is one.
    pub fn resume_at_anchor(&mut self, anchor: usize) -> StepResult {
        let layout = self.layout;
        if anchor == 0 {
            return StepResult::End;
        }
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
        self.anchor = 0;
        self.set_caller(pc, sp, fp)
    }

    /// Steps over an entry frame: the anchor in its `JavaCallWrapper` leads to the Java frame that called the native code,
    /// if any. The native code between them is walked from the caller of the entry frame.
    pub fn entry_frame(&mut self) -> StepResult {
        self.memory.met(WalkFeature::EntryFrame);
        let wrapper = self.fp.checked_add_signed(self.layout.call_wrapper).and_then(|at| self.word(at));
        let Some(wrapper) = wrapper.filter(|_| self.fp >= self.sp && self.fp < self.limit) else {
            return StepResult::Broken(Cause::Anchor);
        };
        self.anchor = wrapper.wrapping_add(self.layout.wrapper_anchor);
        // The first Java frame of a thread has an empty anchor; below it are functions of the VM or of the thread.
        let is_walked = self.memory.shows_native_callees() && self.anchor_sp().is_some();
        match (self.word(self.fp + 8), self.word(self.fp)) {
            (Some(pc), Some(fp)) if is_walked && !self.layout.is_code(pc) => self.set_caller(pc, self.fp + 16, fp),
            _ => self.resume_at_anchor(self.anchor),
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
