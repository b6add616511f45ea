//! The words of a recording, for walkers.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use spanprof_signal::Memory;

/// Eight bytes of memory. Serialized as `address value`, both hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordedWord {
    /// Where the word was read.
    pub address: u64,
    /// The bytes as a little-endian number.
    pub value: u64,
}

/// Memory that holds only recorded words. A read of another address fails, as of an unmapped page.
#[derive(Clone, Debug, Default)]
pub struct RecordedMemory {
    words: HashMap<u64, u64>,
}

impl RecordedMemory {
    /// Memory that holds these words.
    pub fn new<'a>(words: impl IntoIterator<Item = &'a RecordedWord>) -> Self {
        Self { words: words.into_iter().map(|word| (word.address, word.value)).collect() }
    }

    /// Replaces or adds a word.
    pub fn set(&mut self, address: u64, value: u64) {
        self.words.insert(address, value);
    }
}

impl Memory for RecordedMemory {
    fn word(&self, address: usize) -> Option<usize> {
        self.words.get(&(address as u64)).map(|value| *value as usize)
    }
}

impl From<RecordedWord> for String {
    fn from(word: RecordedWord) -> Self {
        format!("{:x} {:x}", word.address, word.value)
    }
}

impl TryFrom<String> for RecordedWord {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (address, value) = text.split_once(' ').ok_or_else(|| format!("{text:?} is not `address value`"))?;
        Ok(Self { address: hex(address)?, value: hex(value)? })
    }
}

/// A number as the fixture writes it.
pub(crate) fn hex(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|error| format!("{text:?} is no hexadecimal number: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_recorded_words_are_readable() {
        let mut memory = RecordedMemory::new(&[RecordedWord { address: 4096, value: 3 }]);
        assert_eq!([memory.word(4096), memory.word(4097), memory.word(4104)], [Some(3), None, None]);
        memory.set(4104, 5);
        assert_eq!(memory.word(4104), Some(5));
    }
}
