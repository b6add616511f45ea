//! Guarded reads of memory that may be unmapped: of any memory for the stack walker ([`VmMemory`]), and of this process for
//! everything else. Safe in handlers and on the drain thread.

use spanprof_signal::{Memory, ProcessMemory, USER_SPACE_END};

/// Reads of HotSpot's structures in the memory of a process, or in a recording of it.
pub trait VmMemory: Memory + Copy {
    /// The word at `address`; `None` outside user space.
    #[inline(always)]
    fn load(self, address: usize) -> Option<usize> {
        if address >= USER_SPACE_END {
            return None;
        }
        self.word(address)
    }

    #[inline(always)]
    fn int(self, address: usize) -> Option<i32> {
        self.load(address).map(|word| word as u32 as i32)
    }

    #[inline(always)]
    fn short(self, address: usize) -> Option<u16> {
        self.load(address).map(|word| word as u16)
    }

    #[inline(always)]
    fn byte(self, address: usize) -> Option<u8> {
        self.load(address).map(|word| word as u8)
    }

    /// A pointer to a VM structure: word-aligned and not a small number.
    #[inline(always)]
    fn pointer(self, address: usize) -> Option<usize> {
        self.load(address).filter(|pointer| pointer.is_multiple_of(8) && *pointer >= 4096 && *pointer < USER_SPACE_END)
    }
}

impl<M: Memory + Copy> VmMemory for M {}

#[inline]
pub fn word(address: usize) -> Option<usize> {
    ProcessMemory.load(address)
}

#[inline]
pub fn int(address: usize) -> Option<i32> {
    ProcessMemory.int(address)
}

#[inline]
pub fn short(address: usize) -> Option<u16> {
    ProcessMemory.short(address)
}

#[inline]
pub fn byte(address: usize) -> Option<u8> {
    ProcessMemory.byte(address)
}

#[inline]
pub fn pointer(address: usize) -> Option<usize> {
    ProcessMemory.pointer(address)
}
