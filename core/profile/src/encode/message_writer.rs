//! Writes protobuf messages directly into one buffer: no message tree, no copy of strings. Omits zero scalars and empty
//! packed lists, as in proto3; [`MessageWriter::message`] writes empty messages too.
//!
//! Not `opentelemetry-proto` (it depends on `opentelemetry_sdk` and knows the profiles of its own release only) and not the
//! messages of the crate `pprof` (prost 0.12, with its sampler). A tree of messages for writing would copy each string first,
//! which costs more than the bytes. `spanprof_read::wire` has messages for reading.

use prost::encoding::{encode_key, encode_varint, encoded_len_varint, WireType};

/// A growing protobuf message.
#[derive(Default)]
pub(crate) struct MessageWriter {
    buffer: Vec<u8>,
}

impl MessageWriter {
    pub fn into_bytes(self) -> Vec<u8> {
        self.buffer
    }

    pub fn uint(&mut self, field: u32, value: u64) {
        if value != 0 {
            encode_key(field, WireType::Varint, &mut self.buffer);
            encode_varint(value, &mut self.buffer);
        }
    }

    pub fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value as u64);
    }

    /// Written even when it is zero: a member of a oneof.
    pub fn present_uint(&mut self, field: u32, value: u64) {
        encode_key(field, WireType::Varint, &mut self.buffer);
        encode_varint(value, &mut self.buffer);
    }

    pub fn fixed64(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.present_fixed64(field, value);
        }
    }

    /// Written even when it is zero: a member of a oneof.
    pub fn present_fixed64(&mut self, field: u32, value: u64) {
        encode_key(field, WireType::SixtyFourBit, &mut self.buffer);
        self.buffer.extend_from_slice(&value.to_le_bytes());
    }

    /// Written even when it is empty: an element of a list, or a member of a oneof.
    pub fn present_bytes(&mut self, field: u32, value: &[u8]) {
        encode_key(field, WireType::LengthDelimited, &mut self.buffer);
        encode_varint(value.len() as u64, &mut self.buffer);
        self.buffer.extend_from_slice(value);
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        if !value.is_empty() {
            self.present_bytes(field, value);
        }
    }

    pub fn packed_uints(&mut self, field: u32, values: impl Iterator<Item = u64> + Clone) {
        let length: usize = values.clone().map(encoded_len_varint).sum();
        if length > 0 {
            encode_key(field, WireType::LengthDelimited, &mut self.buffer);
            encode_varint(length as u64, &mut self.buffer);
            values.for_each(|value| encode_varint(value, &mut self.buffer));
        }
    }

    pub fn packed_fixed64(&mut self, field: u32, values: &[u64]) {
        if !values.is_empty() {
            encode_key(field, WireType::LengthDelimited, &mut self.buffer);
            encode_varint(values.len() as u64 * 8, &mut self.buffer);
            values.iter().for_each(|value| self.buffer.extend_from_slice(&value.to_le_bytes()));
        }
    }

    /// Writes a message in place. Reserves one byte for its length; a longer length shifts the body.
    pub fn message(&mut self, field: u32, body: impl FnOnce(&mut Self)) {
        encode_key(field, WireType::LengthDelimited, &mut self.buffer);
        let length_at = self.buffer.len();
        self.buffer.push(0);
        body(self);
        let length = (self.buffer.len() - length_at - 1) as u64;
        let extra = encoded_len_varint(length) - 1;
        if extra > 0 {
            let end = self.buffer.len();
            self.buffer.resize(end + extra, 0);
            self.buffer.copy_within(length_at + 1..end, length_at + 1 + extra);
        }
        encode_varint(length, &mut &mut self.buffer[length_at..length_at + 1 + extra]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Nested {
        #[prost(int64, tag = "1")]
        number: i64,
        #[prost(string, tag = "2")]
        text: String,
        #[prost(message, repeated, tag = "3")]
        children: Vec<Nested>,
        #[prost(uint64, repeated, tag = "4")]
        numbers: Vec<u64>,
        #[prost(fixed64, repeated, tag = "5")]
        times: Vec<u64>,
    }

    fn write(writer: &mut MessageWriter, nested: &Nested) {
        writer.int(1, nested.number);
        writer.bytes(2, nested.text.as_bytes());
        for child in &nested.children {
            writer.message(3, |writer| write(writer, child));
        }
        writer.packed_uints(4, nested.numbers.iter().copied());
        writer.packed_fixed64(5, &nested.times);
    }

    #[test]
    fn messages_of_every_length_equal_those_of_prost() {
        let lengths = [0usize, 1, 120, 127, 128, 129, 16_380, 16_400, 70_000];
        for length in lengths.into_iter().take(if cfg!(miri) { 6 } else { 9 }) {
            let leaf = Nested { text: "x".repeat(length), number: -1, ..Nested::default() };
            let list = Nested { numbers: (0..length as u64).collect(), times: vec![7; length], ..Nested::default() };
            let root = Nested { children: vec![leaf.clone(), Nested::default(), list, leaf], ..Nested::default() };
            let mut writer = MessageWriter::default();
            write(&mut writer, &root);
            assert_eq!(writer.into_bytes(), root.encode_to_vec(), "length {length}");
        }
    }
}
