//! A lazily decoded line table: a start and each worker thread list thousands of functions, of which few are sampled. Pure; owned
//! by the drain thread.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::{Position, TableEncoding};

/// Upper bound of decoded bytes per encoded byte: an encoded entry takes two bytes or more.
const DECODED_BYTES_PER_BYTE: usize = size_of::<Position>() / 2;

/// A line table, decoded at its first use.
#[derive(Debug, Default)]
pub struct LineTable {
    encoded: Option<EncodedTable>,
    decoded: OnceLock<Box<[Position]>>,
}

#[derive(Debug, PartialEq)]
struct EncodedTable {
    encoding: TableEncoding,
    bytes: Box<[u8]>,
    /// Length of the code.
    len: u32,
}

impl LineTable {
    /// A table in V8's encoding, for code of `len` bytes. A malformed one has no positions.
    pub fn encoded(encoding: TableEncoding, bytes: Box<[u8]>, len: usize) -> Arc<Self> {
        let encoded = EncodedTable { encoding, bytes, len: len.try_into().unwrap_or(u32::MAX) };
        Arc::new(Self { encoded: Some(encoded), decoded: OnceLock::new() })
    }

    pub fn decoded(positions: impl Into<Box<[Position]>>) -> Arc<Self> {
        Arc::new(Self { encoded: None, decoded: OnceLock::from(positions.into()) })
    }

    pub fn positions(&self) -> &[Position] {
        self.decoded.get_or_init(|| {
            let encoded = self.encoded.as_ref();
            encoded
                .and_then(|encoded| encoded.encoding.positions(&encoded.bytes, encoded.len as usize))
                .unwrap_or_default()
        })
    }

    /// Whether the table is known to have no positions, without decoding it.
    pub fn is_empty(&self) -> bool {
        match &self.encoded {
            Some(encoded) => encoded.bytes.is_empty(),
            None => self.positions().is_empty(),
        }
    }

    /// Memory in bytes after decoding, also reported before.
    pub fn bytes(&self) -> usize {
        match &self.encoded {
            Some(encoded) => encoded.bytes.len() * (1 + DECODED_BYTES_PER_BYTE),
            None => size_of_val(self.positions()),
        }
    }
}

impl PartialEq for LineTable {
    fn eq(&self, other: &Self) -> bool {
        let same = self.encoded.is_some() && self.encoded == other.encoded;
        same || self.positions() == other.positions()
    }
}

impl Eq for LineTable {}

/// Equal tables in different forms have different hashes: they are not shared.
impl Hash for LineTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.encoded.as_ref().map(|encoded| &encoded.bytes).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::super::TABLE_ENCODINGS;
    use super::*;

    #[test]
    fn a_table_is_decoded_on_first_use_and_reports_the_same_size_before_and_after() {
        // Bytes that at least one encoding decodes to positions.
        let (encoding, bytes) = TABLE_ENCODINGS
            .into_iter()
            .flat_map(|encoding| (0..=u8::MAX).map(move |step| (encoding, vec![step, 4])))
            .find(|(encoding, bytes)| encoding.positions(bytes, 100).is_some_and(|positions| !positions.is_empty()))
            .unwrap();
        let table = LineTable::encoded(encoding, bytes.clone().into(), 100);
        let before = table.bytes();
        assert!(!table.is_empty() && table.decoded.get().is_none());
        assert_eq!(Some(table.positions()), encoding.positions(&bytes, 100).as_deref());
        assert!(table.bytes() == before && before >= size_of_val(table.positions()));
        assert!(*table == *LineTable::encoded(encoding, bytes.into(), 100));
        assert!(*table == *LineTable::decoded(table.positions()));
        assert!(*table != LineTable::default() && LineTable::default().is_empty());
    }

    #[test]
    fn a_malformed_table_has_no_positions() {
        let table = LineTable::encoded(TABLE_ENCODINGS[0], [0x80].into(), 100);
        assert!(table.positions().is_empty() && !table.is_empty());
    }
}
