//! Walks a thread that waits in a system call, in its memory.
//!
//! A thread that waits gets no signal, because that would end calls that the kernel does not repeat, such as `epoll_wait` and
//! `nanosleep` (signal(7)). The kernel shows the stack pointer and the program counter of such a thread (`thread_state`), but
//! not its frame pointer. Unwind tables rarely need the frame pointer at its system call. A function whose table does is found
//! with its own prologue, which shows the distance from the stack pointer to the frame pointer (x86-64). The call before the
//! resulting return address must call this function, or the walk ends: no stack is guessed. The caller checks that the
//! thread has not run meanwhile.
//!
//! All memory is read through `CheckedMemory`.

use spanprof_os::SystemCallWait;
use spanprof_signal::{CheckedMemory, Memory, RawFrame, RawStack};
use spanprof_unwind::{is_indirect_call, Registers, UnwindTables, Walk, WalkEnd};

/// Walks a thread in `wait`. Where callers are missing, the reason stands for them.
pub(crate) fn walk_waiting_thread(wait: &SystemCallWait, stack: &mut RawStack<'_>) -> WalkEnd {
    let Some(tables) = UnwindTables::borrow() else { return WalkEnd::TableMissing };
    let memory = CheckedMemory::default();
    let registers = Registers { pc: wait.pc, stack_pointer: wait.stack_pointer, frame_pointer: None, link: None };
    let mut walk = tables.walk(&memory, registers);
    let end = loop {
        if !stack.push(RawFrame { code: walk.pc(), at: 0 }) {
            break WalkEnd::Stopped;
        }
        let step = walk.step().or_else(|end| {
            let is_unknown = end == WalkEnd::UnknownRegister && cfg!(target_arch = "x86_64");
            match is_unknown.then(|| frame_pointer_of(&walk, &memory)).flatten() {
                Some(frame_pointer) => {
                    walk.set_frame_pointer(frame_pointer);
                    walk.step()
                }
                None => Err(end),
            }
        });
        if let Err(end) = step {
            break end;
        }
    };
    end.count();
    if let Some(reason) = end.missing_callers() {
        stack.push(RawFrame::reason(reason));
    }
    end
}

/// The frame pointer of the current function, which has set one, and whose call must precede the resulting return address.
fn frame_pointer_of<M: Memory>(walk: &Walk<'_, M>, memory: &CheckedMemory) -> Option<u64> {
    let start = walk.function_start()?;
    let read = |address: u64| memory.word(address as usize);
    let mut prologue = [0; 32];
    for (index, word) in prologue.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&read(start.checked_add(8 * index as u64)?)?.to_ne_bytes());
    }
    let frame_pointer = walk.registers().stack_pointer.checked_add(frame_bytes(&prologue)?)?;
    let caller = read(frame_pointer.checked_add(8)?)? as u64;
    let call = read(caller.checked_sub(8)?)?.to_ne_bytes();
    is_call_of(&call, caller, start).then_some(frame_pointer)
}

/// Distance from the stack pointer to the frame pointer in the body of a function with this prologue, as LLVM and GCC write
/// it: `push %rbp; mov %rsp,%rbp`, pushes of other registers, `sub $size,%rsp`. `None` for any other one.
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
/// indirect call, whose target cannot be read from the code.
fn is_call_of(code: &[u8; 8], caller: u64, function: u64) -> bool {
    if let [.., 0xe8, a, b, c, d] = code {
        if caller.wrapping_add_signed(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))) == function {
            return true;
        }
    }
    is_indirect_call(code)
}

#[cfg(test)]
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
