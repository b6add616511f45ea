//! System calls of x86-64. The number of a call is lost with its result, in `rax`: it is read from the code.

use crate::walk::guarded;

pub(super) const INSTRUCTION_BYTES: u64 = 2;

/// Whether a call has no result yet, by the `rax` of its thread.
pub(super) fn is_unfinished(rax: u64) -> bool {
    rax as i64 != -i64::from(libc::EINTR)
}

/// The number of the call whose instruction the thread has just executed, if the code before it is a known sequence.
pub(super) fn number(context: &libc::ucontext_t) -> Option<libc::c_long> {
    call_number(context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize)
}

/// The number of the call whose `syscall` instruction ends at `pc`, if the preceding code is a known sequence.
fn call_number(pc: usize) -> Option<libc::c_long> {
    let mut code = [0u8; 16];
    for (half, at) in code.chunks_exact_mut(8).zip([pc.wrapping_sub(16), pc.wrapping_sub(8)]) {
        half.copy_from_slice(&guarded::read_u64(at)?.to_ne_bytes());
    }
    let before = code.strip_suffix(&[0x0f, 0x05])?;
    // mov disp8(%rsp),%edi · mov (%rsp),%edi · nothing
    let before = match before {
        [rest @ .., 0x8b, 0x7c, 0x24, _] if matches!(rest, [.., 0xb8, _, _, _, _]) => rest,
        [rest @ .., 0x8b, 0x3c, 0x24] if matches!(rest, [.., 0xb8, _, _, _, _]) => rest,
        all => all,
    };
    match before {
        [.., 0xb8, a, b, c, d] => Some(libc::c_long::from(u32::from_le_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

/// Makes the thread repeat the call.
pub(super) fn repeat(context: &mut libc::ucontext_t, number: libc::c_long, _rax: u64) {
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RAX as usize] = number;
    registers[libc::REG_RIP as usize] -= INSTRUCTION_BYTES as i64;
}

#[cfg(all(test, not(miri)))] // Reads by the kernel.
mod tests {
    use super::*;

    fn number_of(code: &[u8]) -> Option<libc::c_long> {
        let mut memory = [0x90u8; 32];
        memory[32 - code.len()..].copy_from_slice(code);
        call_number(memory.as_ptr() as usize + 32)
    }

    #[test]
    fn the_code_sequences_of_glibc_give_the_call_number() {
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x0f, 0x05]), Some(libc::SYS_poll));
        assert_eq!(number_of(&[0xb8, 0x19, 1, 0, 0, 0x8b, 0x7c, 0x24, 4, 0x0f, 0x05]), Some(libc::SYS_epoll_pwait));
        assert_eq!(number_of(&[0xb8, 0xe6, 0, 0, 0, 0x8b, 0x3c, 0x24, 0x0f, 0x05]), Some(libc::SYS_clock_nanosleep));
    }

    #[test]
    fn other_code_before_a_system_call_gives_no_number() {
        assert_eq!(number_of(&[0x48, 0x89, 0xf8, 0x0f, 0x05]), None, "mov %rdi,%rax, as in syscall(2)");
        assert_eq!(number_of(&[0xb8, 7, 0, 0, 0, 0x90, 0x90]), None, "no system call");
    }
}
