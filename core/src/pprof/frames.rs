//! Stacks of a report.

use std::borrow::Cow;
use std::fmt::{self, Debug, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::time::SystemTime;

/// A function in a frame. Symbols are equal if their names are.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Name, as its author wrote it.
    pub name: Option<Vec<u8>>,
    /// Always `None`.
    pub addr: Option<usize>,
    /// Line in the file, from 1.
    pub lineno: Option<u32>,
    /// Source file.
    pub filename: Option<PathBuf>,
}

impl Symbol {
    /// The name; `Unknown` without one.
    pub fn raw_name(&self) -> &[u8] {
        self.name.as_deref().unwrap_or(b"Unknown")
    }

    /// The name as text.
    pub fn name(&self) -> String {
        self.sys_name().into_owned()
    }

    /// As [`Symbol::name`].
    pub fn sys_name(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.raw_name())
    }

    /// The source file; `Unknown` without one.
    pub fn filename(&self) -> Cow<'_, str> {
        self.filename.as_ref().map_or(Cow::Borrowed("Unknown"), |path| path.to_string_lossy())
    }

    /// The line; 0 without one.
    pub fn lineno(&self) -> u32 {
        self.lineno.unwrap_or(0)
    }
}

impl Display for Symbol {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.sys_name())
    }
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Self) -> bool {
        self.raw_name() == other.raw_name()
    }
}

impl Eq for Symbol {}

impl Hash for Symbol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw_name().hash(state);
    }
}

/// A stack with its thread.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Frames {
    /// Frames from the leaf; each with its functions, inlined ones first.
    pub frames: Vec<Vec<Symbol>>,
    /// Name of the thread; empty when unknown.
    pub thread_name: String,
    /// Thread id of the kernel; 0 for time that no sample attributes to a thread.
    pub thread_id: u64,
    /// Start of the report, so that equal stacks are one entry.
    pub sample_timestamp: SystemTime,
}

impl Frames {
    /// The thread's name, or its id.
    pub fn thread_name_or_id(&self) -> String {
        match self.thread_name.as_str() {
            "" => self.thread_id.to_string(),
            name => name.to_owned(),
        }
    }
}

impl Debug for Frames {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for frame in &self.frames {
            formatter.write_str("FRAME: ")?;
            for symbol in frame {
                write!(formatter, "{symbol} -> ")?;
            }
        }
        match self.thread_name.as_str() {
            "" => write!(formatter, "THREAD: ThreadId({})", self.thread_id),
            name => write!(formatter, "THREAD: {name}"),
        }
    }
}

/// A stack of an [`super::UnresolvedReport`]; `Frames::from` converts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnresolvedFrames(pub(super) Frames);

impl From<UnresolvedFrames> for Frames {
    fn from(UnresolvedFrames(frames): UnresolvedFrames) -> Self {
        frames
    }
}
