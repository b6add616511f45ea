//! Frame-pointer walk of native code, and the context of a native thread. Runs inside the handler on the interrupted
//! thread: no allocation, no lock, no thread-local storage; the kernel checks each page of the stack before it is read, so that
//! neither its end nor a register with another value is found by a fault.
//!
//! Limits: code compiled without frame pointers ends the walk early or skips a caller (`-C force-frame-pointers=yes`), as most
//! functions of the C library do. The frames after which a caller may be missing are marked: see [`NEXT_BY_FRAME_POINTER`].

use spanprof_os::thread_context;
use spanprof_signal::{Captured, CheckedMemory, Context, DropReason, HandlerContext, Memory, RawFrame, RawStack};

/// Maximum distance between two frame pointers of a real stack.
const MAX_FRAME_BYTES: u64 = 4 << 20;

/// Bit of `RawFrame::at`: the next frame was found by the frame pointer, and is the caller only if this function has set its own
/// one (`unwind_tables::is_frame_pointer_set`).
pub(crate) const NEXT_BY_FRAME_POINTER: u64 = 2;

/// Walks the interrupted thread.
///
/// # Safety
/// As `spanprof_signal::CaptureFn` requires: called by the handler, with its ucontext or null.
pub unsafe fn capture_native(handler: &HandlerContext, stack: &mut RawStack<'_>) -> Captured {
    match thread_context::context_of(handler.thread_id) {
        0 => {}
        id => stack.context = Context::Id(id),
    }
    if handler.ucontext.is_null() {
        return Captured::Dropped(DropReason::NoThreadState);
    }
    // SAFETY: the kernel's ucontext on this thread's stack, passed by the handler; checked for null above.
    let context = unsafe { &*handler.ucontext.cast::<libc::ucontext_t>() };
    let (pc, frame_pointer) = registers(context);
    let (stack_pointer, _) = stack_registers(context);
    if pc < RawFrame::FIRST_RUNTIME_CODE {
        return Captured::Dropped(DropReason::InvalidFrame);
    }
    // Without a next frame, all callers of the leaf are missing.
    let mut frame = RawFrame { code: pc, at: NEXT_BY_FRAME_POINTER };
    walk_frame_pointers(stack_pointer, frame_pointer, &mut |return_address| {
        let has_space = stack.push(RawFrame { at: frame.at | NEXT_BY_FRAME_POINTER, ..frame });
        // The return address follows the call instruction, so the address minus one has the line of the call. `at` = 1
        // marks such a frame.
        frame = RawFrame { code: return_address - 1, at: 1 };
        has_space
    });
    stack.push(frame);
    Captured::Walked
}

/// Copies the registers of the interrupted thread and the leaf end of its stack, which the wall sampler walks: the alternate
/// signal stack of a Rust thread is too small for unwind tables. The frames are pairs of words: program counter and stack
/// pointer, frame pointer and link register, and then the stack.
///
/// # Safety
/// The contract of `spanprof_signal::self_walk::WalkSelfFn`.
pub unsafe fn copy_stack(handler: &HandlerContext, _in_system_call: bool, stack: &mut RawStack<'_>) -> u64 {
    match thread_context::context_of(handler.thread_id) {
        0 => {}
        id => stack.context = Context::Id(id),
    }
    if handler.ucontext.is_null() {
        return 0;
    }
    // SAFETY: the kernel's ucontext on this thread's stack, passed by the handler; checked for null above.
    let context = unsafe { &*handler.ucontext.cast::<libc::ucontext_t>() };
    let (pc, frame_pointer) = registers(context);
    let (stack_pointer, link_register) = stack_registers(context);
    stack.push(RawFrame { code: pc, at: stack_pointer });
    stack.push(RawFrame { code: frame_pointer, at: link_register });
    let memory = CheckedMemory::default();
    let mut address = stack_pointer as usize;
    while let (Some(code), Some(at)) = (memory.word(address), memory.word(address.wrapping_add(8))) {
        if !stack.push(RawFrame { code: code as u64, at: at as u64 }) {
            break;
        }
        address = address.wrapping_add(16);
    }
    0
}

/// Passes the return addresses of a chain of frame pointers to `push`, leaf first, until it returns false.
///
/// Code without frame pointers uses the register for other values. Only addresses near this stack are read.
pub(super) fn walk_frame_pointers(stack_pointer: u64, mut frame_pointer: u64, push: &mut dyn FnMut(u64) -> bool) {
    let memory = CheckedMemory::default();
    let word = |address: u64| memory.word(address as usize).map(|word| word as u64);
    let mut from = stack_pointer;
    let is_near = |from: u64, address: u64| address.checked_sub(from).is_some_and(|bytes| bytes <= MAX_FRAME_BYTES);
    while frame_pointer.is_multiple_of(8) && is_near(from, frame_pointer) {
        let Some(next) = word(frame_pointer) else { return };
        let Some(return_address) = word(frame_pointer + 8) else { return };
        if return_address < RawFrame::FIRST_RUNTIME_CODE || !push(return_address) {
            return;
        }
        from = frame_pointer + 8;
        frame_pointer = next;
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> (u64, u64) {
    let registers = &context.uc_mcontext.gregs;
    (registers[libc::REG_RIP as usize] as u64, registers[libc::REG_RBP as usize] as u64)
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> (u64, u64) {
    (context.uc_mcontext.pc, context.uc_mcontext.regs[29])
}

#[cfg(target_arch = "x86_64")]
fn stack_registers(context: &libc::ucontext_t) -> (u64, u64) {
    (context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64, 0)
}

#[cfg(target_arch = "aarch64")]
fn stack_registers(context: &libc::ucontext_t) -> (u64, u64) {
    (context.uc_mcontext.sp, context.uc_mcontext.regs[30])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_that_is_no_frame_pointer_of_this_stack_is_not_followed() {
        let mut stack = [0u64; 8];
        let at = |word: usize| stack.as_ptr() as u64 + 8 * word as u64;
        let words = [(0, at(4)), (1, 0x7000_0001), (4, 0), (5, 0x7000_0002)];
        words.into_iter().for_each(|(word, value)| stack[word] = value);
        let walked = |stack_pointer: u64, frame_pointer: u64| {
            let mut addresses = Vec::new();
            walk_frame_pointers(stack_pointer, frame_pointer, &mut |address| {
                addresses.push(address);
                true
            });
            addresses
        };
        let first = stack.as_ptr() as u64;
        assert_eq!(walked(first, first), [0x7000_0001, 0x7000_0002]);
        assert_eq!(walked(first - MAX_FRAME_BYTES, first), [0x7000_0001, 0x7000_0002]);
        // Readable, but below the stack pointer, too far above it, or not aligned.
        assert!(walked(first + 8, first).is_empty());
        assert!(walked(first - MAX_FRAME_BYTES - 8, first).is_empty());
        assert!(walked(first, first + 1).is_empty());
    }
}
