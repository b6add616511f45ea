//! System calls of AArch64. Of a finished call, the first argument is lost: the kernel's record of the overflow has it.

use crate::walk::guarded;

pub(super) const INSTRUCTION_BYTES: u64 = 4;

/// Whether a call has no result yet, by the `x0` of its thread. An argument that looks like an error, as the clock of a process with a
/// small id, counts as a result. So do the kernel's own codes of calls that it may restart (ERESTARTSYS and others).
pub(super) fn is_unfinished(x0: u64) -> bool {
    const LARGEST_ERROR: i64 = 4095;
    !(-LARGEST_ERROR..0).contains(&(x0 as i64))
}

/// The number of the call whose instruction the thread has just executed.
pub(super) fn number(context: &libc::ucontext_t) -> Option<libc::c_long> {
    const SVC: u32 = 0xd400_0001;
    let registers = &context.uc_mcontext;
    let entry = guarded::read_u64(registers.pc.wrapping_sub(INSTRUCTION_BYTES) as usize)?;
    (entry as u32 == SVC).then(|| registers.regs[8] as libc::c_long)
}

/// Makes the thread repeat the call with this first argument.
pub(super) fn repeat(context: &mut libc::ucontext_t, _number: libc::c_long, x0: u64) {
    context.uc_mcontext.regs[0] = x0;
    context.uc_mcontext.pc -= INSTRUCTION_BYTES;
}
