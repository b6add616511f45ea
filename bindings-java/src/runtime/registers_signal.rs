//! The registers of an interrupted Java thread, as the walk needs them.

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
    /// The return address of a leaf, where the machine keeps it in a register; else 0.
    pub link: usize,
}

#[cfg(target_arch = "x86_64")]
pub fn registers(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext.gregs;
    let register = |which: libc::c_int| registers[which as usize] as usize;
    Registers {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
        byte_code: register(libc::REG_R13),
        method: register(libc::REG_RBX),
        link: 0,
    }
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
        link: register(30),
    }
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
