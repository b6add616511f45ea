//! The fixture file of one recorded stack: JSON with numbers in hexadecimal, one line per word and frame.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spanprof_signal::RawFrame;

use crate::memory::{hex, RecordedMemory, RecordedWord};

/// A stack of a real program as a walker of this project read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedStack {
    /// Version of the runtime as it reports itself, such as `21.0.4+7-LTS`, `v22.9.0`, `3.12.4`.
    pub version: String,
    /// The shape that the program produces, such as `interpreted` or `generator`.
    pub shape: String,
    /// Registers of the interrupted thread, and addresses that the walk begins with.
    #[serde(with = "hex_map")]
    pub registers: BTreeMap<String, u64>,
    /// Offsets and addresses that the binding read from the runtime at start.
    #[serde(with = "hex_map")]
    pub tables: BTreeMap<String, u64>,
    /// The words that the walk read, in the order of the first read.
    pub words: Vec<RecordedWord>,
    /// The frames that the walk found, leaf first.
    pub frames: Vec<RecordedFrame>,
}

/// A raw frame and the function that it resolved to. Serialized as `code at name`, the numbers hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordedFrame {
    /// The frame as the walker wrote it.
    pub raw: RawFrame,
    /// The name of its function; a reason in brackets for a frame without one.
    pub name: String,
}

impl RecordedStack {
    /// All fixtures below `directory`, in the order of their paths.
    ///
    /// # Errors
    /// A directory without a fixture, an unreadable file, or one that is not a recorded stack; the path is named.
    pub fn read_all(directory: &Path) -> io::Result<Vec<(PathBuf, Self)>> {
        let mut stacks = Vec::new();
        let mut directories = vec![directory.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(&directory).map_err(|error| named(&directory, &error))? {
                let path = entry?.path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "json") {
                    stacks.push((path.clone(), Self::read(&path)?));
                }
            }
        }
        if stacks.is_empty() {
            return Err(io::Error::other(format!("{}: no recorded stack", directory.display())));
        }
        stacks.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(stacks)
    }

    /// Reads one fixture.
    ///
    /// # Errors
    /// An unreadable file, or one that is not a recorded stack; the path is named.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| named(path, &error))?;
        serde_json::from_str(&text).map_err(|error| named(path, &error))
    }

    /// Writes the fixture `<directory>/<version>/<shape>.json` and returns its path.
    ///
    /// # Errors
    /// The file cannot be written; the path is named.
    pub fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        let directory = directory.join(&self.version);
        let path = directory.join(format!("{}.json", self.shape));
        let text = self.to_json()?;
        std::fs::create_dir_all(&directory).map_err(|error| named(&directory, &error))?;
        std::fs::write(&path, text).map_err(|error| named(&path, &error))?;
        Ok(path)
    }

    /// The content of the fixture file.
    ///
    /// # Errors
    /// None in practice: every recorded stack can be represented.
    pub fn to_json(&self) -> io::Result<String> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }

    /// The recorded words as memory.
    pub fn memory(&self) -> RecordedMemory {
        RecordedMemory::new(&self.words)
    }

    /// The memory without the word that was read first at position `cut`, and without those read first after it.
    pub fn memory_cut_at(&self, cut: usize) -> RecordedMemory {
        RecordedMemory::new(self.words.iter().take(cut))
    }

    /// The frames as the walker wrote them.
    pub fn raw_frames(&self) -> Vec<RawFrame> {
        self.frames.iter().map(|frame| frame.raw).collect()
    }
}

fn named(path: &Path, error: &dyn fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}

impl From<RecordedFrame> for String {
    fn from(frame: RecordedFrame) -> Self {
        format!("{:x} {:x} {}", frame.raw.code, frame.raw.at, frame.name)
    }
}

impl TryFrom<String> for RecordedFrame {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for RecordedFrame {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.splitn(3, ' ').collect::<Vec<_>>()[..] {
            [code, at, name] => Ok(Self { raw: RawFrame { code: hex(code)?, at: hex(at)? }, name: name.to_owned() }),
            _ => Err(format!("{text:?} is not `code at name`")),
        }
    }
}

/// Maps of names to numbers, which are written as hexadecimal strings.
mod hex_map {
    use std::collections::BTreeMap;

    use serde::{de::Error, Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(map: &BTreeMap<String, u64>, serializer: S) -> Result<S::Ok, S::Error> {
        let texts: BTreeMap<&String, String> = map.iter().map(|(name, value)| (name, format!("{value:x}"))).collect();
        texts.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, u64>, D::Error> {
        let texts = BTreeMap::<String, String>::deserialize(deserializer)?;
        texts.into_iter().map(|(name, text)| Ok((name, super::hex(&text).map_err(D::Error::custom)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanprof_signal::Memory;

    fn stack() -> RecordedStack {
        let frame = |code, name: &str| RecordedFrame { raw: RawFrame { code, at: u64::MAX }, name: name.to_owned() };
        RecordedStack {
            version: "3.12.4".to_owned(),
            shape: "generator".to_owned(),
            registers: [("sp".to_owned(), u64::MAX)].into(),
            tables: [("code".to_owned(), 16)].into(),
            words: vec![RecordedWord { address: 0x7f00, value: 1 }, RecordedWord { address: 0x7f08, value: 0 }],
            frames: vec![frame(0x5000, "operator() (int, int)"), frame(0x6000, "")],
        }
    }

    #[test]
    fn a_written_fixture_is_read_unchanged() {
        let directory = std::env::temp_dir().join(format!("spanprof-recorded-stack-{}", std::process::id()));
        let path = stack().write(&directory).unwrap();
        assert!(path.ends_with("3.12.4/generator.json"));
        let all = RecordedStack::read_all(&directory).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(all, [(path, stack())]);
    }

    #[test]
    fn a_missing_directory_and_a_wrong_file_are_named_in_the_error() {
        let missing = Path::new("no/such/directory");
        assert!(RecordedStack::read_all(missing).unwrap_err().to_string().starts_with("no/such/directory: "));
        assert!(RecordedStack::read(Path::new("Cargo.toml")).unwrap_err().to_string().starts_with("Cargo.toml: "));
    }

    #[test]
    fn words_and_frames_that_are_malformed_are_refused() {
        for text in ["", "12", "12 xy", "xy 12"] {
            assert!(RecordedWord::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in ["", "12", "12 13", "12 xy name"] {
            assert!(text.parse::<RecordedFrame>().is_err(), "{text}");
        }
    }

    #[test]
    fn memory_cut_at_a_word_lacks_it_and_all_later_ones() {
        let stack = stack();
        let readable = |memory: RecordedMemory| [memory.word(0x7f00).is_some(), memory.word(0x7f08).is_some()];
        assert_eq!(readable(stack.memory()), [true, true]);
        assert_eq!(readable(stack.memory_cut_at(1)), [true, false]);
        assert_eq!(readable(stack.memory_cut_at(0)), [false, false]);
    }
}
