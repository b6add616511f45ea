//! The registers of an interrupted Java thread that the stack walker uses.

use crate::runtime::vm::memory::VmMemory;

/// Registers by their role in HotSpot.
#[derive(Clone, Copy, Debug, Default)]
pub struct JavaRegisters {
    pub pc: usize,
    pub sp: usize,
    pub fp: usize,
    /// The interpreter's bytecode pointer; at a method's entry, the sender's stack pointer.
    pub bcp: usize,
    /// The method that the interpreter enters.
    pub method: usize,
    /// The return address while the interpreter allocates locals, where the architecture has such a register; else 0.
    pub saved_return: usize,
    /// The link register, where the architecture has one; else 0.
    pub link: usize,
}

/// Reads each register by its index in `gregs`.
#[cfg(target_arch = "x86_64")]
fn by_number(register: impl Fn(libc::c_int) -> Option<usize>) -> Option<JavaRegisters> {
    Some(JavaRegisters {
        pc: register(libc::REG_RIP)?,
        sp: register(libc::REG_RSP)?,
        fp: register(libc::REG_RBP)?,
        bcp: register(libc::REG_R13)?,
        method: register(libc::REG_RBX)?,
        saved_return: register(libc::REG_RAX)?,
        link: 0,
    })
}

#[cfg(target_arch = "x86_64")]
pub fn registers(context: &libc::ucontext_t) -> JavaRegisters {
    let registers = &context.uc_mcontext.gregs;
    by_number(|index| Some(registers[index as usize] as usize)).unwrap_or_default()
}

#[cfg(target_arch = "aarch64")]
pub fn registers(context: &libc::ucontext_t) -> JavaRegisters {
    let registers = &context.uc_mcontext;
    let register = |index: usize| registers.regs[index] as usize;
    JavaRegisters {
        pc: registers.pc as usize,
        sp: registers.sp as usize,
        fp: register(29),
        bcp: register(22),
        method: register(12),
        saved_return: 0,
        link: register(30),
    }
}

/// The registers in the context of a signal, which the kernel wrote at this address.
#[cfg(target_arch = "x86_64")]
pub fn interrupted_by_signal(memory: impl VmMemory, context: usize) -> Option<JavaRegisters> {
    // The kernel's ucontext equals the C type up to the registers.
    const REGISTERS: usize = std::mem::offset_of!(libc::ucontext_t, uc_mcontext);
    by_number(|index| memory.load(context.checked_add(REGISTERS + index as usize * 8)?))
}

/// Signal frames are not decoded on this architecture.
#[cfg(target_arch = "aarch64")]
pub fn interrupted_by_signal(_memory: impl VmMemory, _context: usize) -> Option<JavaRegisters> {
    None
}

/// The return address in the link register, if there is one.
#[inline]
pub fn link(registers: &JavaRegisters) -> Option<usize> {
    (registers.link != 0).then_some(registers.link)
}

/// A copy of the context with the registers of a caller.
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
