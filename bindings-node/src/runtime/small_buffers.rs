//! Contents of code events in buffers with inline storage. Memory that one thread allocates and another frees slows down the
//! first thread's next allocations, and that thread is the program's. Written on JavaScript threads, read by the drain.

use crate::positions::Position;

const INLINE_BYTES: usize = 103;
const INLINE_POSITIONS: usize = 12;

/// A logged name.
#[derive(Debug)]
pub enum SmallText {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<str>),
}

impl SmallText {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Inline { len, bytes } => {
                bytes.get(..*len as usize).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("")
            }
            Self::Heap(text) => text,
        }
    }

    /// Heap memory in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(text) => text.len(),
        }
    }
}

impl From<&str> for SmallText {
    fn from(text: &str) -> Self {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..text.len()) {
            Some(buffer) => {
                buffer.copy_from_slice(text.as_bytes());
                Self::Inline { len: text.len() as u8, bytes }
            }
            None => Self::Heap(text.into()),
        }
    }
}

/// An encoded line table.
#[derive(Debug)]
pub enum SmallBytes {
    Inline { len: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl SmallBytes {
    /// `len` bytes written by `read`; `None` when it fails.
    pub fn read(len: usize, read: impl FnOnce(&mut [u8]) -> bool) -> Option<Self> {
        let mut bytes = [0; INLINE_BYTES];
        match bytes.get_mut(..len) {
            Some(buffer) => read(buffer).then_some(Self::Inline { len: len as u8, bytes }),
            None => {
                let mut bytes = vec![0; len];
                read(&mut bytes).then(|| Self::Heap(bytes.into()))
            }
        }
    }

    /// Heap memory in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }
}

impl From<SmallBytes> for Box<[u8]> {
    fn from(bytes: SmallBytes) -> Self {
        match bytes {
            SmallBytes::Inline { len, bytes } => bytes.get(..len.into()).unwrap_or(&[]).into(),
            SmallBytes::Heap(bytes) => bytes,
        }
    }
}

/// A decoded line table.
#[derive(Debug)]
pub enum SmallPositions {
    Inline { len: u8, positions: [Position; INLINE_POSITIONS] },
    Heap(Box<[Position]>),
}

impl SmallPositions {
    pub fn as_slice(&self) -> &[Position] {
        match self {
            Self::Inline { len, positions } => positions.get(..*len as usize).unwrap_or(&[]),
            Self::Heap(positions) => positions,
        }
    }

    /// Heap memory in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Heap(positions) => size_of_val(&**positions),
        }
    }
}

impl From<&[Position]> for SmallPositions {
    fn from(source: &[Position]) -> Self {
        let mut positions = [(0, 0); INLINE_POSITIONS];
        match positions.get_mut(..source.len()) {
            Some(buffer) => {
                buffer.copy_from_slice(source);
                Self::Inline { len: source.len() as u8, positions }
            }
            None => Self::Heap(source.into()),
        }
    }
}

impl<const COUNT: usize> From<[Position; COUNT]> for SmallPositions {
    fn from(source: [Position; COUNT]) -> Self {
        Self::from(&source[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_of_any_length_are_read_back() {
        for length in [0, 1, INLINE_BYTES - 1, INLINE_BYTES, INLINE_BYTES + 1, 5000] {
            let text = "x".repeat(length);
            let source = SmallText::from(&*text);
            assert_eq!((source.as_str(), source.bytes()), (&*text, if length > INLINE_BYTES { length } else { 0 }));
        }
        assert_eq!(SmallText::from("näme").as_str(), "näme");
        for length in [0, 1, INLINE_BYTES, INLINE_BYTES + 1, 5000] {
            let bytes = SmallBytes::read(length, |buffer| {
                buffer.fill(7);
                true
            });
            let bytes = bytes.unwrap();
            assert_eq!(bytes.bytes(), if length > INLINE_BYTES { length } else { 0 });
            assert_eq!(*Box::<[u8]>::from(bytes), *vec![7; length]);
            assert!(SmallBytes::read(length, |_| false).is_none());
        }
        for length in [0, 1, INLINE_POSITIONS, INLINE_POSITIONS + 1, 500] {
            let positions: Vec<Position> = (0..length as u32).map(|at| (at, at * 3)).collect();
            let source = SmallPositions::from(&positions[..]);
            assert_eq!((source.as_slice(), source.bytes() > 0), (&positions[..], length > INLINE_POSITIONS));
        }
    }
}
