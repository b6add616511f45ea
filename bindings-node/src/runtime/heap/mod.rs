//! Reads objects of V8's heap through guarded loads: the text of a script, and what a piece of optimised code says of the
//! functions inlined into it. On the isolate's own thread, inside V8's call about new code or right behind it: nothing moves
//! meanwhile. Offsets are V8's own constants for debuggers; what they lead to is checked before it is believed.

mod resident;
mod text;
mod unlisted;

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use spanprof_signal::guarded;

use super::told::Bytes;
use super::v8;
use crate::positions::{self, Baseline, Call, Entry, Form, Inlining, Position, FORMS};
pub use text::Text;
pub use unlisted::{executable_near, Found, Listed};

/// V8's constants.
pub struct Layout {
    instance_type: usize,
    script_type: u64,
    function_script: usize,
    /// 0 where none are wrapped.
    wrapped_function: usize,
    script_source: usize,
    script_name: usize,
    script_line_ends: usize,
    array_type: u64,
    string_length: usize,
    one_byte_text: usize,
    two_byte_text: usize,
    first_part: usize,
    second_part: usize,
    external: usize,
    parent: usize,
    parent_offset: usize,
    actual: usize,
    array: usize,
    inlined_count_index: usize,
    literals_index: usize,
    positions_index: usize,
    function_index: usize,
    byte_code: usize,
    byte_code_type: u64,
    /// Of machine code in the heap.
    code_type: u64,
}

const WORD: usize = 8;
/// Words before the first instruction, and of a code object, that are looked at.
const HEADER_WORDS: usize = 20;
const MAX_TABLE_BYTES: usize = 1 << 20;
const MAX_INLINED: usize = 4096;
const MAX_LINES: usize = 4 << 20;
const MAX_TEXT_UNITS: usize = 128 << 20;
const REPRESENTATION: u64 = 7;
const ONE_BYTE: u64 = 8;
/// An external text whose address is kept in its resource alone.
const UNCACHED: u64 = 16;

impl Layout {
    /// The layout of this process's V8; `None` when it does not tell.
    pub fn find() -> Option<Self> {
        let one = |name: &CStr| v8::constant(&[name]);
        let or = |name: &CStr, otherwise: usize| one(name).unwrap_or(otherwise);
        Some(Self {
            instance_type: one(c"v8dbg_class_Map__instance_type__uint16_t")?,
            script_type: one(c"v8dbg_type_Script__SCRIPT_TYPE")? as u64,
            function_script: v8::constant(&[
                c"v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
                c"v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            ])?,
            wrapped_function: or(c"v8dbg_class_SharedFunctionInfoWrapper__shared_info__Tagged_SharedFunctionInfo_", 0),
            script_source: one(c"v8dbg_class_Script__source__Object")?,
            script_name: one(c"v8dbg_class_Script__name__Object")?,
            script_line_ends: one(c"v8dbg_class_Script__line_ends__Object")?,
            array_type: one(c"v8dbg_type_FixedArray__FIXED_ARRAY_TYPE")? as u64,
            string_length: one(c"v8dbg_class_String__length__int32_t")?,
            one_byte_text: one(c"v8dbg_class_SeqOneByteString__chars__char")?,
            two_byte_text: one(c"v8dbg_class_SeqTwoByteString__chars__char")?,
            first_part: one(c"v8dbg_class_ConsString__first__String")?,
            second_part: one(c"v8dbg_class_ConsString__second__String")?,
            external: one(c"v8dbg_class_ExternalString__resource__Object")?,
            parent: one(c"v8dbg_class_SlicedString__parent__String")?,
            parent_offset: one(c"v8dbg_class_SlicedString__offset__SMI")?,
            actual: one(c"v8dbg_class_ThinString__actual__String")?,
            array: one(c"v8dbg_class_FixedArray__data__uintptr_t")?,
            // 18 has these numbers and does not export them.
            inlined_count_index: or(c"v8dbg_DeoptimizationDataInlinedFunctionCountIndex", 1),
            literals_index: or(c"v8dbg_DeoptimizationDataLiteralArrayIndex", 2),
            positions_index: or(c"v8dbg_DeoptimizationDataInliningPositionsIndex", 7),
            function_index: v8::constant(&[
                c"v8dbg_DeoptimizationDataSharedFunctionInfoIndex",
                c"v8dbg_DeoptimizationDataWrappedSharedFunctionInfoIndex",
            ])
            .unwrap_or(6),
            byte_code: one(c"v8dbg_class_BytecodeArray__data__uintptr_t")?,
            byte_code_type: one(c"v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE")? as u64,
            code_type: v8::constant(&[
                c"v8dbg_type_InstructionStream__INSTRUCTION_STREAM_TYPE",
                c"v8dbg_type_Code__CODE_TYPE",
            ])? as u64,
        })
    }

    /// From the beginning of the object that holds byte code to the byte code.
    pub fn byte_code_header_bytes(&self) -> usize {
        self.byte_code
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

    pub fn source(&self, script: u64) -> Option<Text> {
        self.text(field(script, self.script_source)?)
    }

    pub fn name(&self, script: u64) -> Option<Text> {
        self.text(field(script, self.script_name)?)
    }

    /// The offsets of the first units of a script's lines, if V8 has looked for their ends: the text is left alone then.
    pub fn line_starts(&self, script: u64, units: usize) -> Option<Box<[u32]>> {
        let ends = field(script, self.script_line_ends)?;
        let count = length(ends).filter(|count| (1..=MAX_LINES).contains(count))?;
        if self.type_of(ends)? != self.array_type {
            return None;
        }
        let mut words = vec![0; count * WORD];
        copy(&mut words, untagged(ends)?.wrapping_add(self.array)).then_some(())?;
        starts_of(words.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)), units)
    }

    /// A text, if `object` is one that lies in one piece.
    pub fn text(&self, object: u64) -> Option<Text> {
        let (mut object, mut skipped) = (object, 0);
        let units = self.units(object)?;
        // Each kind leads to a plainer one.
        for _ in 0..4 {
            let kind = self.type_of(object).filter(|kind| *kind < 128)?;
            let is_one_byte = kind & ONE_BYTE != 0;
            let unit = if is_one_byte { 1 } else { 2 };
            let text = |address: usize| Text { address: address + skipped * unit, units, is_one_byte };
            match kind & REPRESENTATION {
                0 => {
                    let chars = if is_one_byte { self.one_byte_text } else { self.two_byte_text };
                    return Some(text(untagged(object)? + chars));
                }
                1 if self.units(field(object, self.second_part)?)? == 0 => object = field(object, self.first_part)?,
                2 if kind & UNCACHED == 0 => return Some(text(field(object, self.external + WORD)? as usize)),
                3 => {
                    skipped += small(field(object, self.parent_offset)?)?;
                    object = field(object, self.parent)?;
                }
                5 => object = field(object, self.actual)?,
                _ => return None,
            }
        }
        None
    }

    fn units(&self, object: u64) -> Option<usize> {
        let address = untagged(object)? + self.string_length;
        let word = guarded::read_u64(address & !7)?;
        let units = (word >> (address % WORD * 8)) as u32 as usize;
        (units <= MAX_TEXT_UNITS).then_some(units)
    }

    /// The functions inlined into the code of `function`, whose instructions are at `start`. Its table must say what V8
    /// `told`; of a tier that V8 tells nothing of, it is the table beside the code's own data, in the form known by then.
    /// `script_of` numbers the script of a function.
    pub fn inlining(
        &self,
        (start, len): (usize, usize),
        function: u64,
        told: Option<&[Position]>,
        script_of: &mut dyn FnMut(u64) -> u32,
    ) -> Option<Inlining> {
        let groups = code_fields(start);
        let pairs = groups.iter().flat_map(|group| group.windows(2));
        let mut beside = pairs.filter(|pair| self.is_data_of(pair[0], function)).map(|pair| (pair[0], pair[1]));
        let (data, entries) = match told {
            Some(told) => beside.find_map(|(data, table)| Some((data, learn(&bytes(table)?, told)?)))?,
            None => {
                let form = known_form()?;
                beside.find_map(|(data, table)| Some((data, form.decode(&bytes(table)?, len)?)))?
            }
        };
        let is_plain = entries.iter().all(|entry| entry.inlining == 0);
        let calls = if is_plain { Vec::new() } else { self.calls(data, function, &entries, script_of)? };
        Inlining::new(entries, calls, told.is_some())
    }

    /// Looks for the table of byte code whose places V8 told; nothing to do once one was found.
    pub fn learn_from_byte_code(&self, start: usize, told: &[Position]) {
        if told.is_empty() || self.has_learned() {
            return;
        }
        for place in (1..=HEADER_WORDS).map(|word| start.wrapping_sub(word * WORD) & !7) {
            let table = guarded::read_u64(place).filter(|word| is_object(*word)).and_then(bytes);
            if table.is_some_and(|table| learn(&table, told).is_some()) {
                return BYTE_CODE_FIELD.store(start.wrapping_sub(place), Ordering::Relaxed);
            }
        }
    }

    pub fn has_learned(&self) -> bool {
        BYTE_CODE_FIELD.load(Ordering::Relaxed) != 0
    }

    /// The line table of the byte code at `start`, once it is known where that is and how it is written.
    pub fn byte_code_table(&self, start: usize) -> Option<(Form, Bytes)> {
        let back = Some(BYTE_CODE_FIELD.load(Ordering::Relaxed)).filter(|back| *back != 0)?;
        let table = guarded::read_u64(start.wrapping_sub(back)).filter(|word| is_object(*word))?;
        let length = length(table).filter(|length| (1..=MAX_TABLE_BYTES).contains(length))?;
        let contents = untagged(table)? + 2 * WORD;
        Some((known_form()?, Bytes::read(length, |place| copy(place, contents))?))
    }

    /// What leads from the baseline code at `start` to its places: by its byte code, which it follows step by step.
    pub fn baseline(&self, start: usize) -> Option<Baseline> {
        let groups = code_fields(start);
        let mut pairs = groups.iter().flat_map(|group| group.windows(2));
        let is_byte_code = |object: u64| is_object(object) && self.type_of(object) == Some(self.byte_code_type);
        let pair = pairs.find(|pair| is_byte_code(pair[0]) && is_object(pair[1]))?;
        let first = untagged(pair[0])? + self.byte_code;
        let length = length(pair[0]).filter(|length| (1..=MAX_TABLE_BYTES).contains(length))?;
        let mut byte_code = vec![0; length];
        let (form, table) = self.byte_code_table(first)?;
        copy(&mut byte_code, first).then_some(())?;
        Some(Baseline { steps: bytes(pair[1])?.into(), byte_code: byte_code.into(), form, table: table.into() })
    }

    /// Whether `object` is the data that optimised code of `function` has beside its table.
    fn is_data_of(&self, object: u64, function: u64) -> bool {
        self.functions_of(object).is_some_and(|functions| functions.contains(&function))
    }

    /// What the data of optimised code gives as its function, as itself and unwrapped.
    fn functions_of(&self, data: u64) -> Option<[u64; 2]> {
        let own = is_object(data).then(|| self.item(data, self.function_index)).flatten()?;
        let wrapped = (self.wrapped_function > 0).then(|| field(own, self.wrapped_function)).flatten();
        Some([own, wrapped.unwrap_or(own)])
    }

    fn item(&self, array: u64, index: usize) -> Option<u64> {
        (index < length(array)?).then(|| field(array, self.array + index * WORD)).flatten()
    }

    fn calls(
        &self,
        data: u64,
        function: u64,
        entries: &[Entry],
        script_of: &mut dyn FnMut(u64) -> u32,
    ) -> Option<Vec<Call>> {
        let inlined = small(self.item(data, self.inlined_count_index)?)?;
        let literals = self.item(data, self.literals_index)?;
        let places = bytes(self.item(data, self.positions_index)?)?;
        let count = entries.iter().map(|entry| entry.inlining as usize).max()?;
        // A packed position, and the number of the function among the literals, padded.
        let places = places.as_chunks::<16>().0;
        if count > places.len() || places.len() > MAX_INLINED {
            return None;
        }
        let call = |place: &[u8; 16]| {
            let word = |at: usize| place[at..at + 8].try_into().map(i64::from_le_bytes).ok();
            let (called_at, caller) = positions::unpack(word(0)?)?;
            let number = word(8)? as i32;
            let script = match usize::try_from(number) {
                Ok(number) if number < inlined => {
                    // Literals may be held weakly.
                    let object = self.item(literals, number)? & !3 | 1;
                    (field(object, 0)? == field(function, 0)?).then(|| script_of(object))?
                }
                // A function without code of its own, such as a built-in one.
                _ => 0,
            };
            Some(Call { script, called_at, caller })
        };
        places.iter().map(call).collect()
    }
}

/// The words of the object that describes the code, and those before the first instruction.
fn code_fields(start: usize) -> Vec<Vec<u64>> {
    let header = words(start.wrapping_sub(HEADER_WORDS * WORD));
    let describes = |at: &usize| {
        let object = header.get(*at).copied().filter(|word| is_object(*word))?;
        Some((*at, words(untagged(object)? + WORD))).filter(|(_, fields)| fields.contains(&(start as u64)))
    };
    // It is always the same word.
    let known = describes(&DESCRIBED_AT.load(Ordering::Relaxed));
    let found = known.or_else(|| (0..header.len()).find_map(|at| describes(&at)));
    let fields = found.map(|(at, fields)| {
        DESCRIBED_AT.store(at, Ordering::Relaxed);
        fields
    });
    fields.into_iter().chain([header]).collect()
}

/// Place among the words before the first instruction where the code's description was found last.
static DESCRIBED_AT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// As many words as are looked at; 0 for those that cannot be read.
fn words(address: usize) -> Vec<u64> {
    let mut bytes = [0; HEADER_WORDS * WORD];
    match copy(&mut bytes, address) {
        true => bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        false => {
            let word = |at: usize| guarded::read_u64(address.wrapping_add(at * WORD)).unwrap_or(0);
            (0..HEADER_WORDS).map(word).collect()
        }
    }
}

/// From the first byte code back to the word with its line table, once it was found; 0 before.
static BYTE_CODE_FIELD: AtomicUsize = AtomicUsize::new(0);

/// The form of this V8's tables, once one was seen to say what V8 told: its place among the forms, from 1.
static FORM: AtomicUsize = AtomicUsize::new(0);

fn known_form() -> Option<Form> {
    FORM.load(Ordering::Relaxed).checked_sub(1).and_then(|at| FORMS.get(at)).copied()
}

fn learn(table: &[u8], told: &[Position]) -> Option<Vec<Entry>> {
    let mut read = FORMS.iter().enumerate().map(|(at, form)| (at, form.decode_told(table, told)));
    let (at, entries) = read.find_map(|(at, entries)| Some((at, entries?)))?;
    FORM.store(at + 1, Ordering::Relaxed);
    Some(entries)
}

/// From the offsets of the last units of lines, small integers, to those of the first ones; the last line ends behind the text.
fn starts_of(ends: impl ExactSizeIterator<Item = u64>, units: usize) -> Option<Box<[u32]>> {
    let mut starts = Vec::with_capacity(ends.len() + 1);
    starts.push(0);
    for end in ends {
        let start = u32::try_from(small(end)? + 1).ok()?;
        starts.last().is_some_and(|before| *before < start).then_some(())?;
        starts.push(start);
    }
    (starts.pop()? as usize == units + 1).then(|| starts.into())
}

fn is_object(word: u64) -> bool {
    word & 3 == 1 && word > 4096 && word < 1 << 47
}

fn untagged(object: u64) -> Option<usize> {
    (object & 3 == 1).then(|| (object - 1) as usize)
}

fn field(object: u64, offset: usize) -> Option<u64> {
    guarded::read_u64(untagged(object)?.wrapping_add(offset))
}

/// A small integer.
fn small(word: u64) -> Option<usize> {
    (word & 0xffff_ffff == 0).then_some((word >> 32) as usize).filter(|number| *number < 1 << 31)
}

/// Of an array: a small integer, or a plain one.
fn length(array: u64) -> Option<usize> {
    let word = field(array, WORD)?;
    small(word).or((word >> 32 == 0).then_some(word as usize))
}

/// The bytes of a byte array.
fn bytes(array: u64) -> Option<Vec<u8>> {
    let length = length(array).filter(|length| (1..=MAX_TABLE_BYTES).contains(length))?;
    let mut bytes = vec![0; length];
    copy(&mut bytes, untagged(array)? + 2 * WORD).then_some(bytes)
}

fn copy(into: &mut [u8], from: usize) -> bool {
    // SAFETY: the destination is ours and that long; the source may be anything.
    unsafe { guarded::copy(into.as_mut_ptr(), from, into.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_behind_the_ends_that_v8_found() {
        let starts = |ends: &[u64]| starts_of(ends.iter().map(|end| end << 32), 9);
        assert_eq!(starts(&[1, 4, 6, 9]).as_deref(), Some(&[0, 2, 5, 7][..]));
        assert_eq!([&[1, 4][..], &[4, 1, 9], &[4, 4, 9], &[]].map(starts), [None, None, None, None]);
    }
}
