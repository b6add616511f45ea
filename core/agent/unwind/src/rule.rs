//! How to find the caller of one instruction: a row of `.eh_frame`, in eight bytes. Each distinct rule has one number in the
//! process, which tables store. Safe in handlers, except [`RuleNumbers`].
//!
//! # What rules cannot say
//! Of 2.3 million rows in 16 libraries for x86-64 (glibc 2.36, CPython 3.8–3.15, HotSpot 17–25, Node.js 20, numpy, OpenBLAS, OpenSSL)
//! every return address is at CFA − 8, and 3 to 5 rows per library have other expressions than those below: they count as no row.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of a [`UnwindRule`].
pub(crate) type RuleNumber = u16;

/// The number of [`UnwindRule::NONE`].
pub(crate) const NO_RULE: RuleNumber = 0;

/// DWARF numbers of registers (System V ABI for AMD64, 1.0, figure 3.36; DWARF for the Arm 64-bit Architecture, 4.1).
pub(crate) const FRAME_POINTER: u8 = if cfg!(target_arch = "x86_64") { 6 } else { 29 };
pub(crate) const STACK_POINTER: u8 = if cfg!(target_arch = "x86_64") { 7 } else { 31 };
pub(crate) const RETURN_ADDRESS: u8 = if cfg!(target_arch = "x86_64") { 16 } else { 30 };
/// Largest offset of a rule: further than from one end of a stack to the other.
pub(crate) const MAX_OFFSET: i32 = (1 << 23) - 1;

/// The canonical frame address: the stack pointer of the caller after the call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FrameAddress {
    /// No unwind information, or none that this module can express.
    Unknown,
    /// The first function of a thread: there is no caller.
    Root,
    /// The trampoline to which handlers return: the kernel's context is at the stack pointer.
    SignalFrame,
    /// A register plus bytes. Registers besides stack and frame pointer are known in the interrupted function only.
    Register { register: u8, offset: i32 },
    /// The word at a register plus bytes, plus `8 * words`: functions that realigned their stack (GCC), and perlasm.
    Loaded { register: u8, offset: i32, words: u8 },
    /// An entry of a procedure linkage table: stack pointer + 8, and 8 more from byte `pushed_at` of the entry on.
    LinkageTable { pushed_at: u8 },
}

/// The caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallerFramePointer {
    /// As it is.
    Unchanged,
    /// Saved at the frame address plus `8 * words`.
    Saved { words: i16 },
    /// Saved where the frame pointer points to.
    SavedAtFramePointer,
    /// In a place that rules cannot express.
    Lost,
}

/// Where the return address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReturnAddress {
    /// In the link register, of arm64.
    InRegister,
    /// At the frame address plus `8 * words`; -1 on x86-64.
    Saved { words: i16 },
}

impl ReturnAddress {
    /// Where a call leaves it.
    pub const OF_CALL: Self = if cfg!(target_arch = "x86_64") { Self::Saved { words: -1 } } else { Self::InRegister };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnwindRule {
    pub frame_address: FrameAddress,
    pub frame_pointer: CallerFramePointer,
    pub return_address: ReturnAddress,
}

impl UnwindRule {
    pub const NONE: Self = Self::without_frame(FrameAddress::Unknown);

    /// A rule that restores no register.
    pub const fn without_frame(frame_address: FrameAddress) -> Self {
        Self { frame_address, frame_pointer: CallerFramePointer::Unchanged, return_address: ReturnAddress::OF_CALL }
    }

    /// The rule in a word: kind (3 bits), register (5), saved frame pointer (16), the words of a loaded address on x86-64 or the return
    /// address on arm64 (16), offset (24).
    fn to_word(self) -> u64 {
        let (kind, register, offset, words) = match self.frame_address {
            FrameAddress::Unknown => (0, 0, 0, 0),
            FrameAddress::Root => (1, 0, 0, 0),
            FrameAddress::SignalFrame => (2, 0, 0, 0),
            FrameAddress::Register { register, offset } => (3, register, offset, 0),
            FrameAddress::Loaded { register, offset, words } => (4, register, offset, words),
            FrameAddress::LinkageTable { pushed_at } => (5, pushed_at, 0, 0),
        };
        let saved = match self.frame_pointer {
            CallerFramePointer::Unchanged => 0,
            CallerFramePointer::SavedAtFramePointer => i16::MAX,
            CallerFramePointer::Lost => i16::MIN,
            CallerFramePointer::Saved { words } => words,
        };
        let words = match self.return_address {
            _ if cfg!(target_arch = "x86_64") => u16::from(words),
            ReturnAddress::InRegister => 0,
            ReturnAddress::Saved { words } => words as u16,
        };
        kind | u64::from(register & 31) << 3
            | u64::from(saved as u16) << 8
            | u64::from(words) << 24
            | (offset as u64) << 40
    }

    fn of_word(word: u64) -> Self {
        let (register, words, offset) = ((word >> 3) as u8 & 31, (word >> 24) as u16, (word as i64 >> 40) as i32);
        let frame_address = match word & 7 {
            1 => FrameAddress::Root,
            2 => FrameAddress::SignalFrame,
            3 => FrameAddress::Register { register, offset },
            4 => FrameAddress::Loaded { register, offset, words: words as u8 },
            5 => FrameAddress::LinkageTable { pushed_at: register },
            _ => FrameAddress::Unknown,
        };
        let frame_pointer = match (word >> 8) as i16 {
            0 => CallerFramePointer::Unchanged,
            i16::MAX => CallerFramePointer::SavedAtFramePointer,
            i16::MIN => CallerFramePointer::Lost,
            words => CallerFramePointer::Saved { words },
        };
        let return_address = match words as i16 {
            _ if cfg!(target_arch = "x86_64") => ReturnAddress::OF_CALL,
            0 => ReturnAddress::InRegister,
            words => ReturnAddress::Saved { words },
        };
        Self { frame_address, frame_pointer, return_address }
    }

    /// The rule with this number.
    #[inline]
    pub fn of_number(number: RuleNumber) -> Self {
        RULES.get(usize::from(number)).map_or(Self::NONE, |word| Self::of_word(word.load(Ordering::Relaxed)))
    }
}

/// Distinct rules of a process: 1,600 were seen with 151 libraries.
const MAX_RULES: usize = 16_384;

/// Rules by number. Only appended to, before a table with the number is published.
static RULES: [AtomicU64; MAX_RULES] = [const { AtomicU64::new(0) }; MAX_RULES];
static RULE_COUNT: AtomicUsize = AtomicUsize::new(1);

/// Numbers rules while tables are built. A second one, as in a forked child, gives further numbers to equal rules.
#[derive(Default)]
pub(crate) struct RuleNumbers(HashMap<UnwindRule, RuleNumber>);

impl RuleNumbers {
    /// The number of a rule; that of no rule if there are too many.
    pub fn number(&mut self, rule: UnwindRule) -> RuleNumber {
        if rule == UnwindRule::NONE {
            return NO_RULE;
        }
        if let Some(number) = self.0.get(&rule) {
            return *number;
        }
        if RULE_COUNT.load(Ordering::Relaxed) >= MAX_RULES {
            return NO_RULE;
        }
        let number = RULE_COUNT.fetch_add(1, Ordering::Relaxed);
        let Some(word) = RULES.get(number) else { return NO_RULE };
        word.store(rule.to_word(), Ordering::Relaxed);
        self.0.insert(rule, number as RuleNumber);
        number as RuleNumber
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_the_same_after_its_form_in_a_word() {
        for frame_address in [
            FrameAddress::Unknown,
            FrameAddress::Root,
            FrameAddress::SignalFrame,
            FrameAddress::Register { register: 10, offset: -8 },
            FrameAddress::Register { register: STACK_POINTER, offset: MAX_OFFSET },
            #[cfg(target_arch = "x86_64")]
            FrameAddress::Loaded { register: FRAME_POINTER, offset: -56, words: 255 },
            FrameAddress::LinkageTable { pushed_at: 11 },
        ] {
            for frame_pointer in [
                CallerFramePointer::Unchanged,
                CallerFramePointer::SavedAtFramePointer,
                CallerFramePointer::Lost,
                CallerFramePointer::Saved { words: -2 },
                CallerFramePointer::Saved { words: 300 },
            ] {
                let rule = UnwindRule { frame_address, frame_pointer, return_address: ReturnAddress::OF_CALL };
                assert_eq!(UnwindRule::of_word(rule.to_word()), rule);
            }
        }
    }

    #[test]
    #[cfg(target_arch = "aarch64")]
    fn a_rule_says_where_the_return_address_is() {
        let frame_address = FrameAddress::Register { register: STACK_POINTER, offset: 4080 };
        for words in [-510, -509, -1, 7] {
            let (frame_pointer, return_address) =
                (CallerFramePointer::Saved { words: words - 1 }, ReturnAddress::Saved { words });
            let rule = UnwindRule { frame_address, frame_pointer, return_address };
            assert_eq!(UnwindRule::of_word(rule.to_word()), rule);
        }
    }
}
