//! Memory as stack walkers read it: words at addresses that may be unmapped. Walkers are generic over [`Memory`], so tests
//! replay recorded stacks (`spanprof-recorded-stack`) without the runtime. Safe in handlers.

use crate::walk::guarded;
use core::cell::Cell;

/// User-space addresses lie below this bound, except those that a program requests above it (Documentation/arch/x86/x86_64/mm.rst and
/// Documentation/arch/arm64/memory.rst in the kernel).
pub const USER_SPACE_END: usize = if cfg!(target_arch = "x86_64") { 1 << 47 } else { 1 << 48 };

/// Reads words of a process, or of a recording of one.
pub trait Memory {
    /// The eight bytes at `address`, which need not be aligned. `None` when they cannot be read.
    fn word(&self, address: usize) -> Option<usize>;

    /// As [`Self::word`], for an address that is often none. In the memory of a process, a system call that finds out without a fault.
    fn guess(&self, address: usize) -> Option<usize> {
        self.word(address)
    }

    /// Copies 80 bytes, the size of a CPython frame. False when any of them cannot be read; part of `destination` may
    /// then be written.
    #[inline(always)]
    fn copy_80(&self, destination: &mut [u8; 80], address: usize) -> bool {
        destination.chunks_exact_mut(8).enumerate().all(|(index, bytes)| {
            match address.checked_add(8 * index).and_then(|address| self.word(address)) {
                Some(word) => {
                    bytes.copy_from_slice(&(word as u64).to_ne_bytes());
                    true
                }
                None => false,
            }
        })
    }
}

/// The memory of this process, by guarded loads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory;

impl Memory for ProcessMemory {
    #[inline(always)]
    fn word(&self, address: usize) -> Option<usize> {
        guarded::read_u64(address).map(|word| word as usize)
    }

    fn guess(&self, address: usize) -> Option<usize> {
        CheckedMemory::default().word(address)
    }

    #[inline(always)]
    fn copy_80(&self, destination: &mut [u8; 80], address: usize) -> bool {
        guarded::copy_80(destination, address)
    }
}

/// The memory of this process, for addresses that are often none of the walked stack: beyond its end, or registers with other
/// values. The kernel checks each page before its first read, so that the read does not fault: the program's own handler of
/// SIGSEGV may have replaced ours. Costs a system call for each page of a walk.
#[derive(Debug, Default)]
pub struct CheckedMemory {
    /// The number of the last readable page.
    page: Cell<usize>,
}

impl Memory for CheckedMemory {
    fn word(&self, address: usize) -> Option<usize> {
        const PAGE_BITS: u32 = 12;
        for part in [address, address.checked_add(7)? & !7] {
            let page = part >> PAGE_BITS;
            if page != self.page.get() {
                if !guarded::is_readable(part & !7) {
                    return None;
                }
                self.page.set(page);
            }
        }
        guarded::read_u64(address).map(|word| word as usize)
    }
}

/// For walkers that own their memory.
impl<M: Memory> Memory for &M {
    #[inline(always)]
    fn word(&self, address: usize) -> Option<usize> {
        (**self).word(address)
    }

    fn guess(&self, address: usize) -> Option<usize> {
        (**self).guess(address)
    }

    #[inline(always)]
    fn copy_80(&self, destination: &mut [u8; 80], address: usize) -> bool {
        (**self).copy_80(destination, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the trait's own copy.
    struct Words;

    impl Memory for Words {
        fn word(&self, address: usize) -> Option<usize> {
            ProcessMemory.word(address)
        }
    }

    #[test]
    fn a_copy_by_words_equals_the_copy_of_the_process() {
        let source: [u8; 88] = std::array::from_fn(|index| index as u8);
        for offset in 0..8 {
            let address = source.as_ptr() as usize + offset;
            let (mut by_words, mut at_once) = ([0; 80], [0; 80]);
            assert!(Words.copy_80(&mut by_words, address) && ProcessMemory.copy_80(&mut at_once, address));
            assert_eq!((by_words, &at_once[..]), (at_once, &source[offset..offset + 80]));
        }
    }

    /// The kernel gives the highest addresses to the stack.
    #[test]
    fn the_stack_lies_below_the_end_of_user_space() {
        let local = 0u8;
        assert!((&raw const local as usize) < USER_SPACE_END, "{:p}", &raw const local);
    }

    #[test]
    fn a_copy_beyond_the_highest_address_fails() {
        assert!(!Words.copy_80(&mut [0; 80], usize::MAX - 79));
        assert!(!ProcessMemory.copy_80(&mut [0; 80], usize::MAX - 79));
    }
}
