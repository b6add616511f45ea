//! Checks protobuf bytes against a schema before they are decoded: lengths, wire types, UTF-8, and the memory of the decoded
//! message and the model. Two bytes of an empty submessage decode to a hundred bytes of structure, so a limit on input bytes
//! alone does not limit memory.
//!
//! Invariant: allocates only to build an error. Memory figures in the schemas are upper estimates: message with vector
//! growth, allocator overhead, the model's copy.

use crate::error::DecodeError;
use crate::limits::DecodeLimits;

/// Maximum nesting of messages. The schemas need 8; only nested attribute values can be deeper.
const MAX_NESTING: usize = 32;

/// The fields of a message.
pub(crate) struct Schema {
    pub fields: &'static [SchemaField],
}

/// One field, and the bytes of memory of one occurrence (or one packed element).
pub(crate) struct SchemaField {
    pub number: u32,
    pub name: &'static str,
    pub kind: FieldKind,
    pub memory_bytes: usize,
    pub limit: ListLimit,
}

pub(crate) enum FieldKind {
    /// A list of messages, or a message.
    Message(fn() -> &'static Schema),
    /// Must be UTF-8. Costs twice its length in addition.
    Text,
    /// Costs nine times its length in addition: bytes that are not UTF-8 grow threefold in the lossy conversion to text, and
    /// are then copied.
    Bytes,
    Varint,
    Fixed64,
    /// A list of varints, packed or not.
    Varints,
    /// A list of 64-bit numbers, packed or not.
    Fixed64s,
}

/// The limit of the number of entries of a field.
#[derive(Clone, Copy)]
pub(crate) enum ListLimit {
    Entries,
    StackDepth,
}

/// A violation, before the path of the enclosing messages is complete.
struct ScanError {
    /// Innermost segment first.
    path: Vec<String>,
    expected: String,
    got: String,
}

fn scan_error<T>(expected: impl Into<String>, got: impl Into<String>) -> Result<T, ScanError> {
    Err(ScanError { path: Vec::new(), expected: expected.into(), got: got.into() })
}

struct Scan<'l> {
    limits: &'l DecodeLimits,
    memory_bytes: usize,
}

/// Rejects bytes that violate `schema` or `limits`.
pub(crate) fn scan(
    what: &'static str,
    bytes: &[u8],
    schema: &Schema,
    limits: &DecodeLimits,
) -> Result<(), DecodeError> {
    let mut scan = Scan { limits, memory_bytes: 0 };
    scan.message(bytes, schema, 0).map_err(|ScanError { mut path, expected, got }| {
        path.reverse();
        DecodeError { what, at: path.join("."), expected, got }
    })
}

/// The distinct field numbers (below 64) of the outermost message; `None` when it is not protobuf.
pub(crate) fn outer_fields(bytes: &[u8]) -> Option<Vec<u32>> {
    let mut input = Input { bytes, at: 0 };
    let mut seen = 0u64;
    while !input.is_empty() {
        let (number, wire_type) = input.key().ok()?;
        input.skip(wire_type).ok()?;
        if number < 64 {
            seen |= 1 << number;
        }
    }
    Some((0..64).filter(|number| seen & (1 << number) != 0).collect())
}

/// Whether the outermost message has an impossible key, or a field beyond `largest`, before it is cut off.
pub(crate) fn has_foreign_field(bytes: &[u8], largest: u64) -> bool {
    let mut input = Input { bytes, at: 0 };
    while let Ok(key) = input.varint() {
        let (number, wire_type) = (key >> 3, (key & 7) as u8);
        if number == 0 || number > largest || !matches!(wire_type, 0 | 1 | 2 | 5) {
            return true;
        }
        if input.skip(wire_type).is_err() {
            break;
        }
    }
    false
}

/// Calls `visit` with each message in field `number` of the outermost message, in order, until it fails. For bytes that
/// [`scan`] has accepted.
pub(crate) fn for_each_message<E>(
    bytes: &[u8],
    number: u32,
    mut visit: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut input = Input { bytes, at: 0 };
    while let Ok((field, wire_type)) = input.key() {
        if (field, wire_type) != (number, 2) {
            if input.skip(wire_type).is_err() {
                break;
            }
        } else if let Ok(message) = input.delimited() {
            visit(message)?;
        }
    }
    Ok(())
}

/// Merges the fields of a message into `rest`, except for the submessages that `takes` accepts by field number. For bytes that
/// [`scan`] has accepted.
pub(crate) fn decode_without<'b, M: prost::Message>(
    bytes: &'b [u8],
    rest: &mut M,
    mut takes: impl FnMut(u32, &'b [u8], &mut M) -> Result<bool, prost::DecodeError>,
) -> Result<(), prost::DecodeError> {
    let mut input = Input { bytes, at: 0 };
    let (mut start, mut end) = (0, 0);
    while let Ok((number, wire_type)) = input.key() {
        if wire_type != 2 {
            if input.skip(wire_type).is_err() {
                break;
            }
        } else if let Ok(message) = input.delimited() {
            if takes(number, message, rest)? {
                rest.merge(&bytes[start..end])?;
                start = input.at;
            }
        }
        end = input.at;
    }
    rest.merge(&bytes[start..])
}

impl Scan<'_> {
    fn charge(&mut self, bytes: usize) -> Result<(), ScanError> {
        self.memory_bytes = self.memory_bytes.saturating_add(bytes);
        if self.memory_bytes > self.limits.memory_bytes {
            return scan_error(format!("at most {} bytes in memory", self.limits.memory_bytes), "more");
        }
        Ok(())
    }

    fn check_limit(&self, count: usize, limit: ListLimit) -> Result<(), ScanError> {
        let (limit, of) = match limit {
            ListLimit::Entries => (self.limits.table_entries, "entries"),
            ListLimit::StackDepth => (self.limits.stack_depth, "locations"),
        };
        if count > limit {
            scan_error(format!("at most {limit} {of}"), "more")
        } else {
            Ok(())
        }
    }

    fn message(&mut self, bytes: &[u8], schema: &Schema, nesting: usize) -> Result<(), ScanError> {
        if nesting > MAX_NESTING {
            return scan_error(format!("at most {MAX_NESTING} nested messages"), "more");
        }
        let mut input = Input { bytes, at: 0 };
        let mut seen = [0usize; 16];
        while !input.is_empty() {
            let (number, wire_type) = input.key()?;
            let Some(field) = schema.fields.iter().find(|field| field.number == number) else {
                input.skip(wire_type)?;
                continue;
            };
            let nth = &mut seen[number as usize % 16];
            self.field(&mut input, field, wire_type, nth, nesting).map_err(|mut error| {
                error.path.push(match field.kind {
                    FieldKind::Message(_) | FieldKind::Text if *nth > 0 => format!("{}[{}]", field.name, *nth - 1),
                    _ => field.name.to_owned(),
                });
                error
            })?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        input: &mut Input<'_>,
        field: &SchemaField,
        wire_type: u8,
        nth: &mut usize,
        nesting: usize,
    ) -> Result<(), ScanError> {
        match (&field.kind, wire_type) {
            (FieldKind::Message(schema), 2) => {
                *nth += 1;
                self.check_limit(*nth, field.limit)?;
                self.charge(field.memory_bytes)?;
                self.message(input.delimited()?, schema(), nesting + 1)
            }
            (FieldKind::Text, 2) => {
                *nth += 1;
                self.check_limit(*nth, field.limit)?;
                let text = input.delimited()?;
                self.charge(field.memory_bytes + 2 * text.len())?;
                match std::str::from_utf8(text) {
                    Ok(_) => Ok(()),
                    Err(error) => scan_error("UTF-8 text", format!("byte {:#04x}", text[error.valid_up_to()])),
                }
            }
            (FieldKind::Bytes, 2) => {
                *nth += 1;
                self.check_limit(*nth, field.limit)?;
                let length = input.delimited()?.len();
                self.charge(field.memory_bytes + 9 * length)
            }
            (FieldKind::Varint, 0) => input.varint().map(drop),
            (FieldKind::Fixed64, 1) => input.take(8).map(drop),
            (FieldKind::Varints, 0) => {
                *nth += 1;
                self.check_limit(*nth, field.limit)?;
                self.charge(field.memory_bytes)?;
                input.varint().map(drop)
            }
            (FieldKind::Varints, 2) => {
                let mut packed = Input { bytes: input.delimited()?, at: 0 };
                let before = *nth;
                while !packed.is_empty() {
                    packed.varint()?;
                    *nth += 1;
                }
                self.check_limit(*nth, field.limit)?;
                self.charge(field.memory_bytes.saturating_mul(*nth - before))
            }
            (FieldKind::Fixed64s, 1) => {
                *nth += 1;
                self.check_limit(*nth, field.limit)?;
                self.charge(field.memory_bytes)?;
                input.take(8).map(drop)
            }
            (FieldKind::Fixed64s, 2) => {
                let packed = input.delimited()?;
                if packed.len() % 8 != 0 {
                    return scan_error("packed numbers of 8 bytes each", format!("{} bytes", packed.len()));
                }
                *nth += packed.len() / 8;
                self.check_limit(*nth, field.limit)?;
                self.charge(field.memory_bytes.saturating_mul(packed.len() / 8))
            }
            (kind, got) => {
                let expected = match kind {
                    FieldKind::Message(_) | FieldKind::Text | FieldKind::Bytes => "wire type 2",
                    FieldKind::Varint => "wire type 0",
                    FieldKind::Fixed64 => "wire type 1",
                    FieldKind::Varints => "wire type 0 or 2",
                    FieldKind::Fixed64s => "wire type 1 or 2",
                };
                scan_error(expected, format!("wire type {got} (another revision of the schema?)"))
            }
        }
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn varint(&mut self) -> Result<u64, ScanError> {
        let mut value = 0u64;
        for (nth, &byte) in self.bytes[self.at..].iter().take(10).enumerate() {
            if nth == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * nth);
            if byte < 0x80 {
                self.at += nth + 1;
                return Ok(value);
            }
        }
        let rest = self.bytes.len() - self.at;
        if rest < 10 {
            scan_error("a varint", "the end of the input")
        } else {
            scan_error("a varint of at most 64 bits", "a longer one")
        }
    }

    fn key(&mut self) -> Result<(u32, u8), ScanError> {
        let key = self.varint()?;
        match u32::try_from(key >> 3) {
            Ok(number) if number > 0 && number < 1 << 29 => Ok((number, (key & 7) as u8)),
            _ => scan_error("a field number from 1 to 536870911", format!("{}", key >> 3)),
        }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], ScanError> {
        let rest = (self.bytes.len() - self.at) as u64;
        if length > rest {
            return scan_error(format!("{length} more bytes"), format!("{rest}"));
        }
        let start = self.at;
        self.at += length as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn delimited(&mut self) -> Result<&'a [u8], ScanError> {
        let length = self.varint()?;
        self.take(length)
    }

    fn skip(&mut self, wire_type: u8) -> Result<(), ScanError> {
        match wire_type {
            0 => self.varint().map(drop),
            1 => self.take(8).map(drop),
            2 => self.delimited().map(drop),
            5 => self.take(4).map(drop),
            other => scan_error("a wire type of protobuf 3 (0, 1, 2 or 5)", format!("wire type {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::{messages, HasSchema};

    messages! { protobuf;
        Leaf {
            [1 uint32, repeated] numbers: Vec<u32>, 10, StackDepth;
            [2 string] text: String, 50;
        }
        Root {
            [1 message, repeated] leaves: Vec<Leaf>, 100;
            [2 message, repeated] again: Vec<Root>, 100;
            [3 fixed64, repeated] times: Vec<u64>, 16;
        }
    }

    fn error_of(bytes: &[u8], limits: &DecodeLimits) -> String {
        scan("test", bytes, Root::schema(), limits).unwrap_err().to_string()
    }

    #[test]
    fn an_error_has_the_path_of_the_field() {
        let bad_text = [0x0a, 0x00, 0x0a, 0x04, 0x12, 0x02, b'o', 0xff];
        assert_eq!(
            error_of(&bad_text, &DecodeLimits::default()),
            "cannot read test at leaves[1].text[0]: expected UTF-8 text, got byte 0xff"
        );
        let short = [0x0a, 0x05, 0x12];
        assert_eq!(
            error_of(&short, &DecodeLimits::default()),
            "cannot read test at leaves[0]: expected 5 more bytes, got 1"
        );
        assert_eq!(
            error_of(&[0x08, 0x01], &DecodeLimits::default()),
            "cannot read test at leaves: expected wire type 2, got wire type 0 (another revision of the schema?)"
        );
    }

    #[test]
    fn empty_messages_are_charged_their_cost_in_memory() {
        let many = [0x0a, 0x00].repeat(1000);
        assert!(scan(
            "test",
            &many,
            Root::schema(),
            &DecodeLimits { memory_bytes: 100_000, ..DecodeLimits::default() }
        )
        .is_ok());
        let error = error_of(&many, &DecodeLimits { memory_bytes: 99_999, ..DecodeLimits::default() });
        assert_eq!(error, "cannot read test at leaves[999]: expected at most 99999 bytes in memory, got more");
    }

    #[test]
    fn packed_and_unpacked_lists_are_limited() {
        let limits = DecodeLimits { stack_depth: 3, table_entries: 2, ..DecodeLimits::default() };
        assert!(scan("test", &[0x0a, 0x05, 0x0a, 0x03, 1, 2, 3], Root::schema(), &limits).is_ok());
        assert!(error_of(&[0x0a, 0x06, 0x0a, 0x04, 1, 2, 3, 4], &limits).contains("at most 3 locations"));
        assert!(error_of(&[0x0a, 0x08, 8, 1, 8, 2, 8, 3, 8, 4], &limits).contains("at most 3 locations"));
        assert!(error_of(&[0x0a, 0x00].repeat(3), &limits).contains("at most 2 entries"));
        assert!(error_of(&[0x1a, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0], &limits).contains("packed numbers of 8 bytes"));
    }

    #[test]
    fn deep_nesting_and_overlong_varints_are_rejected() {
        let mut deep = Vec::new();
        for _ in 0..40 {
            let mut outer = vec![0x12, deep.len() as u8];
            outer.append(&mut deep);
            deep = outer;
        }
        assert!(error_of(&deep, &DecodeLimits::default()).contains("at most 32 nested messages"));
        assert!(error_of(&[0xff; 12], &DecodeLimits::default()).contains("a varint of at most 64 bits"));
        assert!(error_of(&[0x0b], &DecodeLimits::default()).contains("expected wire type 2"));
        assert!(error_of(&[0x7b], &DecodeLimits::default()).contains("a wire type of protobuf 3"));
        assert!(
            error_of(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x07], &DecodeLimits::default()).contains("2147483647 more bytes")
        );
    }

    #[test]
    fn outer_fields_are_listed_and_unknown_fields_are_skipped() {
        assert_eq!(outer_fields(&[0x0a, 0x00, 0x32, 0x00]), Some(vec![1, 6]));
        assert_eq!(outer_fields(&[0x0a]), None);
        assert!(scan("test", &[0x5a, 0x02, 9, 9, 0x58, 1], Root::schema(), &DecodeLimits::default()).is_ok());
    }
}
