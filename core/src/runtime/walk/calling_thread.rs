//! Walks the stack of the calling thread, in an allocator hook or before a wait for a lock: by unwind tables, and by frame pointers where an object
//! has none. No allocation, no lock, no thread-local storage; reads the stack through `CheckedMemory` only.

use std::arch::asm;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use framehop::{FrameAddress, UnwindRegsNative, Unwinder};
use spanprof_signal::{Captured, CheckedMemory, Context, Memory, RawFrame, RawStack};

use super::unwind_tables::{with_unwind_tables, UnwindTables, WalkCache};
use crate::runtime::walk::frame_pointers::walk_frame_pointers;
use spanprof_os::thread_context;

/// Number of return addresses of the functions between an allocation and its hook.
const MAX_ENTRY_FRAMES: usize = 12;
/// See [`set_entry_frames`]; 0: unused.
static ENTRY_FRAMES: [AtomicU64; MAX_ENTRY_FRAMES] = [const { AtomicU64::new(0) }; MAX_ENTRY_FRAMES];
/// Set after a panic of the unwinder, which is then not used again.
static UNWINDER_FAILED: AtomicBool = AtomicBool::new(false);

/// Registers of a function of the calling thread, in which a walk starts.
#[derive(Clone, Copy)]
pub(crate) struct WalkStart {
    pc: u64,
    pub(super) stack_pointer: u64,
    pub(super) frame_pointer: u64,
    #[cfg(target_arch = "aarch64")]
    link_register: u64,
}

impl WalkStart {
    /// The function in which this is inlined. It must not return before the walk.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (pc, stack_pointer, frame_pointer);
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags));
        }
        Self { pc, stack_pointer, frame_pointer }
    }

    /// The function in which this is inlined. It must not return before the walk.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (pc, stack_pointer, frame_pointer, link_register);
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer, out(reg) link_register,
                options(nomem, nostack, preserves_flags));
        }
        Self { pc, stack_pointer, frame_pointer, link_register }
    }

    #[cfg(target_arch = "x86_64")]
    fn registers(&self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.pc, self.stack_pointer, self.frame_pointer)
    }

    #[cfg(target_arch = "aarch64")]
    fn registers(&self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.link_register, self.stack_pointer, self.frame_pointer)
    }
}

/// The callers of the function in which the walk starts, without those of [`set_entry_frames`], and the thread's context.
pub(crate) fn walk_calling_thread(start: &WalkStart, stack: &mut RawStack<'_>) -> Captured {
    match thread_context::context_of(spanprof_os::thread_id()) {
        0 => {}
        id => stack.context = Context::Id(id),
    }
    walk_from(start, &mut |return_address| {
        if stack.is_empty() && is_entry_frame(return_address) {
            return true;
        }
        // As in `frame_pointers`: the address of the call, marked by `at` = 1.
        stack.push(RawFrame { code: return_address - 1, at: 1 })
    });
    Captured::Walked
}

/// Passes the return addresses to `push`, leaf first, until it returns false.
pub fn walk_from(start: &WalkStart, push: &mut dyn FnMut(u64) -> bool) {
    // A panic in the unwinder must not reach the program, which called its allocator.
    let mut walk = || {
        with_unwind_tables(start.stack_pointer >> 12, |tables, cache| {
            catch_unwind(AssertUnwindSafe(|| unwind(tables, cache, start, push))).is_ok()
        })
    };
    match (!UNWINDER_FAILED.load(Ordering::Relaxed)).then(&mut walk).flatten() {
        Some(true) => {}
        Some(false) => UNWINDER_FAILED.store(true, Ordering::Relaxed),
        None => walk_frame_pointers(start.stack_pointer, start.frame_pointer, push),
    }
}

fn unwind(tables: &UnwindTables, cache: &mut WalkCache, start: &WalkStart, push: &mut dyn FnMut(u64) -> bool) {
    let memory = CheckedMemory::default();
    let mut read = |address: u64| memory.word(address as usize).map(|word| word as u64).ok_or(());
    let mut frames = tables.unwinder.iter_frames(start.pc, start.registers(), cache, &mut read);
    while let Ok(Some(frame)) = frames.next() {
        if let FrameAddress::ReturnAddress(address) = frame {
            if address.get() < RawFrame::FIRST_RUNTIME_CODE || !push(address.get()) {
                return;
            }
        }
    }
}

fn is_entry_frame(return_address: u64) -> bool {
    ENTRY_FRAMES.iter().any(|entry| entry.load(Ordering::Relaxed) == return_address)
}

/// Leaves these return addresses out at the leaf of each walk: functions between an allocation and its hook.
pub fn set_entry_frames(addresses: impl Iterator<Item = u64>) {
    for (entry, address) in ENTRY_FRAMES.iter().zip(addresses) {
        entry.store(address, Ordering::Relaxed);
    }
}
