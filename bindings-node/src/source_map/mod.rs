//! Source maps (revision 3, ECMA-426): from a place in the text that V8 runs to the place a person wrote. Inline and in
//! files, indexed, with sources that have no name. Pure but for reading files; knows nothing of V8. Called off the
//! JavaScript threads, for scripts that were sampled.
//!
//! # Law
//! A place is answered by the segment before it on its own line, or not at all: no guess beyond a line's first segment, and
//! none past a segment that says "not from a source".

mod decode;
mod locate;
mod path;

use std::fmt;
use std::sync::Arc;

pub use decode::decode;
pub use locate::read;
pub use path::path_of;

/// What a map may cost at most; a map beyond is refused as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub text_bytes: usize,
    pub segments: usize,
    pub sources: usize,
    pub sections: usize,
    pub nesting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { text_bytes: 64 << 20, segments: 2 << 20, sources: 1 << 16, sections: 1 << 14, nesting: 4 }
    }
}

/// Why there is no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapError {
    /// Not on this machine: the scheme, or what stands for a base.
    NotHere(String),
    Unreadable(String),
    TooLarge(&'static str),
    Malformed(String),
}

impl fmt::Display for MapError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHere(what) => write!(out, "the source map lies where no file is: {what}"),
            Self::Unreadable(why) => write!(out, "the source map cannot be read: {why}"),
            Self::TooLarge(what) => write!(out, "the source map has too many {what}"),
            Self::Malformed(what) => write!(out, "the source map is malformed: {what}"),
        }
    }
}

/// No source behind this segment.
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

/// A place in a source. Line and column from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub source: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl SourceMap {
    /// Where the text at `line` and `column`, both from 0, comes from.
    pub fn origin(&self, line: u32, column: u32) -> Option<Origin> {
        let key = |segment: &Segment| (segment.line, segment.column);
        let after = self.segments.partition_point(|segment| key(segment) <= (line, column));
        let mut at = after.checked_sub(1)?;
        // The first of several that begin at one place.
        while at > 0 && key(&self.segments[at - 1]) == key(&self.segments[at]) {
            at -= 1;
        }
        let segment = self.segments[at];
        if segment.line != line || segment.source == NO_SOURCE {
            return None;
        }
        let source = self.sources.get(segment.source as usize)?.clone()?;
        Some(Origin { source, line: segment.source_line, column: segment.source_column })
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        let names = self.sources.iter().flatten().map(|source| source.len() + 16).sum::<usize>();
        size_of::<Self>() + size_of_val(&*self.segments) + size_of_val(&*self.sources) + names
    }
}
