//! Walks another thread by unwind tables: one that waits in a system call, in its memory, or one that runs, in the copy of its
//! stack that it made in a signal handler (`frame_pointers::copy_stack`).
//!
//! A thread that waits gets no signal, because that would end calls that the kernel does not repeat, such as `epoll_wait` and
//! `nanosleep` (signal(7)). The kernel shows the stack pointer and the program counter of such a thread (`thread_state`), but
//! not its frame pointer. Unwind tables rarely need the frame pointer at its system call. A function whose table does is found
//! with its own prologue, which shows the distance from the stack pointer to the frame pointer (x86-64). The call before the
//! resulting return address must call this function, or the walk ends: no stack is guessed. The caller checks that the
//! thread has not run meanwhile.
//!
//! All memory is read through `CheckedMemory`.

use framehop::{FrameAddress, UnwindRegsNative, Unwinder};
use spanprof_signal::{CheckedMemory, Memory, RawFrame, RawStack};

use super::unwind_tables::{with_unwind_tables, UnwindTables};
use spanprof_os::SystemCallWait;

/// Walks a thread in `wait`. False where the root side is missing.
pub(crate) fn walk_waiting_thread(wait: &SystemCallWait, stack: &mut RawStack<'_>) -> bool {
    let memory = CheckedMemory::default();
    let mut read = |address: u64| memory.word(address as usize).map(|word| word as u64).ok_or(());
    registers(wait).is_some_and(|registers| walk(wait.pc, registers, &mut read, stack))
}

/// Walks the stack that a thread copied. False where the root side is missing, also because the copy ends.
pub(crate) fn walk_copied_stack(copy: &[RawFrame], stack: &mut RawStack<'_>) -> bool {
    let [first, second, words @ ..] = copy else { return false };
    let (pc, stack_pointer) = (first.code, first.at);
    let mut read = |address: u64| {
        let offset = address.checked_sub(stack_pointer).filter(|offset| offset % 8 == 0).ok_or(())? as usize / 8;
        let pair = words.get(offset / 2).ok_or(())?;
        Ok(if offset.is_multiple_of(2) { pair.code } else { pair.at })
    };
    walk(pc, copied_registers(first, second), &mut read, stack)
}

fn walk(
    pc: u64,
    mut registers: UnwindRegsNative,
    read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    stack: &mut RawStack<'_>,
) -> bool {
    if !stack.push(RawFrame { code: pc, at: 0 }) {
        return true;
    }
    let is_complete = with_unwind_tables(registers.sp() >> 12, |tables, cache| {
        let mut read = |address: u64| read(address);
        let mut address = FrameAddress::InstructionPointer(pc);
        loop {
            let before = registers;
            let mut next = tables.unwinder.unwind_frame(address, &mut registers, cache, &mut read);
            if next.is_err() {
                let Some(found) = with_frame_pointer(tables, address, before) else { return false };
                registers = found;
                next = tables.unwinder.unwind_frame(address, &mut registers, cache, &mut read);
            }
            let return_address = match next {
                Ok(None) => return true,
                Ok(Some(return_address)) if return_address >= RawFrame::FIRST_RUNTIME_CODE => return_address,
                _ => return false,
            };
            // As in `frame_pointers`: the address of the call, marked by `at` = 1.
            if !stack.push(RawFrame { code: return_address - 1, at: 1 }) {
                return true;
            }
            let Some(next) = FrameAddress::from_return_address(return_address) else { return false };
            address = next;
        }
    });
    is_complete == Some(true)
}

#[cfg(target_arch = "x86_64")]
fn copied_registers(first: &RawFrame, second: &RawFrame) -> UnwindRegsNative {
    UnwindRegsNative::new(first.code, first.at, second.code)
}

#[cfg(target_arch = "aarch64")]
fn copied_registers(first: &RawFrame, second: &RawFrame) -> UnwindRegsNative {
    UnwindRegsNative::new(second.at, first.at, second.code)
}

/// Stands for a frame pointer that is not known: no address of a stack, so that its use fails. 0 would end the stack.
const UNKNOWN: u64 = 8;

/// The registers that are known.
#[cfg(target_arch = "x86_64")]
fn registers(wait: &SystemCallWait) -> Option<UnwindRegsNative> {
    Some(UnwindRegsNative::new(wait.pc, wait.stack_pointer, UNKNOWN))
}

/// Without the link register, the caller of the system call is not known.
#[cfg(target_arch = "aarch64")]
fn registers(_wait: &SystemCallWait) -> Option<UnwindRegsNative> {
    None
}

/// The registers of a function that needs a frame pointer and whose frame pointer is not known.
#[cfg(target_arch = "x86_64")]
fn with_frame_pointer(
    tables: &UnwindTables,
    address: FrameAddress,
    mut registers: UnwindRegsNative,
) -> Option<UnwindRegsNative> {
    let FrameAddress::ReturnAddress(return_address) = address else { return None };
    if registers.bp() != UNKNOWN {
        return None;
    }
    let start = tables.function_start(return_address.get() - 1)?;
    let memory = CheckedMemory::default();
    let read = |address: u64| memory.word(address as usize);
    let mut prologue = [0; 32];
    for (index, word) in prologue.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&read(start.checked_add(8 * index as u64)?)?.to_ne_bytes());
    }
    let frame_pointer = registers.sp().checked_add(frame_bytes(&prologue)?)?;
    let caller = read(frame_pointer.checked_add(8)?)? as u64;
    let mut call = [0; 8];
    call.copy_from_slice(&read(caller.checked_sub(8)?)?.to_ne_bytes());
    if !is_call_of(&call, caller, start) {
        return None;
    }
    registers.set_bp(frame_pointer);
    Some(registers)
}

#[cfg(target_arch = "aarch64")]
fn with_frame_pointer(
    _tables: &UnwindTables,
    _address: FrameAddress,
    _registers: UnwindRegsNative,
) -> Option<UnwindRegsNative> {
    None
}

/// Distance from the stack pointer to the frame pointer in the body of a function with this prologue, as LLVM and GCC write
/// it: `push %rbp; mov %rsp,%rbp`, pushes of other registers, `sub $size,%rsp`. `None` for any other one.
#[cfg(target_arch = "x86_64")]
fn frame_bytes(prologue: &[u8]) -> Option<u64> {
    let mut rest = prologue.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(prologue);
    rest = rest.strip_prefix(&[0x55])?;
    rest = rest.strip_prefix(&[0x48, 0x89, 0xe5]).or_else(|| rest.strip_prefix(&[0x48, 0x8b, 0xec]))?;
    let mut pushed = 0;
    loop {
        rest = match rest {
            // %r12 to %r15, %rbx and, for alignment, any other one.
            [0x41, 0x50..=0x57, after @ ..] | [0x50..=0x53 | 0x56..=0x57, after @ ..] => after,
            [0x48, 0x83, 0xec, size @ 0..=0x7f, ..] => return Some(pushed + u64::from(*size)),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => {
                return Some(pushed + u64::from(u32::from_le_bytes([*a, *b, *c, *d])));
            }
            [_, ..] => return Some(pushed),
            [] => return None,
        };
        pushed += 8;
    }
}

/// Whether `code`, the eight bytes before the return address `caller`, ends with a direct call of `function`, or with an
/// indirect call (`ff /2`), whose target cannot be read from the code.
#[cfg(target_arch = "x86_64")]
fn is_call_of(code: &[u8; 8], caller: u64, function: u64) -> bool {
    if let [.., 0xe8, a, b, c, d] = code {
        if caller.wrapping_add_signed(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))) == function {
            return true;
        }
    }
    // Bits 3 to 5 of the byte after the operation code are 2.
    let is_indirect =
        |length: usize| matches!(code.get(8 - length..), Some([0xff, operand, ..]) if operand >> 3 & 7 == 2);
    [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_frame_is_read_from_the_prologue() {
        let frame = [0x55, 0x48, 0x89, 0xe5];
        let size_with = |rest: &[u8]| frame_bytes(&[&frame[..], rest].concat());
        assert_eq!(size_with(&[0x41, 0x57, 0x41, 0x56, 0x53, 0x50, 0x90]), Some(32));
        assert_eq!(size_with(&[0x53, 0x48, 0x83, 0xec, 0x28, 0x90]), Some(8 + 0x28));
        assert_eq!(size_with(&[0x48, 0x81, 0xec, 0, 1, 0, 0, 0x90]), Some(256));
        assert_eq!(size_with(&[0x90]), Some(0));
        assert_eq!(frame_bytes(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x90]), Some(0));
        assert_eq!([&[][..], &[0x55], &[0x53, 0x48, 0x83, 0xec, 8], &frame].map(frame_bytes), [None; 4]);
    }

    #[test]
    fn a_return_address_belongs_to_a_function_only_after_a_call_of_it() {
        let direct = [0, 0, 0, 0xe8, 0xf0, 0xff, 0xff, 0xff];
        assert!(is_call_of(&direct, 0x1000, 0xff0));
        assert!(!is_call_of(&direct, 0x1000, 0xff1));
        assert!(is_call_of(&[0, 0, 0xff, 0x15, 1, 2, 3, 4], 0x1000, 7), "call *offset(%rip)");
        assert!(is_call_of(&[0, 0, 0, 0, 0, 0, 0xff, 0xd0], 0x1000, 7), "call *%rax");
        assert!(!is_call_of(&[0x90; 8], 0x1000, 7));
    }
}
