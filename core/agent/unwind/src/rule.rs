//! How to find the caller of one instruction: a row of `.eh_frame`, in eight bytes. Each distinct rule has one number in the
//! process, which tables store. Safe in handlers, except [`RuleNumbers`].
//!
//! # What rules cannot say
//! Of 2.3 million rows in 16 libraries (glibc 2.36, CPython 3.8–3.15, HotSpot 17–25, Node.js 20, numpy, OpenBLAS, OpenSSL) every return
//! address is at CFA − 8, and 3 to 5 rows per library have other expressions than those below: they count as no row.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of a [`UnwindRule`].
pub(crate) type RuleNumber = u16;

/// The number of [`UnwindRule::NONE`].
pub(crate) const NO_RULE: RuleNumber = 0;

/// DWARF numbers of registers (System V ABI for AMD64, 1.0, figure 3.36).
pub(crate) const FRAME_POINTER: u8 = 6;
pub(crate) const STACK_POINTER: u8 = 7;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnwindRule {
    pub frame_address: FrameAddress,
    pub frame_pointer: CallerFramePointer,
}

impl UnwindRule {
    pub const NONE: Self = Self::without_frame(FrameAddress::Unknown);

    /// A rule that restores no frame pointer.
    pub const fn without_frame(frame_address: FrameAddress) -> Self {
        Self { frame_address, frame_pointer: CallerFramePointer::Unchanged }
    }

    /// The rule in a word: kind, register, words, saved frame pointer (16 bits), offset (32 bits).
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
        kind | u64::from(register & 15) << 4
            | u64::from(words) << 8
            | u64::from(saved as u16) << 16
            | u64::from(offset as u32) << 32
    }

    fn of_word(word: u64) -> Self {
        let (register, offset) = ((word >> 4) as u8 & 15, (word >> 32) as i32);
        let frame_address = match word & 15 {
            1 => FrameAddress::Root,
            2 => FrameAddress::SignalFrame,
            3 => FrameAddress::Register { register, offset },
            4 => FrameAddress::Loaded { register, offset, words: (word >> 8) as u8 },
            5 => FrameAddress::LinkageTable { pushed_at: register },
            _ => FrameAddress::Unknown,
        };
        let frame_pointer = match (word >> 16) as i16 {
            0 => CallerFramePointer::Unchanged,
            i16::MAX => CallerFramePointer::SavedAtFramePointer,
            i16::MIN => CallerFramePointer::Lost,
            words => CallerFramePointer::Saved { words },
        };
        Self { frame_address, frame_pointer }
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
            FrameAddress::Register { register: STACK_POINTER, offset: i32::MAX },
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
                let rule = UnwindRule { frame_address, frame_pointer };
                assert_eq!(UnwindRule::of_word(rule.to_word()), rule);
            }
        }
    }
}
