//! Walks a stack from function to caller, by the rules of the tables. Runs in signal handlers and allocator hooks: no allocation, no
//! lock, no thread-local storage, under 0.5 KB of stack. All memory is read through [`Memory`].

use spanprof_signal::{Memory, RawFrame, RawStack};

use crate::end::WalkEnd;
use crate::registers::{
    is_signal_return, return_address, saved_position, Registers, CONTEXT_REGISTERS, SAVED_PC, SIGNAL_CONTEXT,
};
use crate::rule::{self, CallerFramePointer, FrameAddress, ReturnAddress, UnwindRule, FRAME_POINTER, STACK_POINTER};
use crate::snapshot::Snapshot;

/// A function on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeFrame {
    /// The interrupted instruction, or an address in the call instruction of a caller: names and lines of this address are right.
    pub pc: u64,
    /// Its part of the stack begins here.
    pub stack_pointer: u64,
    /// The end of that part: the stack pointer of the caller. Equal to its begin for a signal frame, which may be on another stack, and on
    /// arm64 for a function that has saved nothing.
    pub frame_address: u64,
    /// Whether a signal interrupted the caller: the kernel's context is at the frame address.
    pub is_signal_frame: bool,
}

/// First address that can be code: page zero is none.
const FIRST_CODE: u64 = 4096;
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
    /// Whether the stack pointer is only a bound: on arm64 the saved frame pointer may be anywhere in its frame.
    is_stack_pointer_lost: bool,
}

impl<'s, M: Memory> Walk<'s, M> {
    pub(crate) fn new(tables: &'s Snapshot, memory: M, registers: Registers, saved: Option<u64>) -> Self {
        Self { tables, memory, registers, is_interrupted: true, saved, is_guessed: false, is_stack_pointer_lost: false }
    }

    /// With a stack pointer that is only a bound, as that of a caller found by its callee's frame pointer is on arm64.
    #[must_use]
    pub fn with_lost_stack_pointer(self) -> Self {
        Self { is_stack_pointer_lost: cfg!(target_arch = "aarch64"), ..self }
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
        let is_signal_frame =
            rule.frame_address == FrameAddress::SignalFrame || rule == UnwindRule::NONE && self.returns_from_signal();
        let frame_address = match rule.frame_address {
            _ if is_signal_frame => {
                self.restore(stack_pointer.wrapping_add(SIGNAL_CONTEXT + CONTEXT_REGISTERS))?;
                stack_pointer
            }
            FrameAddress::Unknown => self.without_rule()?,
            FrameAddress::Root => return Err(WalkEnd::Root),
            _ => {
                let frame_address = self.frame_address(rule)?;
                let frame_pointer = self.caller_frame_pointer(rule, frame_address)?;
                self.leave(frame_address, frame_pointer, rule.return_address)?;
                frame_address
            }
        };
        Ok(NativeFrame { pc, stack_pointer, frame_address, is_signal_frame })
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
            STACK_POINTER if self.is_stack_pointer_lost => Err(WalkEnd::UnknownRegister),
            STACK_POINTER => Ok(self.registers.stack_pointer),
            FRAME_POINTER => self.registers.frame_pointer.ok_or(WalkEnd::UnknownRegister),
            _ => {
                let position = saved_position(number).ok_or(WalkEnd::UnknownRegister)?;
                self.word(self.saved.ok_or(WalkEnd::UnknownRegister)?.wrapping_add(8 * position))
            }
        }
    }

    #[inline]
    fn frame_address(&self, rule: UnwindRule) -> Result<u64, WalkEnd> {
        let plus = |register: u64, offset: i32| register.wrapping_add_signed(i64::from(offset));
        match rule.frame_address {
            FrameAddress::Register { register: STACK_POINTER, .. } if self.is_stack_pointer_lost => {
                // The frame pointer points to where it is saved (AAPCS64, 6.4.6).
                let CallerFramePointer::Saved { words } = rule.frame_pointer else {
                    return Err(WalkEnd::UnknownRegister);
                };
                Ok(self.register(FRAME_POINTER)?.wrapping_add_signed(-8 * i64::from(words)))
            }
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
    fn leave(
        &mut self,
        frame_address: u64,
        frame_pointer: Option<u64>,
        saved_at: ReturnAddress,
    ) -> Result<(), WalkEnd> {
        let is_empty = frame_address == self.registers.stack_pointer && saved_at == ReturnAddress::InRegister;
        if frame_address <= self.registers.stack_pointer && !is_empty || !frame_address.is_multiple_of(8) {
            return Err(WalkEnd::InvalidFrame);
        }
        let saved = match saved_at {
            ReturnAddress::InRegister => self.registers.link.ok_or(WalkEnd::UnknownRegister)?,
            ReturnAddress::Saved { words } => {
                let address = frame_address.wrapping_add_signed(8 * i64::from(words));
                let is_large = frame_address - self.registers.stack_pointer > LARGE_FRAME_BYTES;
                if is_large {
                    self.doubtful_word(address)?
                } else {
                    self.word(address)?
                }
            }
        };
        self.enter_caller(return_address(saved), frame_address, frame_pointer)
    }

    #[inline]
    fn enter_caller(&mut self, pc: u64, stack_pointer: u64, frame_pointer: Option<u64>) -> Result<(), WalkEnd> {
        if pc < FIRST_CODE {
            return Err(WalkEnd::Root);
        }
        self.registers = Registers { pc, stack_pointer, frame_pointer, link: None };
        self.is_interrupted = false;
        self.saved = None;
        self.is_stack_pointer_lost = false;
        Ok(())
    }

    /// Continues in the function that a signal interrupted.
    fn restore(&mut self, saved: u64) -> Result<(), WalkEnd> {
        let register = |position: u64| self.word(saved.wrapping_add(8 * position));
        let by_number = |number: u8| register(saved_position(number).unwrap_or(0));
        let registers = Registers {
            pc: register(SAVED_PC)?,
            stack_pointer: by_number(STACK_POINTER)?,
            frame_pointer: Some(by_number(FRAME_POINTER)?),
            link: if cfg!(target_arch = "aarch64") { Some(by_number(rule::RETURN_ADDRESS)?) } else { None },
        };
        if registers.pc < FIRST_CODE {
            return Err(WalkEnd::InvalidFrame);
        }
        self.registers = registers;
        self.is_interrupted = true;
        self.saved = Some(saved);
        self.is_stack_pointer_lost = false;
        Ok(())
    }

    /// Whether the current code is that to which handlers return, without unwind information.
    fn returns_from_signal(&self) -> bool {
        cfg!(target_arch = "aarch64") && self.word(self.registers.pc).is_ok_and(is_signal_return)
    }

    /// The caller of code without a rule: by the return address at the stack pointer or in the link register of an interrupted function,
    /// which short assembly and linkage tables have, else by the frame pointer. Both must follow a call.
    fn without_rule(&mut self) -> Result<u64, WalkEnd> {
        let Registers { stack_pointer, frame_pointer, .. } = self.registers;
        if self.is_interrupted && self.has_no_frame() {
            let frame_address = stack_pointer.wrapping_add(if cfg!(target_arch = "x86_64") { 8 } else { 0 });
            self.leave(frame_address, frame_pointer, ReturnAddress::OF_CALL)?;
            self.is_guessed = true;
            return Ok(frame_address);
        }
        let (return_address, _, _) = self.by_frame_pointer()?;
        if !self.is_call_of_current(return_address) {
            return Err(WalkEnd::NoRule);
        }
        self.leave_by_frame_pointer()
    }

    /// Whether an interrupted function without a rule has its return address where its call left it.
    fn has_no_frame(&self) -> bool {
        let Some(link) = self.registers.link.map(return_address) else {
            return self.word(self.registers.stack_pointer).is_ok_and(|word| self.follows_call(word));
        };
        // After a call, the register contains an address of this function, which has no rule.
        let is_of_caller =
            self.follows_call(link) && self.tables.rule(link - 1).is_ok_and(|rule| rule != UnwindRule::NONE);
        is_of_caller && self.by_frame_pointer().map_or(true, |(saved, ..)| saved != link)
    }

    /// Moves to the caller of code that is in no file and has frame pointers, as generated code mostly has.
    pub fn step_by_frame_pointer(&mut self) -> Result<NativeFrame, WalkEnd> {
        let (pc, stack_pointer) = (self.pc(), self.registers.stack_pointer);
        let frame_address = self.leave_by_frame_pointer()?;
        Ok(NativeFrame { pc, stack_pointer, frame_address, is_signal_frame: false })
    }

    fn leave_by_frame_pointer(&mut self) -> Result<u64, WalkEnd> {
        let (return_address, frame_address, caller) = self.by_frame_pointer()?;
        if frame_address <= self.registers.stack_pointer {
            return Err(WalkEnd::InvalidFrame);
        }
        self.enter_caller(return_address, frame_address, Some(caller))?;
        self.is_guessed = true;
        self.is_stack_pointer_lost = cfg!(target_arch = "aarch64");
        Ok(frame_address)
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

/// Whether code ends with an indirect call: `ff /2` with one of the lengths of its operand.
pub fn is_indirect_call(code: &[u8; 8]) -> bool {
    // Bits 3 to 5 of the byte after the operation code are 2.
    let has_length =
        |length: usize| matches!(code.get(8 - length..), Some([0xff, operand, ..]) if operand >> 3 & 7 == 2);
    [2, 3, 4, 6, 7].into_iter().any(has_length)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::snapshot::{Image, ObjectCode, TableState};

    const CODE: Range<u64> = 0x40_0000..0x41_0000;

    /// Every address outside of the page at 0x7000 and of the code would fault; each word there is one.
    struct OnePage;

    impl Memory for OnePage {
        fn word(&self, address: usize) -> Option<usize> {
            assert!(address >> 12 == 7 || CODE.contains(&(address as u64)), "{address:x}");
            Some(0xdead_beef_0000)
        }

        fn guess(&self, address: usize) -> Option<usize> {
            (address >> 12 == 7).then_some(0xdead_beef_0000)
        }
    }

    #[test]
    fn a_frame_pointer_with_another_value_causes_no_fault() {
        let image = Image { code: CODE, base: 0, file: "".into() };
        let tables = Snapshot::new(vec![ObjectCode::new(image, TableState::LeftOut)]);
        let ends = [(0x7ff8, WalkEnd::FaultedRead), (0x9000, WalkEnd::FaultedRead), (0x7010, WalkEnd::NoRule)];
        for (frame_pointer, end) in ends {
            let registers =
                Registers { pc: CODE.start, stack_pointer: 0x7008, frame_pointer: Some(frame_pointer), link: None };
            let mut walk = Walk::new(&tables, OnePage, registers, None);
            assert_eq!(walk.step(), Err(end), "{frame_pointer:x}");
        }
    }
}
