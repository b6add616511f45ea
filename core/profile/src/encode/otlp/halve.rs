//! Halves an encoded request without decoding it into the model: copies half of the samples and the dictionary entries that
//! they use, and renumbers the references between them. So the sending side needs no decoder.
//!
//! Reads only what [`super::encode`] writes. Other bytes may give a request with invalid references, never a panic.

use std::ops::Range;

use hashbrown::HashMap;
use prost::encoding::{decode_key, decode_varint, WireType};

use crate::encode::message_writer::MessageWriter;

/// A table of the dictionary, by its field number.
#[derive(Clone, Copy)]
enum WireTable {
    Mapping = 1,
    Location,
    Function,
    Link,
    String,
    Attribute,
    Stack,
}

/// Where a field contains references. Fields without a rule are copied unchanged.
enum ReferenceRule {
    /// One index.
    Index(WireTable),
    /// Packed indices.
    Indices(WireTable),
    /// A message with references.
    Message(FieldRules),
}

type FieldRules = &'static [(u32, ReferenceRule)];

use ReferenceRule::{Index, Indices, Message};

const VALUE_TYPE: FieldRules = &[(1, Index(WireTable::String)), (2, Index(WireTable::String))];
const PROFILE: FieldRules = &[(1, Message(VALUE_TYPE)), (5, Message(VALUE_TYPE)), (11, Indices(WireTable::Attribute))];
const SAMPLE: FieldRules =
    &[(1, Index(WireTable::Stack)), (2, Indices(WireTable::Attribute)), (3, Index(WireTable::Link))];

/// The rules of a table's entries. References between tables have no cycles.
const fn rules_of(table: WireTable) -> FieldRules {
    match table {
        WireTable::Mapping => &[(4, Index(WireTable::String)), (5, Indices(WireTable::Attribute))],
        WireTable::Location => &[
            (1, Index(WireTable::Mapping)),
            (3, Message(&[(1, Index(WireTable::Function))])),
            (4, Indices(WireTable::Attribute)),
        ],
        WireTable::Function => {
            &[(1, Index(WireTable::String)), (2, Index(WireTable::String)), (3, Index(WireTable::String))]
        }
        WireTable::Link | WireTable::String => &[],
        WireTable::Attribute => &[(1, Index(WireTable::String)), (3, Index(WireTable::String))],
        WireTable::Stack => &[(1, Indices(WireTable::Location))],
    }
}

/// Number of the field that contains the scopes of a resource, the profiles of a scope and the samples of a profile.
const CHILDREN: u32 = 2;
const PROFILE_ID: u32 = 7;

#[derive(Clone, Copy)]
enum FieldValue<'b> {
    Varint(u64),
    Fixed64(u64),
    Delimited(&'b [u8]),
}

/// The fields of a message; `None` when it is malformed.
fn fields(mut message: &[u8]) -> Option<Vec<(u32, FieldValue<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let (number, wire_type) = decode_key(&mut message).ok()?;
        let value = match wire_type {
            WireType::Varint => FieldValue::Varint(decode_varint(&mut message).ok()?),
            WireType::SixtyFourBit => {
                let (bytes, rest) = message.split_first_chunk()?;
                message = rest;
                FieldValue::Fixed64(u64::from_le_bytes(*bytes))
            }
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                FieldValue::Delimited(bytes)
            }
            _ => return None,
        };
        fields.push((number, value));
    }
    Some(fields)
}

/// The messages in field `number`.
fn messages<'f, 'b>(fields: &'f [(u32, FieldValue<'b>)], number: u32) -> impl Iterator<Item = &'b [u8]> + use<'f, 'b> {
    fields.iter().filter_map(move |(field, value)| match value {
        FieldValue::Delimited(message) if *field == number => Some(*message),
        _ => None,
    })
}

/// The two halves and the number of samples in each; `None` when there are fewer than two samples or the body is malformed.
pub(super) fn halves(body: &[u8]) -> Option<[(Vec<u8>, usize); 2]> {
    let request = fields(body)?;
    let mut total = 0;
    for resource in messages(&request, 1) {
        for scope in messages(&fields(resource)?, CHILDREN) {
            for profile in messages(&fields(scope)?, CHILDREN) {
                total += messages(&fields(profile)?, CHILDREN).count();
            }
        }
    }
    let middle = total / 2;
    if middle == 0 {
        return None;
    }
    Some([(half(&request, 0..middle)?, middle), (half(&request, middle..total)?, total - middle)])
}

fn half(request: &[(u32, FieldValue<'_>)], kept: Range<usize>) -> Option<Vec<u8>> {
    let dictionary = messages(request, 2).map(fields).next()??;
    let tables = std::array::from_fn(|nth| CopiedTable::new(messages(&dictionary, nth as u32 + 1).collect()));
    let mut half = HalfRequest { tables, kept, next_sample: 0 };
    let mut out = MessageWriter::default();
    for resource in messages(request, 1) {
        if let Some(resource) = half.parent(resource, 2)? {
            out.present_bytes(1, &resource);
        }
    }
    out.message(2, |out| {
        for (nth, table) in half.tables.iter().enumerate() {
            table.entries.iter().for_each(|entry| out.present_bytes(nth as u32 + 1, entry));
        }
    });
    Some(out.into_bytes())
}

/// The entries of one table that are used so far.
struct CopiedTable<'b> {
    source: Vec<&'b [u8]>,
    /// Entry 0 is the empty value.
    entries: Vec<Vec<u8>>,
    /// Index in `entries` by index in `source`.
    copied: HashMap<u64, u64>,
}

impl<'b> CopiedTable<'b> {
    fn new(source: Vec<&'b [u8]>) -> Self {
        let empty = source.first().map_or(Vec::new(), |entry| entry.to_vec());
        Self { source, entries: vec![empty], copied: HashMap::from([(0, 0)]) }
    }
}

/// One half while it is copied.
struct HalfRequest<'b> {
    tables: [CopiedTable<'b>; 7],
    /// Numbers of its samples in the request.
    kept: Range<usize>,
    next_sample: usize,
}

impl HalfRequest<'_> {
    /// A resource (level 2), scope (level 1) or profile (level 0) with the samples that are kept: `Some(None)` without any,
    /// `None` when the message is malformed.
    fn parent(&mut self, message: &[u8], level: u32) -> Option<Option<Vec<u8>>> {
        let fields = fields(message)?;
        if level == 0 {
            return self.profile(&fields);
        }
        let mut out = MessageWriter::default();
        let mut has_samples = false;
        for (number, value) in fields {
            match value {
                FieldValue::Delimited(child) if number == CHILDREN => {
                    if let Some(child) = self.parent(child, level - 1)? {
                        has_samples = true;
                        out.present_bytes(CHILDREN, &child);
                    }
                }
                value => self.field(number, value, &[], &mut out)?,
            }
        }
        Some(has_samples.then(|| out.into_bytes()))
    }

    fn profile(&mut self, fields: &[(u32, FieldValue<'_>)]) -> Option<Option<Vec<u8>>> {
        let first = self.next_sample;
        self.next_sample += messages(fields, CHILDREN).count();
        let kept = self.kept.start.max(first)..self.kept.end.min(self.next_sample);
        if kept.is_empty() {
            return Some(None);
        }
        let mut out = MessageWriter::default();
        let mut number_of_sample = first;
        for (number, value) in fields {
            match (*number, value) {
                (CHILDREN, FieldValue::Delimited(sample)) => {
                    if kept.contains(&number_of_sample) {
                        let sample = self.message(sample, SAMPLE)?;
                        out.present_bytes(CHILDREN, &sample);
                    }
                    number_of_sample += 1;
                }
                (PROFILE_ID, FieldValue::Delimited(id)) if kept != (first..self.next_sample) => {
                    let nth = u32::from(self.kept.start > 0);
                    out.present_bytes(PROFILE_ID, &nth_id((*id).try_into().ok()?, nth));
                }
                (number, value) => self.field(number, *value, PROFILE, &mut out)?,
            }
        }
        Some(Some(out.into_bytes()))
    }

    fn message(&mut self, message: &[u8], rules: FieldRules) -> Option<Vec<u8>> {
        let mut out = MessageWriter::default();
        for (number, value) in fields(message)? {
            self.field(number, value, rules, &mut out)?;
        }
        Some(out.into_bytes())
    }

    fn field(&mut self, number: u32, value: FieldValue<'_>, rules: FieldRules, out: &mut MessageWriter) -> Option<()> {
        let rule = rules.iter().find(|(field, _)| *field == number).map(|(_, rule)| rule);
        match (rule, value) {
            (None, FieldValue::Varint(value)) => out.present_uint(number, value),
            (None, FieldValue::Fixed64(value)) => out.present_fixed64(number, value),
            (None, FieldValue::Delimited(bytes)) => out.present_bytes(number, bytes),
            (Some(Index(table)), FieldValue::Varint(index)) => out.uint(number, self.index(*table, index)?),
            (Some(Indices(table)), FieldValue::Delimited(mut packed)) => {
                let mut indices = Vec::new();
                while !packed.is_empty() {
                    indices.push(self.index(*table, decode_varint(&mut packed).ok()?)?);
                }
                out.packed_uints(number, indices.iter().copied());
            }
            (Some(Message(rules)), FieldValue::Delimited(message)) => {
                out.present_bytes(number, &self.message(message, rules)?);
            }
            (Some(_), _) => return None,
        }
        Some(())
    }

    /// The index of an entry in this half; copies the entry on its first use.
    fn index(&mut self, table: WireTable, index: u64) -> Option<u64> {
        let at = table as usize - 1;
        if let Some(copied) = self.tables[at].copied.get(&index) {
            return Some(*copied);
        }
        let entry = *self.tables[at].source.get(usize::try_from(index).ok()?)?;
        let entry = match table {
            WireTable::String => entry.to_vec(),
            _ => self.message(entry, rules_of(table))?,
        };
        let CopiedTable { entries, copied, .. } = &mut self.tables[at];
        let new = entries.len() as u64;
        entries.push(entry);
        copied.insert(index, new);
        Some(new)
    }
}

/// The id of part `nth` of a profile: parts of parts are distinct, a random id stays random, the empty id stays empty.
pub(super) fn nth_id(id: [u8; 16], nth: u32) -> [u8; 16] {
    const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
    match u128::from_be_bytes(id) {
        0 => id,
        id => id.wrapping_mul(MULTIPLIER).wrapping_add(u128::from(nth) * 2 + 1).max(1).to_be_bytes(),
    }
}
