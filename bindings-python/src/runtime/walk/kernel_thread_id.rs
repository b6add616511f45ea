//! Reads the kernel's id of a thread from its thread state: directly from 3.11 on, and before from the C library's thread
//! descriptor. Called by the list of threads and by the walk of another thread.

use std::sync::atomic::Ordering;

use spanprof_signal::Memory;

use super::frame::FrameReader;
use crate::runtime::interpreter::layout::ThreadId;

/// The kernel's id of the thread of the `PyThreadState` at `thread`; `None` when it is unavailable.
pub fn kernel_thread_id<M: Memory>(reader: &FrameReader<'_, M>, thread: usize) -> Option<u32> {
    let id = match reader.interpreter.layout.thread.id {
        ThreadId::Kernel(offset) => reader.word(thread, offset)?,
        ThreadId::Pthread(offset) => {
            let id = reader.interpreter.descriptor_id.load(Ordering::Acquire);
            if id == 0 {
                return None;
            }
            reader.word(reader.word(thread, offset)?, id)? & 0xffff_ffff
        }
    };
    u32::try_from(id).ok().filter(|&id| id != 0 && id <= i32::MAX as u32)
}
