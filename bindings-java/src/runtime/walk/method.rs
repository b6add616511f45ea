//! Reads a HotSpot `Method` in the handler: validates the address and computes the fingerprint that the drain thread
//! compares. Guarded reads only.
//!
//! # Versions
//! Upstream: `hotspot/share/oops/method.hpp`, `hotspot/share/oops/constMethod.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 17–25 | code size, name index, signature index and method number are 16-bit fields in one word, at 0x20 in 17 and at 0x22 later | `Method::at`, by one unaligned read |
//! | 17–25 | bytecodes follow `ConstMethod` | `Method::index_of` |

use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::memory::VmMemory;

/// A validated method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    pub address: usize,
    pub const_method: usize,
    pub code_size: u16,
    pub fingerprint: u64,
}

impl Method {
    /// The method at `address`; `None` if the memory there is not a method.
    #[inline]
    pub fn at(memory: impl VmMemory, layout: &VmLayout, address: usize) -> Option<Self> {
        if !address.is_multiple_of(8) || address < 4096 {
            return None;
        }
        let const_method = memory.pointer(address.wrapping_add(layout.const_method))?;
        let constants = memory.pointer(const_method + layout.constants)?;
        // Code size, name index, signature index, method number: four 16-bit fields in one word.
        let shape = memory.load(const_method + layout.code_size)?;
        let mut fingerprint = (const_method as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ constants as u64;
        fingerprint = (fingerprint ^ fingerprint >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ shape as u64;
        fingerprint = (fingerprint ^ fingerprint >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(Self { address, const_method, code_size: shape as u16, fingerprint: fingerprint ^ fingerprint >> 31 })
    }

    /// The bytecode index of an address within the method's code.
    #[inline]
    pub fn index_of(&self, layout: &VmLayout, bcp: usize) -> Option<u16> {
        let index = bcp.wrapping_sub(self.const_method + layout.const_method_size);
        (index < usize::from(self.code_size)).then_some(index as u16)
    }
}
