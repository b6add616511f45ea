//! Native frames among those of Python: each above the Python line that called it. Runs in handlers.
//!
//! From 3.10 on each activation of the interpreter loop has a record on the C stack, which lies in the part of the stack of exactly one
//! native function: the loop. This function is replaced by the frames of its activation. No name is compared, since the loop has none
//! in a stripped interpreter. Native functions on the root side of the first Python code are left out.

use std::ops::Range;

use spanprof_signal::{DropReason, Memory, RawFrame, RawStack};
use spanprof_unwind::{Walk, WalkEnd};

use crate::runtime::walk::activation::ENTRY_BYTES;
use crate::runtime::walk::activation_list::{Activation, ActivationList};

/// Writes the native frames of `walk` among the frames of Python, which the stack has.
pub fn merge<M: Memory>(walk: &mut Walk<'_, M>, activations: &ActivationList, stack: &mut RawStack<'_>) {
    let mut rest = activations.as_slice();
    let mut pending = stack.set_aside();
    let mut frames_written = 0;
    // Where a record was removed, its function is the first one.
    let begin = walk.registers().stack_pointer;
    let record_of = |activation: &Activation| if activation.record == 0 { begin } else { activation.record };
    // Frames up to the last one that was found by a rule, or confirmed by an activation.
    let mut certain_frames = None;
    let end = loop {
        // A base frame, which is in the thread state (3.15), has no frames.
        while let [activation, later @ ..] = rest {
            if activation.frames != frames_written || record_of(activation) >= walk.registers().stack_pointer {
                break;
            }
            rest = later;
        }
        let Some(next) = rest.first() else { break WalkEnd::Stopped };
        if record_of(next) < walk.registers().stack_pointer {
            break WalkEnd::InvalidFrame;
        }
        let pc = walk.pc();
        let frame = match walk.step() {
            Ok(frame) => frame,
            Err(end) => {
                stack.push_before(&mut pending, RawFrame::native(pc));
                break end;
            }
        };
        let mut is_loop = false;
        while let [activation, later @ ..] = rest {
            if record_of(activation) >= frame.frame_address {
                break;
            }
            stack.push_pending(&mut pending, activation.frames - frames_written);
            (frames_written, rest, is_loop, certain_frames) = (activation.frames, later, true, None);
            walk.confirm();
        }
        if !is_loop && !stack.push_before(&mut pending, RawFrame::native(pc)) {
            break WalkEnd::Stopped;
        }
        if walk.is_guessed() {
            certain_frames.get_or_insert(stack.len());
        }
    };
    end.count();
    let reason = end.missing_callers().or_else(|| (end == WalkEnd::Root).then_some(DropReason::InvalidFrame));
    if let Some(reason) = reason {
        stack.truncate(certain_frames.unwrap_or(stack.len()));
        stack.push_before(&mut pending, RawFrame::reason(reason));
    }
    stack.push_pending(&mut pending, usize::MAX);
}

/// Finds the activations of Python 3.9, which have no records: each function on the stack whose code is that of the loop has one frame. They
/// are counted from the root, since on the leaf side the loop may have been entered without a frame yet. None if the counts do not agree, as
/// in a greenlet, below which its parent runs.
pub fn find_activations_by_loop<M: Memory + Clone>(
    walk: &Walk<'_, M>,
    loop_code: Range<u64>,
    stack: &RawStack<'_>,
    activations: &mut ActivationList,
) {
    activations.clear();
    let count_loops = |each: &mut dyn FnMut(u64)| {
        let mut walk = walk.clone();
        loop {
            match walk.step() {
                Ok(frame) if loop_code.contains(&frame.pc) => each(frame.stack_pointer),
                Ok(_) => {}
                Err(end) => return end,
            }
        }
    };
    let mut loops = 0;
    let end = count_loops(&mut |_| loops += 1);
    let is_entering = walk.pc().wrapping_sub(loop_code.start) < ENTRY_BYTES;
    let entered = usize::from(is_entering && loops == stack.len() + 1);
    if end == WalkEnd::Root && loops == stack.len() + entered && !stack.is_truncated() {
        let mut index = 0;
        count_loops(&mut |stack_pointer| {
            index += 1;
            if index > entered {
                activations.push(stack_pointer as usize, index - entered);
            }
        });
    }
}
