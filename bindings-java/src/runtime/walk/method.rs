//! Reads a HotSpot `Method` in the handler: validates the address and computes the fingerprint that the drain thread
//! compares. Guarded reads only.
//!
//! # The fingerprint
//! Classes are unloaded, and the next ones get their memory: a class of equal shape, such as the next version of a rule, can
//! have all its structures at the addresses of the former one. The fingerprint therefore also has the contents that names
//! and lines come from: the symbols of the method and of its class, and the beginning of the line numbers. A symbol counts by
//! its address, the random number that the VM gives it, its length, its first two and its last eight bytes. Where these
//! contents cannot be read, the fingerprint has the addresses and the shape only, and the drain thread finds no name.
//!
//! # Versions
//! Upstream: `hotspot/share/oops/method.hpp`, `hotspot/share/oops/constMethod.hpp`, `hotspot/share/oops/symbol.hpp`.
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | code size, name index, signature index and method number are 16-bit fields in one word, from the offset of the first on | `Method::at`, by one unaligned read |
//! | 8–25 | bytecodes follow `ConstMethod`, and compressed line numbers follow the bytecodes | `Method::index_of`, `line_numbers` |
//! | 17–25 | a symbol begins with its reference count and a random number, of 16 bits each, then its length | `symbol` |
//! | 8–11 | a symbol begins with its length and its reference count, then the random number, of 32 bits in 8 | `symbol` |
//!
//! No `jmethodID`s: they are created for each class as it is prepared, the VM never frees them, and those of unloaded classes dangle. No
//! generation of class unloading: the VM has no synchronous event for it. The profiler thus holds nothing of the VM, and every cache is
//! keyed by the fingerprint. Not distinguished: a class loaded again at the same addresses with equal names, where later lines moved.

use spanprof_signal::RawFrame;

use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::memory::VmMemory;
use crate::runtime::vm::raw_frame;

/// A validated method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    pub address: usize,
    pub const_method: usize,
    pub constants: usize,
    pub code_size: u16,
    /// Code size, name index, signature index, method number.
    shape: u64,
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
        let shape = memory.load(const_method + layout.code_size)?;
        Some(Self { address, const_method, constants, code_size: shape as u16, shape: shape as u64 })
    }

    /// A number that differs from that of any other method which had or gets this address.
    pub fn fingerprint(&self, memory: impl VmMemory, layout: &VmLayout) -> u64 {
        let addresses = (self.const_method as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.constants as u64;
        let shape = mixed(addresses, self.shape);
        self.contents(memory, layout).map_or(shape, |contents| mixed(shape, contents))
    }

    /// The raw frame at a bytecode index.
    pub fn frame(&self, memory: impl VmMemory, layout: &VmLayout, index: u16) -> RawFrame {
        raw_frame::method(self.address, self.fingerprint(memory, layout), index)
    }

    /// A hash of what the names and the first lines are read from.
    fn contents(&self, memory: impl VmMemory, layout: &VmLayout) -> Option<u64> {
        let name_index = usize::from(memory.short(self.const_method + layout.name_index)?);
        let name = memory.pointer(self.constants + layout.pool_size + name_index * 8)?;
        let holder = memory.pointer(self.constants + layout.holder)?;
        let class = memory.pointer(holder + layout.class_name)?;
        let names = mixed(symbol(memory, layout, name)?, symbol(memory, layout, class)?);
        Some(mixed(names, self.line_numbers(memory, layout)?))
    }

    /// The first bytes of the line numbers, at most 8; what follows them in a `ConstMethod` is never changed.
    fn line_numbers(&self, memory: impl VmMemory, layout: &VmLayout) -> Option<u64> {
        let Some(words) = layout.const_method_words else { return Some(0) };
        let end = self.const_method + memory.int(self.const_method + words)?.max(0) as usize * 8;
        let begin = self.const_method + layout.const_method_size + usize::from(self.code_size);
        // Bytecodes before the lines are rewritten as they run, and another structure follows the last word.
        let at = begin.min(end.saturating_sub(8));
        let bytes_before = begin - at;
        Some(if bytes_before < 8 { memory.load(at)? as u64 >> (8 * bytes_before) } else { 0 })
    }

    /// The bytecode index of an address within the method's code.
    #[inline]
    pub fn index_of(&self, layout: &VmLayout, bcp: usize) -> Option<u16> {
        let index = bcp.wrapping_sub(self.const_method + layout.const_method_size);
        (index < usize::from(self.code_size)).then_some(index as u16)
    }
}

/// A hash of a symbol without its reference count. A freed symbol's address can be that of the next one.
fn symbol(memory: impl VmMemory, layout: &VmLayout, address: usize) -> Option<u64> {
    let length = usize::from(memory.short(address + layout.symbol_length)?);
    let header = memory.load(address)? as u64;
    // Up to 11 the reference count follows the length.
    let (uncounted, count_end) = if layout.symbol_length == 0 { (header & !0xffff_0000, 4) } else { (header >> 16, 2) };
    let begin = mixed(address as u64, uncounted);
    if length <= 2 {
        return Some(begin);
    }
    let last = (address + layout.symbol_body + length).saturating_sub(8).max(address + count_end);
    Some(mixed(begin, memory.load(last)? as u64))
}

/// SplitMix64 of a number that is added to a hash.
#[inline]
fn mixed(hash: u64, number: u64) -> u64 {
    let mut hash = (hash ^ hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ number;
    hash = (hash ^ hash >> 32).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_recorded_stack::RecordedMemory;
    use std::collections::BTreeMap;

    use crate::runtime::vm::layout_tables;

    const METHOD: u64 = 0x7300_0000;
    const CONST_METHOD: u64 = METHOD + 0x100;
    const POOL: u64 = METHOD + 0x200;
    const HOLDER: u64 = METHOD + 0x300;
    const NAME: u64 = METHOD + 0x400;
    const CLASS: u64 = METHOD + 0x500;
    const CODE_SIZE: u64 = 12;

    fn layout(symbol_length: u64) -> VmLayout {
        let mut tables = BTreeMap::new();
        while let Err(name) = layout_tables::read(&tables) {
            tables.insert(name, 0);
        }
        for (name, number) in [
            ("const_method", 8),
            ("const_method_size", 0x38),
            ("const_method_words", 0x18),
            ("constants", 8),
            ("code_size", 0x22),
            ("name_index", 0x24),
            ("pool_size", 0x48),
            ("holder", 0x18),
            ("class_name", 0x18),
            ("symbol_length", symbol_length),
            ("symbol_body", 6),
        ] {
            tables.insert(name.to_owned(), number);
        }
        layout_tables::read(&tables).unwrap()
    }

    /// A method of a class with these names, with this reference count of its symbols. `tail` is the last word of its
    /// `ConstMethod`: the last bytecodes, then the line numbers. The length of symbols is before or after the reference count.
    fn fingerprint_at(length_at: u64, name: &str, class: &str, references: u16, tail: u64) -> u64 {
        let [count_at, hash_at] = if length_at == 0 { [2, 4] } else { [0, 2] };
        let mut bytes = BTreeMap::new();
        let mut set = |address: u64, value: &[u8]| bytes.extend((address..).zip(value.iter().copied()));
        set(METHOD + 8, &CONST_METHOD.to_le_bytes());
        set(CONST_METHOD + 8, &POOL.to_le_bytes());
        set(CONST_METHOD + 0x18, &9u64.to_le_bytes());
        set(CONST_METHOD + 0x22, &(CODE_SIZE | 5 << 16 | 6 << 32).to_le_bytes());
        set(CONST_METHOD + 64, &tail.to_le_bytes());
        set(POOL + 0x18, &HOLDER.to_le_bytes());
        set(POOL + 0x48 + 5 * 8, &NAME.to_le_bytes());
        set(HOLDER + 0x18, &CLASS.to_le_bytes());
        for (address, text) in [(NAME, name), (CLASS, class)] {
            set(address + count_at, &references.to_le_bytes());
            set(address + hash_at, &[7, 7]);
            set(address + length_at, &(text.len() as u16).to_le_bytes());
            set(address + 6, text.as_bytes());
        }
        let mut memory = RecordedMemory::default();
        for address in METHOD..METHOD + 0x600 {
            let word: [u8; 8] = std::array::from_fn(|at| bytes.get(&(address + at as u64)).copied().unwrap_or(0));
            memory.set(address, u64::from_le_bytes(word));
        }
        let layout = layout(length_at);
        Method::at(&memory, &layout, METHOD as usize).unwrap().fingerprint(&memory, &layout)
    }

    fn fingerprint(name: &str, class: &str, references: u16, tail: u64) -> u64 {
        fingerprint_at(4, name, class, references, tail)
    }

    #[test]
    fn a_method_of_equal_shape_at_the_same_addresses_has_another_fingerprint() {
        let method = |name, class| fingerprint(name, class, 1, 9 << 32);
        let before = method("ruleA", "shop/pricing/Generated");
        let others = [
            ("ruleB", "shop/pricing/Generated"),
            ("ruleA", "shop/pricing/Generatee"),
            ("rulA", "shop/pricing/Generated"),
            ("", "shop/pricing/Generated"),
            ("a", "shop/pricing/Generated"),
            ("b", "shop/pricing/Generated"),
            ("abc", "shop/pricing/Generated"),
            ("abd", "shop/pricing/Generated"),
        ];
        let mut all: Vec<u64> = others.iter().map(|(name, class)| method(name, class)).collect();
        all.push(before);
        all.push(fingerprint("ruleA", "shop/pricing/Generated", 1, 10 << 32));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_fingerprint_of_a_method_is_constant_while_it_runs() {
        for length_at in [4, 0] {
            let at = |references, tail| fingerprint_at(length_at, "ruleA", "shop/pricing/Generated", references, tail);
            let before = at(1, 9 << 32 | 0x2a);
            assert_eq!(at(60_000, 9 << 32 | 0x2a), before, "more references");
            assert_eq!(at(1, 9 << 32 | 0xca), before, "a rewritten bytecode");
        }
    }
}
