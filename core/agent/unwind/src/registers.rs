//! The registers that a walk follows, and where the kernel saves them. Safe in handlers.
//!
//! # Layouts
//! | what | where | versions |
//! |---|---|---|
//! | registers in the kernel's `ucontext_t`, x86-64 | 40 bytes from its start, in the order of `REG_R8` … (`sysdeps/unix/sysv/linux/x86/sys/ucontext.h`) | glibc 2.17–2.43, musl |
//! | the same, arm64 | 184 bytes from its start, in the order of their DWARF numbers, then the program counter (`arch/arm64/include/uapi/asm/ucontext.h`, `sigcontext.h`) | Linux 3.7–6.18 |
//! | the context of a handler's frame, x86-64 | at the stack pointer in `__restore_rt` (`arch/x86/include/asm/sigframe.h`: `rt_sigframe`) | Linux 2.6–6.18 |
//! | the same, arm64 | behind `siginfo_t` at the stack pointer (`arch/arm64/kernel/signal.c`: `rt_sigframe`) | Linux 3.7–6.18 |
//! | the code to which handlers return, arm64 | `mov x8, #139; svc #0` (`arch/arm64/kernel/vdso/sigreturn.S`), without unwind information since 5.8 | Linux 3.7–6.18 |

use std::arch::asm;

/// Registers of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction, or the return address in a caller.
    pub pc: u64,
    /// rsp, or sp.
    pub stack_pointer: u64,
    /// rbp, or x29. `None`: not known.
    pub frame_pointer: Option<u64>,
    /// x30, which has the return address of a function that saved it nowhere. `None`: not known, as in callers, or no such register.
    pub link: Option<u64>,
}

impl Registers {
    /// Of the function in which this is inlined. It must not return before the walk.
    #[inline(always)]
    pub fn here() -> Self {
        let (pc, stack_pointer, frame_pointer);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "x86_64")]
        let link = None;
        #[cfg(target_arch = "aarch64")]
        let link: u64;
        #[cfg(target_arch = "aarch64")]
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("adr {}, .", "mov {}, sp", "mov {}, x29", "mov {}, x30",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer, out(reg) link,
                options(nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        let link = Some(link);
        Self { pc, stack_pointer, frame_pointer: Some(frame_pointer), link }
    }

    /// Of the interrupted function.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn interrupted(context: &libc::ucontext_t) -> Self {
        let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
        let frame_pointer = Some(register(libc::REG_RBP));
        Self { pc: register(libc::REG_RIP), stack_pointer: register(libc::REG_RSP), frame_pointer, link: None }
    }

    /// Of the interrupted function.
    #[cfg(target_arch = "aarch64")]
    #[inline]
    pub fn interrupted(context: &libc::ucontext_t) -> Self {
        let registers = &context.uc_mcontext;
        let [frame_pointer, link] = [29, 30].map(|number: usize| Some(registers.regs[number]));
        Self { pc: registers.pc, stack_pointer: registers.sp, frame_pointer, link }
    }
}

/// Offset of the registers in a `ucontext_t`.
pub const CONTEXT_REGISTERS: u64 = if cfg!(target_arch = "x86_64") { 40 } else { 184 };
/// Offset of the `ucontext_t` from the stack pointer in the code to which handlers return.
pub const SIGNAL_CONTEXT: u64 = if cfg!(target_arch = "x86_64") { 0 } else { 128 };
/// Position of the program counter among the saved registers.
pub const SAVED_PC: u64 = if cfg!(target_arch = "x86_64") { 16 } else { 32 };

/// Position among the saved registers of a register with this DWARF number.
#[inline]
pub fn saved_position(number: u8) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        const SAVED: [u8; 16] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
        SAVED.get(usize::from(number)).map(|position| u64::from(*position))
    }
    #[cfg(target_arch = "aarch64")]
    Some(u64::from(number)).filter(|position| *position < SAVED_PC)
}

/// Whether handlers return to code that begins with this word, of arm64.
#[inline]
pub fn is_signal_return(code: u64) -> bool {
    cfg!(target_arch = "aarch64") && code == 0xd400_0001_d280_1168
}

/// A saved return address without its authentication code, which programs compiled with `-mbranch-protection` have on arm64.
#[inline]
pub fn return_address(saved: u64) -> u64 {
    #[cfg(target_arch = "aarch64")]
    {
        let address;
        // SAFETY: `xpaclri` changes this register only; processors without pointer authentication ignore it (Arm ARM, C6.2).
        unsafe { asm!("hint #7", inout("x30") saved => address, options(pure, nomem, nostack, preserves_flags)) };
        address
    }
    #[cfg(not(target_arch = "aarch64"))]
    saved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "aarch64")]
    fn a_return_address_has_no_authentication_code() {
        let here = return_address as *const () as u64;
        for modifier in 0..16u64 {
            let signed: u64;
            // SAFETY: `paciasp`'s kind with another modifier (`pacia1716`): changes x17 only; ignored without authentication.
            unsafe { asm!("hint #8", inout("x17") here => signed, in("x16") modifier) };
            assert_eq!(return_address(signed), here, "{signed:x}");
        }
        assert_eq!(return_address(0x1234), 0x1234);
    }

    #[test]
    fn each_register_is_read_at_its_place_in_the_context() {
        // SAFETY: an all-zero context is a valid value.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        let word = |context: &libc::ucontext_t, position: u64| {
            let place = std::ptr::from_ref(context).cast::<u8>();
            // SAFETY: within the context.
            unsafe { place.add((CONTEXT_REGISTERS + 8 * position) as usize).cast::<u64>().read() }
        };
        #[cfg(target_arch = "x86_64")]
        {
            context.uc_mcontext.gregs = std::array::from_fn(|position| 100 + position as i64);
        }
        #[cfg(target_arch = "aarch64")]
        {
            context.uc_mcontext.regs = std::array::from_fn(|position| 100 + position as u64);
            (context.uc_mcontext.sp, context.uc_mcontext.pc) = (131, 132);
        }
        let registers = Registers::interrupted(&context);
        assert_eq!(word(&context, SAVED_PC), registers.pc);
        let by_number = |number| word(&context, saved_position(number).unwrap());
        assert_eq!(by_number(crate::rule::STACK_POINTER), registers.stack_pointer);
        assert_eq!(Some(by_number(crate::rule::FRAME_POINTER)), registers.frame_pointer);
    }
}
