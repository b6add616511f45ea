//! Contexts and ring buffers as the kernel writes them.

use super::*;
use crate::signals::overflow::{buffer_bytes, page_bytes, HEAD_OFFSET, RECORD_BYTES};

const ABI_64: u64 = 2;
const KERNEL: u64 = 1;
const USER: u64 = 2;
const INTERRUPTED: i64 = -(libc::EINTR as i64);

#[cfg(target_arch = "x86_64")]
mod expected {
    pub const WAIT: libc::c_long = libc::SYS_poll;
    pub const BYTES: i64 = 2;
    /// `rax` while a call has no result yet, and to repeat the call.
    pub const INSIDE: i64 = -(libc::ENOSYS as i64);
    pub const REPEATED: i64 = WAIT;

    pub fn code(number: libc::c_long) -> [u8; 16] {
        let mut code = [0x90; 16];
        code[9] = 0xb8;
        code[10..14].copy_from_slice(&(number as u32).to_le_bytes());
        code[14..].copy_from_slice(&[0x0f, 0x05]);
        code
    }
}

#[cfg(target_arch = "aarch64")]
mod expected {
    pub const WAIT: libc::c_long = libc::SYS_ppoll;
    pub const BYTES: i64 = 4;
    /// The first argument of the call.
    pub const INSIDE: i64 = 0xffff_8000_1230;
    pub const REPEATED: i64 = INSIDE;

    pub fn code(_number: libc::c_long) -> [u8; 16] {
        let mut code = [0x1f; 16];
        code[12..].copy_from_slice(&[0x01, 0x00, 0x00, 0xd4]);
        code
    }
}

use expected::{code, BYTES, INSIDE, REPEATED, WAIT};

/// It wraps around the end of the page of records.
fn last_record() -> u64 {
    page_bytes() as u64 / RECORD_BYTES + 1
}

/// A ring buffer whose last record is of an overflow in mode `mode`, entered from address `entered_from`.
fn buffer_with(mode: u64, result: i64, entered_from: u64) -> Vec<u64> {
    let page_words = page_bytes() / 8;
    let mut buffer = vec![0; buffer_bytes() / 8];
    let head = last_record() * RECORD_BYTES;
    buffer[HEAD_OFFSET / 8] = head;
    for (index, word) in
        [9 | mode << 32 | RECORD_BYTES << 48, 0, ABI_64, result as u64, entered_from].into_iter().enumerate()
    {
        buffer[page_words + ((head - RECORD_BYTES) as usize / 8 + index) % page_words] = word;
    }
    buffer
}

/// The registers of a result and of the address.
fn registers(context: &mut libc::ucontext_t) -> (&mut i64, &mut i64) {
    #[cfg(target_arch = "x86_64")]
    let [result, pc] =
        context.uc_mcontext.gregs.get_disjoint_mut([libc::REG_RAX as usize, libc::REG_RIP as usize]).unwrap();
    #[cfg(target_arch = "aarch64")]
    let (result, pc) = {
        let registers = &mut context.uc_mcontext;
        // SAFETY: words of this context, as signed ones.
        unsafe { (&mut *(&raw mut registers.regs[0]).cast(), &mut *(&raw mut registers.pc).cast()) }
    };
    (result, pc)
}

/// The result of a call after the restart, and the change of the program counter.
fn after_restart(number: libc::c_long, result: i64, buffer: impl Fn(u64) -> Vec<u64>) -> (i64, i64) {
    let code = code(number);
    let end = code.as_ptr() as usize + code.len();
    // SAFETY: an all-zero context is a valid value; the fields read below are set.
    let mut context: libc::ucontext_t = unsafe { core::mem::zeroed() };
    #[cfg(target_arch = "aarch64")]
    {
        context.uc_mcontext.regs[8] = number as u64;
    }
    let (result_register, pc) = registers(&mut context);
    (*result_register, *pc) = (result, end as i64);
    let buffer = buffer(end as u64);
    // SAFETY: a context and a ring buffer owned by this test.
    unsafe {
        if let Some(overflow) = OverflowRecord::read(buffer.as_ptr() as usize, last_record()) {
            restart_interrupted_call(libc::SIGURG, (&raw mut context).cast(), &overflow);
        }
    }
    let (result, pc) = registers(&mut context);
    (*result, *pc - end as i64)
}

#[test]
fn a_blocking_call_is_restarted_except_one_that_must_not_be_repeated() {
    let here = |end| buffer_with(KERNEL, INSIDE, end);
    assert_eq!(after_restart(WAIT, INTERRUPTED, here), (REPEATED, -BYTES));
    assert_eq!(after_restart(libc::SYS_close, INTERRUPTED, here), (INTERRUPTED, 0));
    assert_eq!(after_restart(WAIT, 1, here), (1, 0), "the call has a result");
}

#[test]
fn a_call_that_a_handler_of_the_host_interrupted_returns_eintr() {
    let unchanged = (INTERRUPTED, 0);
    let after = |buffer: &dyn Fn(u64) -> Vec<u64>| after_restart(WAIT, INTERRUPTED, buffer);
    assert_eq!(after(&|_| buffer_with(KERNEL, INSIDE, 0x1234)), unchanged, "in rt_sigreturn");
    assert_eq!(
        after(&|end| buffer_with(KERNEL, INTERRUPTED, end)),
        unchanged,
        "in rt_sigreturn, with the registers restored"
    );
    assert_eq!(after(&|end| buffer_with(USER, INSIDE, end)), unchanged, "in user mode");
    assert_eq!(after(&|_| vec![0; buffer_bytes() / 8]), unchanged, "no record");
}

/// The kernel's code for a call that it may restart is in the register before EINTR, and the argument is nowhere.
#[cfg(target_arch = "aarch64")]
#[test]
fn a_call_whose_argument_is_already_lost_returns_eintr() {
    const RESTART_WITHOUT_HANDLER: i64 = -514;
    let outcome = after_restart(WAIT, INTERRUPTED, |end| buffer_with(KERNEL, RESTART_WITHOUT_HANDLER, end));
    assert_eq!(outcome, (INTERRUPTED, 0));
}
