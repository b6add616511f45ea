//! What a code event carries, most of it without memory of its own: what one thread allocates and another frees makes the
//! first one's next allocations dear, and the first one is the program's. Written on JavaScript threads, read by the drain.

use crate::positions::Position;

const SHORT: usize = 103;
const FEW: usize = 12;

/// A logged name.
#[derive(Debug)]
pub enum Text {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<str>),
}

impl Text {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Short { len, bytes } => {
                bytes.get(..*len as usize).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("")
            }
            Self::Long(text) => text,
        }
    }

    /// Memory held beside its own place.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long(text) => text.len(),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self::Short { len: text.len() as u8, bytes }
            }
            None => Self::Long(text.into()),
        }
    }
}

/// A line table as V8 has it.
#[derive(Debug)]
pub enum Bytes {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Bytes {
    /// `len` bytes that `read` writes; `None` when it cannot.
    pub fn read(len: usize, read: impl FnOnce(&mut [u8]) -> bool) -> Option<Self> {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..len) {
            Some(place) => read(place).then_some(Self::Short { len: len as u8, bytes }),
            None => {
                let mut bytes = vec![0; len];
                read(&mut bytes).then(|| Self::Long(bytes.into()))
            }
        }
    }

    /// Memory held beside its own place.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Short { .. } => 0,
            Self::Long(bytes) => bytes.len(),
        }
    }
}

impl From<Bytes> for Box<[u8]> {
    fn from(bytes: Bytes) -> Self {
        match bytes {
            Bytes::Short { len, bytes } => bytes.get(..len.into()).unwrap_or(&[]).into(),
            Bytes::Long(bytes) => bytes,
        }
    }
}

/// A line table.
#[derive(Debug)]
pub enum Places {
    Few { len: u8, positions: [Position; FEW] },
    Many(Box<[Position]>),
}

impl Places {
    pub fn as_slice(&self) -> &[Position] {
        match self {
            Self::Few { len, positions } => positions.get(..*len as usize).unwrap_or(&[]),
            Self::Many(positions) => positions,
        }
    }

    /// Memory held beside its own place.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Few { .. } => 0,
            Self::Many(positions) => size_of_val(&**positions),
        }
    }
}

impl From<&[Position]> for Places {
    fn from(told: &[Position]) -> Self {
        let mut positions = [(0, 0); FEW];
        match positions.get_mut(..told.len()) {
            Some(place) => {
                place.copy_from_slice(told);
                Self::Few { len: told.len() as u8, positions }
            }
            None => Self::Many(told.into()),
        }
    }
}

impl<const COUNT: usize> From<[Position; COUNT]> for Places {
    fn from(told: [Position; COUNT]) -> Self {
        Self::from(&told[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_back_whatever_its_length() {
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 5000] {
            let text = "x".repeat(length);
            let told = Text::from(&*text);
            assert_eq!((told.as_str(), told.bytes()), (&*text, if length > SHORT { length } else { 0 }));
        }
        assert_eq!(Text::from("näme").as_str(), "näme");
        for length in [0, 1, SHORT, SHORT + 1, 5000] {
            let bytes = Bytes::read(length, |place| {
                place.fill(7);
                true
            });
            let bytes = bytes.unwrap();
            assert_eq!(bytes.bytes(), if length > SHORT { length } else { 0 });
            assert_eq!(*Box::<[u8]>::from(bytes), *vec![7; length]);
            assert!(Bytes::read(length, |_| false).is_none());
        }
        for length in [0, 1, FEW, FEW + 1, 500] {
            let positions: Vec<Position> = (0..length as u32).map(|at| (at, at * 3)).collect();
            let told = Places::from(&positions[..]);
            assert_eq!((told.as_slice(), told.bytes() > 0), (&positions[..], length > FEW));
        }
    }
}
