//! The line table of a piece of code, decoded when a frame of it is first named: a start and each worker thread list thousands of
//! functions, of which samples meet few. Pure; owned by the drain thread.

use std::sync::{Arc, OnceLock};

use super::{Form, Position};

/// A byte of an encoded table becomes at most so many of a decoded one: an entry takes two bytes or more.
const DECODED_BYTES_PER_BYTE: usize = size_of::<Position>() / 2;

/// See the head of the module.
#[derive(Debug, Default)]
pub struct LineTable {
    encoded: Option<Encoded>,
    decoded: OnceLock<Box<[Position]>>,
}

#[derive(Debug, PartialEq)]
struct Encoded {
    form: Form,
    bytes: Box<[u8]>,
    /// Of the code.
    len: usize,
}

impl LineTable {
    /// A table as V8 has it, of code of `len` bytes. One that cannot be decoded has no positions.
    pub fn encoded(form: Form, bytes: Box<[u8]>, len: usize) -> Arc<Self> {
        Arc::new(Self { encoded: Some(Encoded { form, bytes, len }), decoded: OnceLock::new() })
    }

    pub fn decoded(positions: impl Into<Box<[Position]>>) -> Arc<Self> {
        Arc::new(Self { encoded: None, decoded: OnceLock::from(positions.into()) })
    }

    pub fn positions(&self) -> &[Position] {
        self.decoded.get_or_init(|| {
            let encoded = self.encoded.as_ref();
            encoded.and_then(|encoded| encoded.form.positions(&encoded.bytes, encoded.len)).unwrap_or_default()
        })
    }

    /// Whether it is known to have no positions, without decoding it.
    pub fn is_empty(&self) -> bool {
        match &self.encoded {
            Some(encoded) => encoded.bytes.is_empty(),
            None => self.positions().is_empty(),
        }
    }

    /// Memory held once it is decoded: the same before and after.
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

#[cfg(test)]
mod tests {
    use super::super::FORMS;
    use super::*;

    #[test]
    fn a_table_is_decoded_when_asked_and_weighs_the_same_before_and_after() {
        // Bytes of which at least one form makes positions.
        let (form, bytes) = FORMS
            .into_iter()
            .flat_map(|form| (0..=u8::MAX).map(move |step| (form, vec![step, 4])))
            .find(|(form, bytes)| form.positions(bytes, 100).is_some_and(|positions| !positions.is_empty()))
            .unwrap();
        let table = LineTable::encoded(form, bytes.clone().into(), 100);
        let before = table.bytes();
        assert!(!table.is_empty() && table.decoded.get().is_none());
        assert_eq!(Some(table.positions()), form.positions(&bytes, 100).as_deref());
        assert!(table.bytes() == before && before >= size_of_val(table.positions()));
        assert!(*table == *LineTable::encoded(form, bytes.into(), 100));
        assert!(*table == *LineTable::decoded(table.positions()));
        assert!(*table != LineTable::default() && LineTable::default().is_empty());
    }

    #[test]
    fn a_table_that_cannot_be_decoded_has_no_positions() {
        let table = LineTable::encoded(FORMS[0], [0x80].into(), 100);
        assert!(table.positions().is_empty() && !table.is_empty());
    }
}
