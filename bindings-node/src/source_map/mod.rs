//! Source maps (revision 3, ECMA-426): resolve a location in the running source to the original one. Inline maps and files, index
//! maps, unnamed sources. Pure except for reading files; independent of V8. Called off the JavaScript threads, for sampled
//! scripts.
//!
//! # Rule
//! A location is resolved by the nearest segment before it on its own line, or not at all: never before a line's first segment,
//! and never past a segment without a source.

mod decode;
mod locate;
mod path;

use std::fmt;
use std::sync::Arc;

pub use decode::decode;
pub use locate::read;
pub use path::path_of;

/// Limits of a map; a larger one is refused completely.
#[derive(Clone, Copy, Debug)]
pub struct SourceMapLimits {
    pub text_bytes: usize,
    pub segments: usize,
    pub sources: usize,
    pub sections: usize,
    pub nesting: usize,
}

impl Default for SourceMapLimits {
    fn default() -> Self {
        Self { text_bytes: 64 << 20, segments: 2 << 20, sources: 1 << 16, sections: 1 << 14, nesting: 4 }
    }
}

/// The reason why a map is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// Not on this machine: an unsupported scheme, or a base that is not a path.
    NotLocal(String),
    Unreadable(String),
    TooLarge(&'static str),
    Malformed(String),
}

impl fmt::Display for MapError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLocal(path) => write!(out, "the source map is not in a local file: {path}"),
            Self::Unreadable(reason) => write!(out, "the source map cannot be read: {reason}"),
            Self::TooLarge(items) => write!(out, "the source map has too many {items}"),
            Self::Malformed(defect) => write!(out, "the source map is malformed: {defect}"),
        }
    }
}

/// Source index of a segment without a source.
const NO_SOURCE: u32 = u32::MAX;

/// Lines and columns from 0, columns in UTF-16 units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    line: u32,
    column: u32,
    source: u32,
    source_line: u32,
    source_column: u32,
}

/// A decoded map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceMap {
    /// Sorted by line and column.
    segments: Vec<Segment>,
    /// Absolute paths, or URLs; `None` for a source without a name.
    sources: Vec<Option<Arc<str>>>,
}

/// An original location. Line and column from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub source: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl SourceMap {
    /// The origin of the location at `line` and `column`, both from 0.
    pub fn origin(&self, line: u32, column: u32) -> Option<Origin> {
        let key = |segment: &Segment| (segment.line, segment.column);
        let after = self.segments.partition_point(|segment| key(segment) <= (line, column));
        let mut index = after.checked_sub(1)?;
        // The first of several segments at the same location.
        while index > 0 && key(&self.segments[index - 1]) == key(&self.segments[index]) {
            index -= 1;
        }
        let segment = self.segments[index];
        if segment.line != line || segment.source == NO_SOURCE {
            return None;
        }
        let source = self.sources.get(segment.source as usize)?.clone()?;
        Some(Origin { source, line: segment.source_line, column: segment.source_column })
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let names = self.sources.iter().flatten().map(|source| source.len() + 16).sum::<usize>();
        size_of::<Self>() + size_of_val(&*self.segments) + size_of_val(&*self.sources) + names
    }
}
