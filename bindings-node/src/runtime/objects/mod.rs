//! Reads objects of V8's heap through guarded loads: the source of a script, and the inlining data of optimized code. Runs on
//! the isolate's own thread, inside V8's code event callback or right after it, so that no object moves. Offsets are V8's own
//! constants for debuggers (`v8dbg_*`); every object reached by them is verified.
//!
//! # Changes in V8
//! Upstream: `tools/gen-postmortem-metadata.py` (the constants), `src/objects/shared-function-info.h`, `src/objects/script.h`,
//! `src/objects/string.h`, `src/objects/deoptimization-data.h`, `src/codegen/source-position.h` (`InliningPosition`). Compared
//! with the symbols of 18.20, 20.20, 22.23, 24.21 and 26.10.
//!
//! | version | change | handled in |
//! |---|---|---|
//! | 10.2 (18) | the indices of the deoptimization data are not exported | defaults in `HeapLayout::find` |
//! | 11.3 (20) | machine code objects are `InstructionStream`, not `Code` | `code_type` |
//! | 12.4 (22) | `script_or_debug_info` of a function is `script` | `function_script` |
//! | 13.6 (24) | deoptimization data refers to its function through a `SharedFunctionInfoWrapper` | `wrapped_function`, `functions_of` |
//! | 14.6 (26) | source position tables have a flag in each code offset | `TABLE_ENCODINGS` in `positions` |

mod functions;
mod resident;
mod string;
mod unlisted;

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof_signal::{guarded, CheckedMemory, Memory, USER_SPACE_END};

use super::small_buffers::SmallBytes;
use super::v8::lookup;
use crate::positions::{
    self, Baseline, Inlining, InliningPosition, Position, PositionTableEntry, TableEncoding, TABLE_ENCODINGS,
};
pub use functions::{CompiledFunction, FunctionListLayout};
pub use string::HeapString;
pub use unlisted::{executable_near, CodeObjectLayout, ListedCode, UnlistedCode};

/// Offsets and type numbers of V8's heap objects.
#[cfg_attr(test, derive(Default))]
pub struct HeapLayout {
    instance_type: usize,
    script_type: u64,
    function_script: usize,
    /// 0 where functions are not wrapped.
    wrapped_function: usize,
    script_source: usize,
    script_name: usize,
    script_line_ends: usize,
    array_type: u64,
    string_length: usize,
    one_byte_chars: usize,
    two_byte_chars: usize,
    cons_first: usize,
    cons_second: usize,
    external_resource: usize,
    sliced_parent: usize,
    sliced_offset: usize,
    thin_actual: usize,
    array_data: usize,
    inlined_count_index: usize,
    literals_index: usize,
    positions_index: usize,
    function_index: usize,
    bytecode: usize,
    bytecode_type: u64,
    /// Type of machine code objects in the heap.
    code_type: u64,
    /// Type of the object by which a function refers to its baseline code.
    baseline_type: u64,
}

const WORD: usize = 8;
/// Words that are read before the first instruction, and of a code object.
const HEADER_WORDS: usize = 20;
const MAX_TABLE_BYTES: usize = 1 << 20;
const MAX_INLINED: usize = 4096;
const MAX_LINES: usize = 4 << 20;
const MAX_STRING_UNITS: usize = 128 << 20;
const REPRESENTATION: u64 = 7;
const ONE_BYTE: u64 = 8;
/// An external string whose data address is only in its resource.
const UNCACHED: u64 = 16;

impl HeapLayout {
    /// The layout of this process's V8; `None` when a constant is missing.
    pub fn find() -> Option<Self> {
        let one = |name: &CStr| lookup::constant(&[name]);
        let or = |name: &CStr, otherwise: usize| one(name).unwrap_or(otherwise);
        Some(Self {
            instance_type: one(c"v8dbg_class_Map__instance_type__uint16_t")?,
            script_type: one(c"v8dbg_type_Script__SCRIPT_TYPE")? as u64,
            function_script: lookup::constant(&[
                c"v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
                c"v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            ])?,
            wrapped_function: or(c"v8dbg_class_SharedFunctionInfoWrapper__shared_info__Tagged_SharedFunctionInfo_", 0),
            script_source: one(c"v8dbg_class_Script__source__Object")?,
            script_name: one(c"v8dbg_class_Script__name__Object")?,
            script_line_ends: one(c"v8dbg_class_Script__line_ends__Object")?,
            array_type: one(c"v8dbg_type_FixedArray__FIXED_ARRAY_TYPE")? as u64,
            string_length: one(c"v8dbg_class_String__length__int32_t")?,
            one_byte_chars: one(c"v8dbg_class_SeqOneByteString__chars__char")?,
            two_byte_chars: one(c"v8dbg_class_SeqTwoByteString__chars__char")?,
            cons_first: one(c"v8dbg_class_ConsString__first__String")?,
            cons_second: one(c"v8dbg_class_ConsString__second__String")?,
            external_resource: one(c"v8dbg_class_ExternalString__resource__Object")?,
            sliced_parent: one(c"v8dbg_class_SlicedString__parent__String")?,
            sliced_offset: one(c"v8dbg_class_SlicedString__offset__SMI")?,
            thin_actual: one(c"v8dbg_class_ThinString__actual__String")?,
            array_data: one(c"v8dbg_class_FixedArray__data__uintptr_t")?,
            // Version 18 uses these numbers and does not export them.
            inlined_count_index: or(c"v8dbg_DeoptimizationDataInlinedFunctionCountIndex", 1),
            literals_index: or(c"v8dbg_DeoptimizationDataLiteralArrayIndex", 2),
            positions_index: or(c"v8dbg_DeoptimizationDataInliningPositionsIndex", 7),
            function_index: lookup::constant(&[
                c"v8dbg_DeoptimizationDataSharedFunctionInfoIndex",
                c"v8dbg_DeoptimizationDataWrappedSharedFunctionInfoIndex",
            ])
            .unwrap_or(6),
            bytecode: one(c"v8dbg_class_BytecodeArray__data__uintptr_t")?,
            bytecode_type: one(c"v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE")? as u64,
            code_type: lookup::constant(&[
                c"v8dbg_type_InstructionStream__INSTRUCTION_STREAM_TYPE",
                c"v8dbg_type_Code__CODE_TYPE",
            ])? as u64,
            baseline_type: one(c"v8dbg_type_Code__CODE_TYPE")? as u64,
        })
    }

    /// Distance from the bytecode array object to its first bytecode.
    pub fn bytecode_header_bytes(&self) -> usize {
        self.bytecode
    }

    fn type_of(&self, object: u64) -> Option<u64> {
        self.type_of_map(field(object, 0)?)
    }

    fn type_of_map(&self, map: u64) -> Option<u64> {
        let address = untagged(map)? + self.instance_type;
        let word = guarded::read_u64(address & !7)?;
        Some(word >> (address % WORD * 8) & 0xffff)
    }

    /// The script of a function, if it has one.
    pub fn script(&self, function: u64) -> Option<u64> {
        let script = field(function, self.function_script)?;
        (self.type_of(script)? == self.script_type).then_some(script)
    }

    pub fn source(&self, script: u64) -> Option<HeapString> {
        self.string(field(script, self.script_source)?)
    }

    pub fn name(&self, script: u64) -> Option<HeapString> {
        self.string(field(script, self.script_name)?)
    }

    /// Offsets of the first code unit of each line, if V8 has computed the line ends; the source is not read then.
    pub fn line_starts(&self, script: u64, units: usize) -> Option<Box<[u32]>> {
        let ends = field(script, self.script_line_ends)?;
        let count = length(ends).filter(|count| (1..=MAX_LINES).contains(count))?;
        if self.type_of(ends)? != self.array_type {
            return None;
        }
        let mut words = vec![0; count * WORD];
        copy(&mut words, untagged(ends)?.wrapping_add(self.array_data)).then_some(())?;
        line_starts_of(words.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)), units)
    }

    /// A contiguous string, if `object` leads to one.
    pub fn string(&self, object: u64) -> Option<HeapString> {
        let (mut object, mut skipped) = (object, 0);
        let units = self.units(object)?;
        // Each representation refers to a simpler one.
        for _ in 0..4 {
            let instance_type = self.type_of(object).filter(|instance_type| *instance_type < 128)?;
            let is_one_byte = instance_type & ONE_BYTE != 0;
            let unit = if is_one_byte { 1 } else { 2 };
            let string = |address: usize| HeapString { address: address + skipped * unit, units, is_one_byte };
            match instance_type & REPRESENTATION {
                0 => {
                    let chars = if is_one_byte { self.one_byte_chars } else { self.two_byte_chars };
                    return Some(string(untagged(object)? + chars));
                }
                1 if self.units(field(object, self.cons_second)?)? == 0 => object = field(object, self.cons_first)?,
                2 if instance_type & UNCACHED == 0 => {
                    return Some(string(field(object, self.external_resource + WORD)? as usize))
                }
                3 => {
                    skipped += smi(field(object, self.sliced_offset)?)?;
                    object = field(object, self.sliced_parent)?;
                }
                5 => object = field(object, self.thin_actual)?,
                _ => return None,
            }
        }
        None
    }

    fn units(&self, object: u64) -> Option<usize> {
        let address = untagged(object)? + self.string_length;
        let word = guarded::read_u64(address & !7)?;
        let units = (word >> (address % WORD * 8)) as u32 as usize;
        (units <= MAX_STRING_UNITS).then_some(units)
    }

    /// The functions inlined into the code of `function`, whose instructions are at `start`. Its position table must match the
    /// `reported` positions. V8 reports none for some tiers: then the table beside the deoptimization data is decoded, with the
    /// encoding learned before. `script_of` returns the number of a function's script.
    pub fn inlining(
        &self,
        (start, len): (usize, usize),
        function: u64,
        reported: Option<&[Position]>,
        script_of: &mut dyn FnMut(u64) -> u32,
    ) -> Option<Inlining> {
        let groups = code_fields(start);
        let pairs = groups.iter().flat_map(|group| group.windows(2));
        let mut beside =
            pairs.filter(|pair| self.is_deoptimization_data_of(pair[0], function)).map(|pair| (pair[0], pair[1]));
        let (data, entries) = match reported {
            Some(reported) => {
                beside.find_map(|(data, table)| Some((data, learn_encoding(&bytes(table)?, reported)?)))?
            }
            None => {
                let encoding = known_encoding()?;
                beside.find_map(|(data, table)| Some((data, encoding.decode(&bytes(table)?, len)?)))?
            }
        };
        let is_plain = entries.iter().all(|entry| entry.inlining == 0);
        let inlining_positions =
            if is_plain { Vec::new() } else { self.inlining_positions(data, function, &entries, script_of)? };
        Inlining::new(entries, inlining_positions, reported.is_some())
    }

    /// Searches for the position table of bytecode with reported positions, until one was found.
    pub fn learn_from_bytecode(&self, start: usize, reported: &[Position]) {
        if reported.is_empty() || self.has_learned() {
            return;
        }
        for slot in (1..=HEADER_WORDS).map(|word| start.wrapping_sub(word * WORD) & !7) {
            let table = guarded::read_u64(slot).filter(|word| is_object(*word)).and_then(bytes);
            if table.is_some_and(|table| learn_encoding(&table, reported).is_some()) {
                return TABLE_DISTANCE.store(start.wrapping_sub(slot), Ordering::Relaxed);
            }
        }
    }

    pub fn has_learned(&self) -> bool {
        TABLE_DISTANCE.load(Ordering::Relaxed) != 0
    }

    /// The position table of the bytecode at `start`, once its location and encoding are known.
    pub fn bytecode_table(&self, start: usize) -> Option<(TableEncoding, SmallBytes)> {
        let back = Some(TABLE_DISTANCE.load(Ordering::Relaxed)).filter(|back| *back != 0)?;
        let table = guarded::read_u64(start.wrapping_sub(back)).filter(|word| is_object(*word))?;
        let length = length(table).filter(|length| (1..=MAX_TABLE_BYTES).contains(length))?;
        let contents = untagged(table)? + 2 * WORD;
        Some((known_encoding()?, SmallBytes::read(length, |buffer| copy(buffer, contents))?))
    }

    /// The data that maps the baseline code at `start` to its bytecode.
    pub fn baseline(&self, start: usize) -> Option<Baseline> {
        let groups = code_fields(start);
        let mut pairs = groups.iter().flat_map(|group| group.windows(2));
        let is_bytecode = |object: u64| is_object(object) && self.type_of(object) == Some(self.bytecode_type);
        let pair = pairs.find(|pair| is_bytecode(pair[0]) && is_object(pair[1]))?;
        let first = untagged(pair[0])? + self.bytecode;
        let length = length(pair[0]).filter(|length| (1..=MAX_TABLE_BYTES).contains(length))?;
        let mut bytecode = vec![0; length];
        let (encoding, table) = self.bytecode_table(first)?;
        copy(&mut bytecode, first).then_some(())?;
        Some(Baseline { code_sizes: bytes(pair[1])?.into(), bytecode: bytecode.into(), encoding, table: table.into() })
    }

    /// Whether `object` is the deoptimization data of `function`.
    fn is_deoptimization_data_of(&self, object: u64, function: u64) -> bool {
        self.functions_of(object).is_some_and(|functions| functions.contains(&function))
    }

    /// The function in deoptimization data, as stored and unwrapped.
    fn functions_of(&self, data: u64) -> Option<[u64; 2]> {
        let own = is_object(data).then(|| self.item(data, self.function_index)).flatten()?;
        let wrapped = (self.wrapped_function > 0).then(|| field(own, self.wrapped_function)).flatten();
        Some([own, wrapped.unwrap_or(own)])
    }

    fn item(&self, array: u64, index: usize) -> Option<u64> {
        (index < length(array)?).then(|| field(array, self.array_data + index * WORD)).flatten()
    }

    fn inlining_positions(
        &self,
        data: u64,
        function: u64,
        entries: &[PositionTableEntry],
        script_of: &mut dyn FnMut(u64) -> u32,
    ) -> Option<Vec<InliningPosition>> {
        let inlined = smi(self.item(data, self.inlined_count_index)?)?;
        let literals = self.item(data, self.literals_index)?;
        let packed = bytes(self.item(data, self.positions_index)?)?;
        let count = entries.iter().map(|entry| entry.inlining as usize).max()?;
        // A packed position, and the function's index in the literals, padded (V8: `InliningPosition`).
        let packed = packed.as_chunks::<16>().0;
        if count > packed.len() || packed.len() > MAX_INLINED {
            return None;
        }
        let position = |entry: &[u8; 16]| {
            let word = |at: usize| entry[at..at + 8].try_into().map(i64::from_le_bytes).ok();
            let (call_offset, caller) = positions::unpack(word(0)?)?;
            let number = word(8)? as i32;
            let script = match usize::try_from(number) {
                Ok(number) if number < inlined => {
                    // Literals may be weak references.
                    let object = self.item(literals, number)? & !3 | 1;
                    (field(object, 0)? == field(function, 0)?).then(|| script_of(object))?
                }
                // A function without a script, such as a builtin.
                _ => 0,
            };
            Some(InliningPosition { script, call_offset, caller })
        };
        packed.iter().map(position).collect()
    }
}

/// The words of the object that describes the code, and the words before the first instruction.
fn code_fields(start: usize) -> Vec<Vec<u64>> {
    let header = words(start.wrapping_sub(HEADER_WORDS * WORD));
    let describes = |at: &usize| {
        let object = header.get(*at).copied().filter(|word| is_object(*word))?;
        Some((*at, words(untagged(object)? + WORD))).filter(|(_, fields)| fields.contains(&(start as u64)))
    };
    // The word's index is constant in a process.
    let last = describes(&DESCRIPTION_INDEX.load(Ordering::Relaxed));
    let description = last.or_else(|| (0..header.len()).find_map(|index| describes(&index)));
    let fields = description.map(|(index, fields)| {
        DESCRIPTION_INDEX.store(index, Ordering::Relaxed);
        fields
    });
    fields.into_iter().chain([header]).collect()
}

/// Index, among the words before the first instruction, of the code's description found last.
static DESCRIPTION_INDEX: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The words at `address`; 0 for unreadable ones. The address may be a guess, and the words before the first instruction of a code
/// space are often unmapped.
fn words(address: usize) -> Vec<u64> {
    let memory = CheckedMemory::default();
    (0..HEADER_WORDS).map(|at| memory.word(address.wrapping_add(at * WORD)).unwrap_or(0) as u64).collect()
}

/// Distance from the first bytecode back to the word with its position table; 0 until it is found.
static TABLE_DISTANCE: AtomicUsize = AtomicUsize::new(0);

/// Index of this V8's table encoding, from 1, once a table matched the reported positions; 0 before.
static ENCODING: AtomicUsize = AtomicUsize::new(0);

fn known_encoding() -> Option<TableEncoding> {
    ENCODING.load(Ordering::Relaxed).checked_sub(1).and_then(|at| TABLE_ENCODINGS.get(at)).copied()
}

fn learn_encoding(table: &[u8], reported: &[Position]) -> Option<Vec<PositionTableEntry>> {
    let mut read =
        TABLE_ENCODINGS.iter().enumerate().map(|(at, encoding)| (at, encoding.decode_matching(table, reported)));
    let (at, entries) = read.find_map(|(at, entries)| Some((at, entries?)))?;
    ENCODING.store(at + 1, Ordering::Relaxed);
    Some(entries)
}

/// Line starts from line ends (Smis); the last line ends at the end of the source.
fn line_starts_of(ends: impl ExactSizeIterator<Item = u64>, units: usize) -> Option<Box<[u32]>> {
    let mut starts = Vec::with_capacity(ends.len() + 1);
    starts.push(0);
    for end in ends {
        let start = u32::try_from(smi(end)? + 1).ok()?;
        starts.last().is_some_and(|before| *before < start).then_some(())?;
        starts.push(start);
    }
    (starts.pop()? as usize == units + 1).then(|| starts.into())
}

fn is_object(word: u64) -> bool {
    word & 3 == 1 && word > 4096 && word < USER_SPACE_END as u64
}

fn untagged(object: u64) -> Option<usize> {
    (object & 3 == 1).then(|| (object - 1) as usize)
}

fn field(object: u64, offset: usize) -> Option<u64> {
    guarded::read_u64(untagged(object)?.wrapping_add(offset))
}

/// The value of a Smi.
fn smi(word: u64) -> Option<usize> {
    (word & 0xffff_ffff == 0).then_some((word >> 32) as usize).filter(|number| *number < 1 << 31)
}

/// The length of an array: a Smi, or an untagged integer.
fn length(array: u64) -> Option<usize> {
    let word = field(array, WORD)?;
    smi(word).or((word >> 32 == 0).then_some(word as usize))
}

/// The bytes of a byte array.
fn bytes(array: u64) -> Option<Vec<u8>> {
    let length = length(array).filter(|length| (1..=MAX_TABLE_BYTES).contains(length))?;
    let mut bytes = vec![0; length];
    copy(&mut bytes, untagged(array)? + 2 * WORD).then_some(bytes)
}

fn copy(into: &mut [u8], from: usize) -> bool {
    // SAFETY: the destination has this length; the source may be any address.
    unsafe { guarded::copy(into.as_mut_ptr(), from, into.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_starts_follow_the_line_ends_of_v8() {
        let starts = |ends: &[u64]| line_starts_of(ends.iter().map(|end| end << 32), 9);
        assert_eq!(starts(&[1, 4, 6, 9]).as_deref(), Some(&[0, 2, 5, 7][..]));
        assert_eq!([&[1, 4][..], &[4, 1, 9], &[4, 4, 9], &[]].map(starts), [None, None, None, None]);
    }
}
