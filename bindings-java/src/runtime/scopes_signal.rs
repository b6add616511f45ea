//! Which methods a program counter of compiled code executes, innermost first: HotSpot's scope descriptors, decoded through
//! guarded reads in the handler.

use spanprof_signal::RawFrame;

use super::frame_word;
use super::instructions_signal::follows_call;
use super::layout::{Layout, Scopes};
use super::memory_signal::{byte, int, pointer, word};
use super::method_signal::Method;
use super::nearby_signal::{nearer, Nearer};

/// Deeper inlining is cut at the root side.
pub const MAX_INLINED: usize = 64;
/// Written down for what happens before the first byte code.
const METHOD_ENTRY: u32 = u32::MAX;
const MAX_DESCRIPTORS: usize = 1 << 20;
const DESCRIPTOR_BYTES: usize = 16;

/// Frames of one program counter.
pub struct Inlined {
    frames: [RawFrame; MAX_INLINED],
    len: usize,
}

impl Inlined {
    pub const fn new() -> Self {
        Self { frames: [RawFrame { code: 0, at: 0 }; MAX_INLINED], len: 0 }
    }

    pub fn frames(&self) -> &[RawFrame] {
        self.frames.get(..self.len).unwrap_or(&[])
    }

    fn push(&mut self, frame: RawFrame) {
        if let Some(place) = self.frames.get_mut(self.len) {
            *place = frame;
            self.len += 1;
        }
    }

    /// One frame instead of what is there.
    fn only(&mut self, frame: RawFrame) {
        self.len = 0;
        self.push(frame);
    }
}

/// How well a program counter could be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Methods and their byte codes, as the compiler wrote them down.
    Scopes,
    /// The same, written down for a place behind it.
    Near,
    /// The compiled method alone: nothing is written down for the place.
    Method,
    Nothing,
}

/// Finds what `pc` in the compiled code `blob` executes, which was interrupted there, or called from there.
pub fn decode(layout: &Layout, blob: usize, code_begin: usize, pc: usize, is_leaf: bool, out: &mut Inlined) -> Found {
    out.len = 0;
    match decode_scopes(layout, blob, code_begin, pc, is_leaf, out).filter(|_| out.len > 0) {
        Some(true) => return Found::Scopes,
        Some(false) => return Found::Near,
        None => {}
    }
    method_alone(layout, blob, frame_word::NO_INDEX, out)
}

/// The method that `blob` is the code of, at a byte code: a wrapper of a native method, or a place before the frame is
/// there.
pub fn method_alone(layout: &Layout, blob: usize, index: u16, out: &mut Inlined) -> Found {
    match word(blob + layout.compiled_method).and_then(|method| Method::at(layout, method)) {
        Some(method) => {
            let index = if index < method.code_size { index } else { frame_word::NO_INDEX };
            out.only(frame_word::method(method.address, method.fingerprint, index));
            Found::Method
        }
        None => Found::Nothing,
    }
}

/// Whether what is written down is for this very place.
fn decode_scopes(
    layout: &Layout,
    blob: usize,
    code_begin: usize,
    pc: usize,
    is_leaf: bool,
    out: &mut Inlined,
) -> Option<bool> {
    let tables = Tables::of(layout, blob)?;
    let offset = i32::try_from(pc.checked_sub(code_begin)?).ok()?;
    // A place is written down by its end; where a call ends, by where it returns to.
    let is_begun = is_leaf && !follows_call(pc);
    let place = tables.place_at(offset.checked_add(i32::from(is_begun))?)?;
    let (mut scope, is_exact) = (place.scope, place.offset == offset);
    if let Some(before) = place.before.filter(|_| is_leaf && !is_exact) {
        scope = tables.nearer(code_begin, pc, &place, before).unwrap_or(scope);
    }
    for _ in 0..MAX_INLINED {
        if scope <= 0 {
            break;
        }
        let mut reader = Packed { at: tables.data.wrapping_add(scope as usize), base: layout.packed_base };
        let sender = reader.next()? as i32;
        let method = reader.next()? as usize;
        let index = reader.next()?.wrapping_sub(1);
        let method = pointer(tables.metadata.wrapping_add(method.checked_sub(1)? * 8))?;
        let method = Method::at(layout, method)?;
        let index = match index {
            METHOD_ENTRY => 0,
            index if index < u32::from(method.code_size) => index as u16,
            _ => frame_word::NO_INDEX,
        };
        out.push(frame_word::method(method.address, method.fingerprint, index));
        // A scope's sender was written before it.
        if sender >= scope {
            return None;
        }
        scope = sender;
    }
    Some(is_exact)
}

struct Tables {
    pcs: usize,
    count: usize,
    data: usize,
    metadata: usize,
}

impl Tables {
    fn of(layout: &Layout, blob: usize) -> Option<Self> {
        let offset = |at: usize| int(blob + at).and_then(|offset| usize::try_from(offset).ok());
        let (pcs, end, data, metadata) = match layout.scopes {
            Scopes::Inside { pcs, pcs_end, data, metadata } => {
                let data = word(blob + data)?;
                (blob + offset(pcs)?, blob + offset(pcs_end)?, data, blob + offset(metadata)?)
            }
            Scopes::Apart { immutable, pcs, data, mutable, relocation_size } => {
                let immutable = word(blob + immutable)?;
                // What was freed meanwhile may hold any word: nothing here may overflow.
                let data = immutable.wrapping_add(offset(data)?);
                let metadata = word(blob + mutable)?.wrapping_add(offset(relocation_size)?);
                (immutable.wrapping_add(offset(pcs)?), data, data, metadata)
            }
        };
        let count = end.checked_sub(pcs)? / DESCRIPTOR_BYTES;
        (count > 0 && count < MAX_DESCRIPTORS).then_some(Self { pcs, count, data, metadata })
    }

    /// The first place that ends at or behind an offset into the code.
    fn place_at(&self, offset: i32) -> Option<Place> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            if int(self.pcs.wrapping_add(middle * DESCRIPTOR_BYTES))? < offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low >= self.count {
            return None;
        }
        let descriptor = self.pcs.wrapping_add(low * DESCRIPTOR_BYTES);
        let before = low.checked_sub(1).map(|_| descriptor.wrapping_sub(DESCRIPTOR_BYTES));
        Some(Place { offset: int(descriptor)?, scope: int(descriptor.wrapping_add(4))?, before })
    }

    /// The scope that is nearer to `pc` than the one behind it, if any is.
    fn nearer(&self, code_begin: usize, pc: usize, behind: &Place, before: usize) -> Option<i32> {
        let (offset, scope) = (int(before)?, int(before.wrapping_add(4))?);
        // Behind the last place is code beside the method's own.
        if scope == behind.scope || behind.scope <= 0 {
            return None;
        }
        // The first of all is written down for no place.
        let before = usize::try_from(offset).ok().map(|offset| code_begin + offset);
        match nearer(pc, before, code_begin.checked_add_signed(behind.offset as isize)?) {
            Nearer::Before => Some(scope),
            Nearer::Behind => None,
            Nearer::Target(target) => {
                let offset = i32::try_from(target.checked_sub(code_begin)?).ok()?;
                Some(self.place_at(offset.checked_add(1)?)?.scope).filter(|scope| *scope > 0)
            }
        }
    }
}

/// A place that is written down.
struct Place {
    /// Where it ends.
    offset: i32,
    scope: i32,
    /// The descriptor of the one before it.
    before: Option<usize>,
}

/// HotSpot's packed integers: small ones in one byte, each byte above 191 says that more follow.
struct Packed {
    at: usize,
    base: u32,
}

impl Packed {
    fn next(&mut self) -> Option<u32> {
        const HIGH: u32 = 192;
        let mut value = 0u32;
        for place in 0..5 {
            let part = u32::from(byte(self.at)?);
            self.at = self.at.wrapping_add(1);
            value = value.wrapping_add(part.wrapping_sub(self.base) << (6 * place));
            if part < HIGH {
                break;
            }
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(bytes: &[u8], base: u32) -> Vec<u32> {
        let padded: Vec<u8> = bytes.iter().copied().chain([0; 16]).collect();
        let mut reader = Packed { at: padded.as_ptr() as usize, base };
        let end = reader.at + bytes.len();
        let mut values = Vec::new();
        while reader.at < end {
            values.push(reader.next().unwrap());
        }
        values
    }

    #[test]
    fn packed_integers_are_read_in_both_forms() {
        assert_eq!(unpacked(&[0, 191, 192, 0, 255, 2], 0), [0, 191, 192, 255 + (2 << 6)]);
        assert_eq!(unpacked(&[1, 191, 192, 1], 1), [0, 190, 191]);
    }
}
