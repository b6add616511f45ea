//! The registers of an interrupted Java thread, and what the instructions around its program counter say of its frame.

#[cfg(target_arch = "x86_64")]
use super::memory_signal::word;

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

/// How far a compiled method has taken down its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "other machines keep their return address"))]
pub enum Epilogue {
    /// The return address is on top of the stack.
    FrameGone,
    /// The caller's frame pointer is on top of the stack, then the return address.
    FramePointerLeft,
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

/// Whether compiled code at `pc` is about to return.
#[cfg(target_arch = "x86_64")]
pub fn epilogue(pc: usize) -> Option<Epilogue> {
    match word(pc)?.to_le_bytes() {
        [0xc3 | 0xc2, ..] => Some(Epilogue::FrameGone),
        [0x5d, ..] => Some(Epilogue::FramePointerLeft),
        // The safepoint poll before the return: the stack pointer against a word of the thread, then a branch.
        [0x49, 0x3b, 0x67 | 0xa7, ..] | [0x0f, 0x87, _, _, _, _, 0xc3, _] => Some(Epilogue::FrameGone),
        _ => None,
    }
}

#[cfg(target_arch = "aarch64")]
pub fn epilogue(_pc: usize) -> Option<Epilogue> {
    None
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    #[test]
    fn returns_and_the_poll_before_them_have_no_frame() {
        let at = |code: &[u8; 8]| epilogue(code.as_ptr() as usize);
        assert_eq!(at(&[0xc3, 0, 0, 0, 0, 0, 0, 0]), Some(Epilogue::FrameGone));
        assert_eq!(at(&[0x5d, 0x49, 0x3b, 0, 0, 0, 0, 0]), Some(Epilogue::FramePointerLeft));
        assert_eq!(at(&[0x49, 0x3b, 0x67, 0x18, 0x0f, 0x87, 0, 0]), Some(Epilogue::FrameGone));
        assert_eq!(at(&[0x0f, 0x87, 1, 2, 3, 4, 0xc3, 0]), Some(Epilogue::FrameGone));
        assert_eq!(at(&[0x48, 0x89, 0xe5, 0, 0, 0, 0, 0]), None);
    }
}
