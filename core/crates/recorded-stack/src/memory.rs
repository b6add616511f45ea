//! The words of a recording, for walkers.

use std::collections::HashMap;

use spanprof_signal::Memory;

use crate::RecordedWord;

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
