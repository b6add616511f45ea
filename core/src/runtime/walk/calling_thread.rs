//! Walks the stack of the calling thread, in an allocator hook or before a wait for a lock. No allocation, no lock, no thread-local
//! storage.

use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};

use spanprof_os::thread_context;
use spanprof_signal::{Captured, Context, ProcessMemory, RawStack};
use spanprof_unwind::{Registers, UnwindTables};

use super::frames::write_frames;

/// Number of calls of the functions between an allocation and its hook.
const MAX_ENTRY_FRAMES: usize = 12;
/// See [`set_entry_frames`]; 0: unused.
static ENTRY_FRAMES: [AtomicU64; MAX_ENTRY_FRAMES] = [const { AtomicU64::new(0) }; MAX_ENTRY_FRAMES];

/// Registers of a function of the calling thread, in which a walk starts.
#[derive(Clone, Copy)]
pub(crate) struct WalkStart(Registers);

impl WalkStart {
    /// The function in which this is inlined. It must not return before the walk.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (pc, stack_pointer, frame_pointer);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("adr {}, .", "mov {}, sp", "mov {}, x29",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags));
        }
        Self(Registers { pc, stack_pointer, frame_pointer: Some(frame_pointer) })
    }
}

/// The callers of the function in which the walk starts, without those of [`set_entry_frames`], and the thread's context.
pub(crate) fn walk_calling_thread(start: &WalkStart, stack: &mut RawStack<'_>) -> Captured {
    match thread_context::context_of(spanprof_os::thread_id()) {
        0 => {}
        id => stack.context = Context::Id(id),
    }
    walk_callers(start, stack, is_entry_frame);
    Captured::Walked
}

/// The callers of the function in which the walk starts, without those at the leaf for which `is_left_out` is true.
pub fn walk_callers(start: &WalkStart, stack: &mut RawStack<'_>, is_left_out: impl Fn(u64) -> bool) {
    let Some(tables) = UnwindTables::borrow() else { return };
    let mut walk = tables.walk(ProcessMemory, start.0);
    if walk.step().is_ok() {
        write_frames(&mut walk, stack, is_left_out);
    }
}

fn is_entry_frame(call: u64) -> bool {
    ENTRY_FRAMES.iter().any(|entry| entry.load(Ordering::Relaxed) == call)
}

/// Leaves these calls out at the leaf of each walk: functions between an allocation and its hook.
pub fn set_entry_frames(addresses: impl Iterator<Item = u64>) {
    for (entry, address) in ENTRY_FRAMES.iter().zip(addresses) {
        entry.store(address, Ordering::Relaxed);
    }
}
