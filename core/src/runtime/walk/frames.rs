//! The frames of a native stack, from a walk in progress. Safe in handlers.

use spanprof_signal::{Memory, RawFrame, RawStack};
use spanprof_unwind::{Walk, WalkEnd};

/// Writes the current function of a walk and its callers, without those at the leaf for which `is_left_out` is true. Where the root
/// side is missing, the last frame is the reason.
pub(super) fn write_frames<M: Memory>(
    walk: &mut Walk<'_, M>,
    stack: &mut RawStack<'_>,
    is_left_out: impl Fn(u64) -> bool,
) {
    let mut certain_frames = None;
    let end = loop {
        let pc = walk.pc();
        let is_written = stack.is_empty() && is_left_out(pc) || stack.push(RawFrame { code: pc, at: 0 });
        if !is_written {
            break WalkEnd::Stopped;
        }
        // Generated code in a Rust program (wasmtime, cranelift) has frame pointers.
        let step = walk.step().or_else(|end| match end {
            WalkEnd::OutsideFiles => walk.step_by_frame_pointer().map_err(|_| end),
            _ => Err(end),
        });
        if let Err(end) = step {
            break end;
        }
        if walk.is_guessed() {
            certain_frames.get_or_insert(stack.len());
        }
    };
    end.count();
    if let Some(reason) = end.missing_callers() {
        // Nothing confirms the callers that were found without a rule.
        stack.truncate(certain_frames.unwrap_or(stack.len()));
        stack.push(RawFrame::reason(reason));
    }
}
