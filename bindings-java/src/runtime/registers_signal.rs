//! The registers of an interrupted Java thread, as the walk needs them.

#[cfg(target_arch = "x86_64")]
use super::memory_signal::{int, word};

/// What the walk needs of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// Where the interpreter keeps its place in the byte code; at a method's entry, the caller's stack pointer.
    pub byte_code: usize,
    /// Where the interpreter finds the method it enters.
    pub method: usize,
    /// Where the interpreter keeps its caller while it makes room for a method's variables, where the machine has such a
    /// register; else 0.
    pub kept_caller: usize,
    /// The return address of a leaf, where the machine keeps it in a register; else 0.
    pub link: usize,
}

/// Each by the C library's number of the register that it is in.
#[cfg(target_arch = "x86_64")]
fn by_number(register: impl Fn(libc::c_int) -> Option<usize>) -> Option<Registers> {
    Some(Registers {
        pc: register(libc::REG_RIP)?,
        sp: register(libc::REG_RSP)?,
        fp: register(libc::REG_RBP)?,
        byte_code: register(libc::REG_R13)?,
        method: register(libc::REG_RBX)?,
        kept_caller: register(libc::REG_RAX)?,
        link: 0,
    })
}

#[cfg(target_arch = "x86_64")]
pub fn registers(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext.gregs;
    by_number(|which| Some(registers[which as usize] as usize)).unwrap_or_default()
}

#[cfg(target_arch = "aarch64")]
pub fn registers(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext;
    let register = |which: usize| registers.regs[which] as usize;
    Registers {
        pc: registers.pc as usize,
        sp: registers.sp as usize,
        fp: register(29),
        byte_code: register(22),
        method: register(12),
        kept_caller: 0,
        link: register(30),
    }
}

/// What a thread executed when it faulted, if what lies at `frame` is the frame of a fault's handler.
#[cfg(target_arch = "x86_64")]
pub fn at_fault(frame: usize) -> Option<Registers> {
    /// The kernel's context, as long as its C counterpart up to the registers, ends with its mask; then comes the signal.
    const CONTEXT: usize = 8;
    const SIGNAL: usize = CONTEXT + 304;
    const REGISTERS: usize = CONTEXT + std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
    let signal = int(frame.checked_add(SIGNAL)?)?;
    if signal != libc::SIGSEGV && signal != libc::SIGBUS {
        return None;
    }
    by_number(|which| word(frame + REGISTERS + which as usize * 8))
}

/// Handlers' frames of other machines are not known.
#[cfg(target_arch = "aarch64")]
pub fn at_fault(_frame: usize) -> Option<Registers> {
    None
}

/// The return address in a register, where the machine has one.
#[inline]
pub fn link(registers: &Registers) -> Option<usize> {
    (registers.link != 0).then_some(registers.link)
}

/// The same registers, but those of a caller.
#[cfg(target_arch = "x86_64")]
pub fn at_caller(context: &libc::ucontext_t, [pc, sp, fp]: [usize; 3]) -> libc::ucontext_t {
    let mut callers = *context;
    for (register, value) in [(libc::REG_RIP, pc), (libc::REG_RSP, sp), (libc::REG_RBP, fp)] {
        callers.uc_mcontext.gregs[register as usize] = value as i64;
    }
    callers
}

#[cfg(target_arch = "aarch64")]
pub fn at_caller(context: &libc::ucontext_t, [pc, sp, fp]: [usize; 3]) -> libc::ucontext_t {
    let mut callers = *context;
    (callers.uc_mcontext.pc, callers.uc_mcontext.sp) = (pc as u64, sp as u64);
    callers.uc_mcontext.regs[29] = fp as u64;
    callers
}
