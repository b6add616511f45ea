//! The stack of a thread that calls the profiler from an event of the VM, below the frame of a class. Not for signal
//! handlers.

use spanprof_signal::{ProcessMemory, RawFrame, RawStack};

use crate::runtime::capture::thread_rows::ThreadRow;
use crate::runtime::jvmti::Jvmti;
use crate::runtime::names::methods;
use crate::runtime::vm::{layout, raw_frame};
use crate::runtime::walk::walker;
use raw_frame::FrameKind;

pub struct OwnStack<'a> {
    /// The frame of the class, then the callers. The VM's stub at the leaf is left out.
    pub frames: &'a [RawFrame],
    /// Whether the stack is deeper than the buffer.
    pub truncated: bool,
    /// False if the thread has no Java frame: the caller is then the frame of the thread.
    pub has_java: bool,
}

/// Walks the calling thread into `frames`, below the class with this number.
pub fn below_class<'a>(jvmti: Jvmti, row: Option<&ThreadRow>, class: u32, frames: &'a mut [RawFrame]) -> OwnStack<'a> {
    let (walked, truncated, has_java) = {
        let callers = frames.get_mut(1..).unwrap_or(&mut []);
        let max_depth = callers.len();
        let mut stack = RawStack::new(callers);
        let has_java = walk(jvmti, row, max_depth, &mut stack);
        if !has_java {
            stack.push(raw_frame::thread(spanprof_os::thread_id()));
        }
        (stack.len(), stack.is_truncated(), has_java)
    };
    let is_stub = |frame: &RawFrame| matches!(raw_frame::decode(*frame), FrameKind::Stub(_));
    let stubs = frames.iter().skip(1).take(walked.saturating_sub(1)).take_while(|frame| is_stub(frame)).count();
    if let Some(leaf) = frames.get_mut(stubs) {
        *leaf = raw_frame::class(class);
    }
    OwnStack { frames: frames.get(stubs..=walked).unwrap_or(&[]), truncated, has_java }
}

/// Walks the calling thread from its frame anchor. False if it has no Java frame.
fn walk(jvmti: Jvmti, row: Option<&ThreadRow>, max_depth: usize, stack: &mut RawStack<'_>) -> bool {
    let java_thread = row.map_or(0, ThreadRow::java_thread);
    match layout::published() {
        Some(layout) => {
            let has_java = java_thread != 0 && walker::walk_waiting(ProcessMemory, layout, java_thread, stack);
            if has_java {
                walker::accept_waiting_walk(stack);
                methods::name_now(layout, stack.frames());
            } else {
                stack.clear();
            }
            has_java
        }
        // The frames are those of `AsyncGetCallTrace`, whose method ids are in `method_ids`.
        None => {
            let frames = jvmti.stack_trace(max_depth).unwrap_or_default();
            frames.iter().for_each(|(method, index)| {
                stack.push(raw_frame::method_id(*method, u16::try_from(*index).unwrap_or(raw_frame::NO_INDEX)));
            });
            !frames.is_empty()
        }
    }
}
