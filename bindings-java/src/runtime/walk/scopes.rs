//! Decodes PcDesc and ScopeDesc of compiled code in the handler: the inlined methods at a program counter, innermost first.
//! Guarded reads only (`hotspot/share/code/pcDesc.hpp`, `scopeDesc.cpp`).
//!
//! # Versions
//!
//! | JDK | change | handled in |
//! |---|---|---|
//! | 8–25 | a PcDesc has 16 bytes: the end of its range, then its scope | `PC_DESC_BYTES` |
//! | 8–25 | a scope is its caller's offset, method index + 1 and bytecode index + 1 | `decode_scopes` |
//! | after 8, by 11 | the scopes begin at an address instead of an offset | `NmethodTables::of` |
//! | 20 | UNSIGNED5 excludes the byte 0 | `Unsigned5Reader::base` |
//! | 23 | the tables are in separately allocated memory, in the order PcDescs, scopes | `NmethodTables::of` |
//! | after 21, by 25 | metadata follows the relocations in the mutable data | `NmethodTables::of` |

use spanprof_signal::RawFrame;

use super::attribution::{attribute, removes_frame, Attribution};
use super::code_heap::begin_of;
use super::instructions::follows_call;
use super::method::Method;
use crate::runtime::vm::layout::{DebugInfo, VmLayout};
use crate::runtime::vm::memory::VmMemory;
use crate::runtime::vm::raw_frame;

/// Deeper inlining is cut at the root side.
pub const MAX_INLINED: usize = 64;
/// The bytecode index recorded for code before the first bytecode (`SynchronizationEntryBCI`).
const SYNCHRONIZATION_ENTRY_BCI: u32 = u32::MAX;
const MAX_PC_DESCS: usize = 1 << 20;
const PC_DESC_BYTES: usize = 16;

/// Inlined frames of one program counter.
pub struct Inlined {
    frames: [RawFrame; MAX_INLINED],
    len: usize,
    range_end: usize,
}

impl Inlined {
    pub const fn new() -> Self {
        Self { frames: [RawFrame { code: 0, at: 0 }; MAX_INLINED], len: 0, range_end: usize::MAX }
    }

    pub fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }

    /// The end of the PcDesc range that holds the program counter; `usize::MAX` beyond the last one.
    pub fn range_end(&self) -> usize {
        self.range_end
    }

    fn push(&mut self, frame: RawFrame) {
        if let Some(slot) = self.frames.get_mut(self.len) {
            *slot = frame;
            self.len += 1;
        }
    }

    /// Drops the inlined frames: the compiled method itself remains.
    fn keep_root(&mut self) {
        if let Some(root) = self.len.checked_sub(1).and_then(|last| self.frames.get(last)) {
            self.set_only(*root);
        }
    }

    /// Replaces the content by one frame.
    fn set_only(&mut self, frame: RawFrame) {
        self.len = 0;
        self.push(frame);
    }
}

/// How a program counter was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeResult {
    /// From the PcDesc at this program counter.
    Exact,
    /// From the next PcDesc.
    NextPcDesc,
    /// The root method only: no PcDesc covers the program counter.
    MethodOnly,
    Failed,
}

/// Decodes the frames at `pc` in the nmethod `blob`; `pc` was interrupted (`is_leaf`) or is a return address.
pub fn decode(
    memory: impl VmMemory,
    layout: &VmLayout,
    blob: usize,
    code_begin: usize,
    pc: usize,
    is_leaf: bool,
    out: &mut Inlined,
) -> DecodeResult {
    (out.len, out.range_end) = (0, usize::MAX);
    match decode_scopes(memory, layout, blob, code_begin, pc, is_leaf, out).filter(|_| out.len > 0) {
        Some(true) => return DecodeResult::Exact,
        Some(false) => return DecodeResult::NextPcDesc,
        None => {}
    }
    root_method(memory, layout, blob, raw_frame::NO_INDEX, out)
}

/// The method of the nmethod `blob` at a bytecode index: for native wrappers, and for code before the frame is complete.
pub fn root_method(
    memory: impl VmMemory,
    layout: &VmLayout,
    blob: usize,
    index: u16,
    out: &mut Inlined,
) -> DecodeResult {
    match memory.load(blob + layout.compiled_method).and_then(|method| Method::at(memory, layout, method)) {
        Some(method) => {
            let index = if index < method.code_size { index } else { raw_frame::NO_INDEX };
            out.set_only(method.frame(memory, layout, index));
            DecodeResult::MethodOnly
        }
        None => DecodeResult::Failed,
    }
}

/// Decodes the frames; returns whether the PcDesc is at exactly this program counter.
fn decode_scopes(
    memory: impl VmMemory,
    layout: &VmLayout,
    blob: usize,
    code_begin: usize,
    pc: usize,
    is_leaf: bool,
    out: &mut Inlined,
) -> Option<bool> {
    let tables = NmethodTables::of(memory, layout, blob)?;
    let offset = i32::try_from(pc.checked_sub(code_begin)?).ok()?;
    // A PcDesc records the end of its code range; for a call, the return address.
    let is_inside_range = is_leaf && !follows_call(memory, pc);
    let pc_desc = tables.pc_desc_at(offset.checked_add(i32::from(is_inside_range))?)?;
    out.range_end = code_begin.checked_add_signed(pc_desc.offset as isize)?;
    let (mut scope, is_exact) = (pc_desc.scope, pc_desc.offset == offset);
    if let Some(previous) = pc_desc.previous.filter(|_| is_leaf && !is_exact) {
        scope = tables.attribute(code_begin, pc, &pc_desc, previous).unwrap_or(scope);
    }
    for _ in 0..MAX_INLINED {
        if scope <= 0 {
            break;
        }
        let mut reader =
            Unsigned5Reader { memory, at: tables.data.wrapping_add(scope as usize), base: layout.unsigned5_base };
        let sender = reader.next()? as i32;
        let method = reader.next()? as usize;
        let index = reader.next()?.wrapping_sub(1);
        let method = memory.pointer(tables.metadata.wrapping_add(method.checked_sub(1)? * 8))?;
        let method = Method::at(memory, layout, method)?;
        let index = match index {
            SYNCHRONIZATION_ENTRY_BCI => 0,
            index if index < u32::from(method.code_size) => index as u16,
            _ => raw_frame::NO_INDEX,
        };
        out.push(method.frame(memory, layout, index));
        // A caller's ScopeDesc always precedes its callee's.
        if sender >= scope {
            return None;
        }
        scope = sender;
    }
    if is_leaf && removes_frame(memory, pc) {
        out.keep_root();
    }
    Some(is_exact)
}

struct NmethodTables<M> {
    memory: M,
    pc_descs: usize,
    count: usize,
    data: usize,
    metadata: usize,
}

impl<M: VmMemory> NmethodTables<M> {
    fn of(memory: M, layout: &VmLayout, blob: usize) -> Option<Self> {
        let offset = |at: usize| memory.int(blob + at).and_then(|offset| usize::try_from(offset).ok());
        let (pc_descs, end, data, metadata) = match layout.debug_info {
            DebugInfo::InBlob { pc_descs, pc_descs_end, data, metadata } => {
                let data = begin_of(memory, blob, data)?;
                (blob + offset(pc_descs)?, blob + offset(pc_descs_end)?, data, blob + offset(metadata)?)
            }
            DebugInfo::Separate { immutable, pc_descs, data, mutable, relocation_size } => {
                let immutable = memory.load(blob + immutable)?;
                // Freed memory may hold any word: no operation here may overflow.
                let data = immutable.wrapping_add(offset(data)?);
                let metadata = memory.load(blob + mutable)?.wrapping_add(offset(relocation_size)?);
                (immutable.wrapping_add(offset(pc_descs)?), data, data, metadata)
            }
        };
        let count = end.checked_sub(pc_descs)? / PC_DESC_BYTES;
        (count > 0 && count < MAX_PC_DESCS).then_some(Self { memory, pc_descs, count, data, metadata })
    }

    /// The first PcDesc whose range ends at or after an offset into the code.
    fn pc_desc_at(&self, offset: i32) -> Option<PcDesc> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if self.memory.int(self.pc_descs.wrapping_add(middle * PC_DESC_BYTES))? < offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low >= self.count {
            return None;
        }
        let descriptor = self.pc_descs.wrapping_add(low * PC_DESC_BYTES);
        let previous = low.checked_sub(1).map(|_| descriptor.wrapping_sub(PC_DESC_BYTES));
        Some(PcDesc {
            offset: self.memory.int(descriptor)?,
            scope: self.memory.int(descriptor.wrapping_add(4))?,
            previous,
        })
    }

    /// The scope that `pc` belongs to, if it is not that of the next PcDesc.
    fn attribute(&self, code_begin: usize, pc: usize, next: &PcDesc, previous: usize) -> Option<i32> {
        let (offset, scope) = (self.memory.int(previous)?, self.memory.int(previous.wrapping_add(4))?);
        // After the last PcDesc the code is out of line.
        if scope == next.scope || next.scope <= 0 {
            return None;
        }
        // The first PcDesc is a sentinel with a negative offset.
        let previous = usize::try_from(offset).ok().map(|offset| code_begin.wrapping_add(offset));
        match attribute(self.memory, pc, previous, code_begin.checked_add_signed(next.offset as isize)?) {
            Attribution::Previous => Some(scope),
            Attribution::Next => None,
            Attribution::Target(target) => {
                let offset = i32::try_from(target.checked_sub(code_begin)?).ok()?;
                Some(self.pc_desc_at(offset.checked_add(1)?)?.scope).filter(|scope| *scope > 0)
            }
        }
    }
}

/// A HotSpot PcDesc.
struct PcDesc {
    /// End of its code range, as an offset.
    offset: i32,
    scope: i32,
    /// Address of the preceding PcDesc.
    previous: Option<usize>,
}

/// HotSpot's UNSIGNED5 encoding: small integers in one byte; a byte above 191 means that more bytes follow.
struct Unsigned5Reader<M> {
    memory: M,
    at: usize,
    base: u32,
}

impl<M: VmMemory> Unsigned5Reader<M> {
    fn next(&mut self) -> Option<u32> {
        const HIGH: u32 = 192;
        let mut value = 0u32;
        for position in 0..5 {
            let digit = u32::from(self.memory.byte(self.at)?);
            self.at = self.at.wrapping_add(1);
            value = value.wrapping_add(digit.wrapping_sub(self.base) << (6 * position));
            if digit < HIGH {
                break;
            }
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::ProcessMemory;

    fn decoded(bytes: &[u8], base: u32) -> Vec<u32> {
        let padded: Vec<u8> = bytes.iter().copied().chain([0; 16]).collect();
        let mut reader = Unsigned5Reader { memory: ProcessMemory, at: padded.as_ptr() as usize, base };
        let end = reader.at + bytes.len();
        let mut values = Vec::new();
        while reader.at < end {
            values.push(reader.next().unwrap());
        }
        values
    }

    #[test]
    fn unsigned5_integers_decode_with_and_without_the_excluded_zero_byte() {
        assert_eq!(decoded(&[0, 191, 192, 0, 255, 2], 0), [0, 191, 192, 255 + (2 << 6)]);
        assert_eq!(decoded(&[1, 191, 192, 1], 1), [0, 190, 191]);
    }
}
