//! Walks a stack from function to caller, by the rules of the tables. Runs in signal handlers and allocator hooks: no allocation, no
//! lock, no thread-local storage, under 0.5 KB of stack. All memory is read through [`Memory`].
//!
//! # Layouts
//! | what | where | versions |
//! |---|---|---|
//! | registers in the kernel's `ucontext_t` | 40 bytes from its start, in the order of `REG_R8` … (`sysdeps/unix/sysv/linux/x86/sys/ucontext.h`) | glibc 2.17–2.43, musl |
//! | the context of a handler's frame | at the stack pointer in `__restore_rt` (`arch/x86/include/asm/sigframe.h`: `rt_sigframe`) | Linux 2.6–6.18 |

use std::arch::asm;

use spanprof_signal::{Memory, RawFrame, RawStack};

use crate::end::WalkEnd;
use crate::rule::{CallerFramePointer, FrameAddress, UnwindRule, FRAME_POINTER, STACK_POINTER};
use crate::snapshot::Snapshot;

/// Registers of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction, or the return address in a caller.
    pub pc: u64,
    /// rsp, or sp.
    pub stack_pointer: u64,
    /// rbp, or x29. `None`: not known.
    pub frame_pointer: Option<u64>,
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
        #[cfg(target_arch = "aarch64")]
        // SAFETY: copies registers; accesses no memory.
        unsafe {
            asm!("adr {}, .", "mov {}, sp", "mov {}, x29",
                out(reg) pc, out(reg) stack_pointer, out(reg) frame_pointer,
                options(nomem, nostack, preserves_flags));
        }
        Self { pc, stack_pointer, frame_pointer: Some(frame_pointer) }
    }

    /// Of the interrupted function.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn interrupted(context: &libc::ucontext_t) -> Self {
        let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as u64;
        let frame_pointer = Some(register(libc::REG_RBP));
        Self { pc: register(libc::REG_RIP), stack_pointer: register(libc::REG_RSP), frame_pointer }
    }

    /// Of the interrupted function.
    #[cfg(target_arch = "aarch64")]
    #[inline]
    pub fn interrupted(context: &libc::ucontext_t) -> Self {
        let registers = &context.uc_mcontext;
        Self { pc: registers.pc, stack_pointer: registers.sp, frame_pointer: Some(registers.regs[29]) }
    }
}

/// A function on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// The interrupted instruction, or an address in the call instruction of a caller: names and lines of this address are right.
    pub pc: u64,
    /// Its part of the stack begins here.
    pub stack_pointer: u64,
    /// The end of that part: the stack pointer of the caller. Equal to its begin for a signal frame, which may be on another stack.
    pub frame_address: u64,
}

/// First address that can be code: page zero is none.
const FIRST_CODE: u64 = 4096;
/// Offset of the registers in a `ucontext_t`.
pub const CONTEXT_REGISTERS: u64 = 40;
const SAVED_PC: u64 = 16;
/// The place of each register, by its DWARF number, in the kernel's context.
const SAVED: [u8; 16] = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
/// Bytes that an entry of a linkage table has; lazy ones push a word in it.
const LINKAGE_ENTRY_BYTES: u64 = 16;
/// Size up to which code without rules is taken for one function.
const MAX_FUNCTION_BYTES: u64 = 64 << 10;
/// The return address of a larger frame may lie beyond the end of the stack, if a register has another value than its rule needs.
const LARGE_FRAME_BYTES: u64 = 64 << 10;
/// Maximum distance of two frame pointers of a real stack.
const MAX_FRAME_BYTES: u64 = 4 << 20;

/// A walk in progress.
#[derive(Clone)]
pub struct Walk<'s, M> {
    tables: &'s Snapshot,
    memory: M,
    registers: Registers,
    /// Whether `pc` is an instruction that was about to execute, not a return address.
    is_interrupted: bool,
    /// Address of the interrupted function's registers in a context of the kernel; `None` in callers.
    saved: Option<u64>,
    /// Whether a caller was found without a rule: the consumer must confirm it by other means.
    is_guessed: bool,
}

impl<'s, M: Memory> Walk<'s, M> {
    pub(crate) fn new(tables: &'s Snapshot, memory: M, registers: Registers, saved: Option<u64>) -> Self {
        Self { tables, memory, registers, is_interrupted: true, saved, is_guessed: false }
    }

    /// The registers of the current function: exact for whoever continues where the tables end.
    #[inline]
    pub fn registers(&self) -> Registers {
        self.registers
    }

    /// Sets the frame pointer of the current function, which the caller found by other means.
    pub fn set_frame_pointer(&mut self, frame_pointer: u64) {
        self.registers.frame_pointer = Some(frame_pointer);
    }

    /// Whether a caller was found without a rule, by the frame pointer or a word on the stack: it may be wrong, and counts only if the
    /// walk later reaches what is known by other means.
    #[inline]
    pub fn is_guessed(&self) -> bool {
        self.is_guessed
    }

    /// The walk has reached what is known by other means: its guesses were right.
    #[inline]
    pub fn confirm(&mut self) {
        self.is_guessed = false;
    }

    /// The address that names the current function: that of the call in a caller.
    #[inline]
    pub fn pc(&self) -> u64 {
        self.registers.pc.wrapping_sub(u64::from(!self.is_interrupted))
    }

    /// The address at which the current function begins. Normal threads only.
    pub fn function_start(&self) -> Option<u64> {
        self.tables.function_start(self.pc())
    }

    /// Moves to the caller; returns the frame that it left. After an end the current function is the last one that is known.
    #[inline]
    pub fn step(&mut self) -> Result<NativeFrame, WalkEnd> {
        let pc = self.pc();
        let rule = match self.tables.rule(pc) {
            Err(WalkEnd::NoTable) => UnwindRule::NONE,
            rule => rule?,
        };
        let stack_pointer = self.registers.stack_pointer;
        let frame_address = match rule.frame_address {
            FrameAddress::Unknown => self.without_rule()?,
            FrameAddress::Root => return Err(WalkEnd::Root),
            FrameAddress::SignalFrame => {
                self.restore(stack_pointer.wrapping_add(CONTEXT_REGISTERS))?;
                return Ok(NativeFrame { pc, stack_pointer, frame_address: stack_pointer });
            }
            _ => {
                let frame_address = self.frame_address(rule)?;
                let frame_pointer = self.caller_frame_pointer(rule, frame_address)?;
                self.leave(frame_address, frame_pointer)?;
                frame_address
            }
        };
        Ok(NativeFrame { pc, stack_pointer, frame_address })
    }

    /// Writes the current function and its callers down to the root of the thread. `frame_of` makes the frame of an address; `None`
    /// leaves the function out. Where the root side is missing, the last frame is the reason. Returns the end, which is counted.
    pub fn write_to_root(
        &mut self,
        stack: &mut RawStack<'_>,
        frame_of: impl Fn(&RawStack<'_>, u64) -> Option<RawFrame>,
    ) -> WalkEnd {
        let mut certain_frames = None;
        let end = loop {
            let frame = frame_of(stack, self.pc());
            if frame.is_some_and(|frame| !stack.push(frame)) {
                break WalkEnd::Stopped;
            }
            // Code that a library generates (such as wasmtime) has frame pointers.
            let step = self.step().or_else(|end| match end {
                WalkEnd::OutsideFiles => self.step_by_frame_pointer().map_err(|_| end),
                _ => Err(end),
            });
            if let Err(end) = step {
                break end;
            }
            if self.is_guessed {
                certain_frames.get_or_insert(stack.len());
            }
        };
        end.count();
        if let Some(reason) = end.missing_callers() {
            // Nothing confirms the callers that were found without a rule.
            stack.truncate(certain_frames.unwrap_or(stack.len()));
            stack.push(RawFrame::reason(reason));
        }
        end
    }

    #[inline]
    fn word(&self, address: u64) -> Result<u64, WalkEnd> {
        if self.is_guessed {
            return self.doubtful_word(address);
        }
        self.memory.word(address as usize).map(|word| word as u64).ok_or(WalkEnd::FaultedRead)
    }

    /// The word at an address that is of this stack only if the frame pointer is one. No fault outside of the page of the stack
    /// pointer.
    fn doubtful_word(&self, address: u64) -> Result<u64, WalkEnd> {
        const PAGE_BITS: u32 = 12;
        let is_on_page = |address: u64| address >> PAGE_BITS == self.registers.stack_pointer >> PAGE_BITS;
        let word = if is_on_page(address) && is_on_page(address.wrapping_add(7)) {
            self.memory.word(address as usize)
        } else {
            self.memory.guess(address as usize)
        };
        word.map(|word| word as u64).ok_or(WalkEnd::FaultedRead)
    }

    #[inline]
    fn register(&self, number: u8) -> Result<u64, WalkEnd> {
        match number {
            STACK_POINTER => Ok(self.registers.stack_pointer),
            FRAME_POINTER => self.registers.frame_pointer.ok_or(WalkEnd::UnknownRegister),
            _ => {
                let place = SAVED.get(usize::from(number)).ok_or(WalkEnd::UnknownRegister)?;
                self.word(self.saved.ok_or(WalkEnd::UnknownRegister)?.wrapping_add(u64::from(*place) * 8))
            }
        }
    }

    #[inline]
    fn frame_address(&self, rule: UnwindRule) -> Result<u64, WalkEnd> {
        let plus = |register: u64, offset: i32| register.wrapping_add_signed(i64::from(offset));
        match rule.frame_address {
            FrameAddress::Register { register, offset } => Ok(plus(self.register(register)?, offset)),
            FrameAddress::Loaded { register, offset, words } => {
                Ok(self.word(plus(self.register(register)?, offset))?.wrapping_add(8 * u64::from(words)))
            }
            FrameAddress::LinkageTable { pushed_at } => {
                let has_pushed = self.registers.pc % LINKAGE_ENTRY_BYTES >= u64::from(pushed_at);
                Ok(self.registers.stack_pointer.wrapping_add(8 + 8 * u64::from(has_pushed)))
            }
            FrameAddress::Unknown | FrameAddress::Root | FrameAddress::SignalFrame => Err(WalkEnd::NoRule),
        }
    }

    #[inline]
    fn caller_frame_pointer(&self, rule: UnwindRule, frame_address: u64) -> Result<Option<u64>, WalkEnd> {
        match rule.frame_pointer {
            CallerFramePointer::Unchanged => Ok(self.registers.frame_pointer),
            CallerFramePointer::Lost => Ok(None),
            CallerFramePointer::Saved { words } => {
                self.word(frame_address.wrapping_add_signed(8 * i64::from(words))).map(Some)
            }
            CallerFramePointer::SavedAtFramePointer => match self.registers.frame_pointer {
                // GCC's rules are wrong at two instructions at the end, where it is a register of the caller.
                Some(address) => self.doubtful_word(address).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Returns to the caller with this frame address.
    #[inline]
    fn leave(&mut self, frame_address: u64, frame_pointer: Option<u64>) -> Result<(), WalkEnd> {
        if frame_address <= self.registers.stack_pointer || !frame_address.is_multiple_of(8) {
            return Err(WalkEnd::InvalidFrame);
        }
        let is_large = frame_address - self.registers.stack_pointer > LARGE_FRAME_BYTES;
        let saved = if is_large { self.doubtful_word(frame_address - 8)? } else { self.word(frame_address - 8)? };
        let pc = return_address(saved);
        if pc < FIRST_CODE {
            return Err(WalkEnd::Root);
        }
        self.registers = Registers { pc, stack_pointer: frame_address, frame_pointer };
        self.is_interrupted = false;
        self.saved = None;
        Ok(())
    }

    /// Continues in the function that a signal interrupted.
    fn restore(&mut self, saved: u64) -> Result<(), WalkEnd> {
        let register = |place: u64| self.word(saved.wrapping_add(8 * place));
        let [stack_pointer, frame_pointer] =
            [STACK_POINTER, FRAME_POINTER].map(|number| SAVED.get(usize::from(number)).map_or(0, |place| *place));
        let registers = Registers {
            pc: register(SAVED_PC)?,
            stack_pointer: register(u64::from(stack_pointer))?,
            frame_pointer: Some(register(u64::from(frame_pointer))?),
        };
        if registers.pc < FIRST_CODE {
            return Err(WalkEnd::InvalidFrame);
        }
        self.registers = registers;
        self.is_interrupted = true;
        self.saved = Some(saved);
        Ok(())
    }

    /// The caller of code without a rule: by the return address at the stack pointer of an interrupted function, which short
    /// assembly and linkage tables have, else by the frame pointer. Both must follow a call.
    fn without_rule(&mut self) -> Result<u64, WalkEnd> {
        let Registers { stack_pointer, frame_pointer, .. } = self.registers;
        let at_stack_pointer =
            self.is_interrupted && self.word(stack_pointer).is_ok_and(|word| self.follows_call(word));
        if at_stack_pointer {
            let frame_address = stack_pointer.wrapping_add(8);
            self.leave(frame_address, frame_pointer)?;
            self.is_guessed = true;
            return Ok(frame_address);
        }
        let (return_address, frame_address, caller) = self.by_frame_pointer()?;
        if !self.is_call_of_current(return_address) {
            return Err(WalkEnd::NoRule);
        }
        self.leave(frame_address, Some(caller))?;
        self.is_guessed = true;
        Ok(frame_address)
    }

    /// Moves to the caller of code that is in no file and has frame pointers, as generated code mostly has.
    pub fn step_by_frame_pointer(&mut self) -> Result<NativeFrame, WalkEnd> {
        let (pc, stack_pointer) = (self.pc(), self.registers.stack_pointer);
        let (_, frame_address, caller) = self.by_frame_pointer()?;
        self.leave(frame_address, Some(caller))?;
        self.is_guessed = true;
        Ok(NativeFrame { pc, stack_pointer, frame_address })
    }

    /// Return address, frame address and the caller's frame pointer by the current frame pointer, if it is near.
    fn by_frame_pointer(&self) -> Result<(u64, u64, u64), WalkEnd> {
        let frame_pointer = self.registers.frame_pointer.ok_or(WalkEnd::NoRule)?;
        if frame_pointer == 0 && cfg!(target_arch = "aarch64") {
            return Err(WalkEnd::Root);
        }
        let is_near =
            frame_pointer.checked_sub(self.registers.stack_pointer).is_some_and(|bytes| bytes <= MAX_FRAME_BYTES);
        if !is_near || !frame_pointer.is_multiple_of(8) {
            return Err(WalkEnd::NoRule);
        }
        let frame_address = frame_pointer.wrapping_add(16);
        let return_address = return_address(self.doubtful_word(frame_address - 8)?);
        Ok((return_address, frame_address, self.doubtful_word(frame_pointer)?))
    }

    /// Whether the call before a return address is of the current function. A frame pointer that this function did not set is that
    /// of a caller's caller: on x86-64 the call must be a direct one into this code.
    fn is_call_of_current(&self, return_address: u64) -> bool {
        if cfg!(target_arch = "aarch64") {
            return self.follows_call(return_address);
        }
        if self.tables.object(return_address.wrapping_sub(8)).is_none() {
            return false;
        }
        let Ok(code) = self.word(return_address.wrapping_sub(8)).map(u64::to_le_bytes) else { return false };
        let [.., 0xe8, a, b, c, d] = code else { return false };
        let target = return_address.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
        let is_near = self.pc().checked_sub(target).is_some_and(|bytes| bytes < MAX_FUNCTION_BYTES);
        is_near && self.tables.rule(target).is_ok_and(|rule| rule == UnwindRule::NONE)
    }

    /// Whether a word is the address after a call: of a function of a loaded file (`e8`), or an indirect one (`ff /2`).
    fn follows_call(&self, word: u64) -> bool {
        if word < FIRST_CODE || self.tables.object(word - 8).is_none() {
            return false;
        }
        let Ok(code) = self.word(word - 8).map(u64::to_le_bytes) else { return false };
        if cfg!(target_arch = "aarch64") {
            // `bl` or `blr`.
            let instruction = u32::from_le_bytes([code[4], code[5], code[6], code[7]]);
            return instruction >> 26 == 0b10_0101 || instruction & 0xffff_fc1f == 0xd63f_0000;
        }
        if let [.., 0xe8, a, b, c, d] = code {
            let target = word.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
            if self.tables.object(target).is_some() {
                return true;
            }
        }
        is_indirect_call(&code)
    }
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

/// Whether code ends with an indirect call: `ff /2` with one of the lengths of its operand.
pub fn is_indirect_call(code: &[u8; 8]) -> bool {
    // Bits 3 to 5 of the byte after the operation code are 2.
    let has_length =
        |length: usize| matches!(code.get(8 - length..), Some([0xff, operand, ..]) if operand >> 3 & 7 == 2);
    [2, 3, 4, 6, 7].into_iter().any(has_length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Image, ObjectCode, TableState};

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

    /// Every address outside of the page at 0x7000 would fault; each word there is one.
    struct OnePage;

    impl Memory for OnePage {
        fn word(&self, address: usize) -> Option<usize> {
            assert_eq!(address >> 12, 7, "{address:x}");
            Some(0xdead_beef_0000)
        }

        fn guess(&self, address: usize) -> Option<usize> {
            (address >> 12 == 7).then_some(0xdead_beef_0000)
        }
    }

    #[test]
    fn a_frame_pointer_with_another_value_causes_no_fault() {
        let code = 0x40_0000..0x41_0000;
        let image = Image { code: code.clone(), base: 0, file: "".into() };
        let tables = Snapshot::new(vec![ObjectCode::new(image, TableState::LeftOut)]);
        let ends = [(0x7ff8, WalkEnd::FaultedRead), (0x9000, WalkEnd::FaultedRead), (0x7010, WalkEnd::NoRule)];
        for (frame_pointer, end) in ends {
            let registers = Registers { pc: code.start, stack_pointer: 0x7008, frame_pointer: Some(frame_pointer) };
            let mut walk = Walk::new(&tables, OnePage, registers, None);
            assert_eq!(walk.step(), Err(end), "{frame_pointer:x}");
        }
    }
}
