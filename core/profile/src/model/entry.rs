//! The entries of the dictionary's tables: functions, lines, locations, mappings, links. Plain values of ids.

use std::sync::{Mutex, PoisonError};

use super::*;

/// Kind of code of a frame: the attribute `profile.frame.type` (OpenTelemetry semantic conventions 1.44).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameType {
    /// Unknown, or a synthetic frame that names a drop reason.
    #[default]
    Unspecified,
    /// `cpython`
    Cpython,
    /// `v8js`
    V8js,
    /// `jvm`
    Jvm,
    /// `native`
    Native,
    /// `kernel`
    Kernel,
    /// `rust`
    Rust,
    /// A word of another profiler, such as `go` or `ruby`.
    Other(&'static str),
}

impl FrameType {
    /// Key of the attribute.
    pub const KEY: &'static str = "profile.frame.type";

    /// Key of the attribute that states the origin of a frame, see [`crate::code_origin::OwnCode`].
    pub const ORIGIN_KEY: &'static str = "spanprof.frame.origin";

    /// Value of the attribute; `None` for [`FrameType::Unspecified`], which is not written.
    pub const fn as_str(self) -> Option<&'static str> {
        Some(match self {
            Self::Unspecified => return None,
            Self::Cpython => "cpython",
            Self::V8js => "v8js",
            Self::Jvm => "jvm",
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Rust => "rust",
            Self::Other(word) => word,
        })
    }

    /// The type of an attribute value; [`FrameType::Unspecified`] for a word that is too long, or one too many.
    pub fn from_wire(value: &str) -> Self {
        match value {
            "" => Self::Unspecified,
            "cpython" => Self::Cpython,
            "v8js" => Self::V8js,
            "jvm" => Self::Jvm,
            "native" => Self::Native,
            "kernel" => Self::Kernel,
            "rust" => Self::Rust,
            other => Self::other(other),
        }
    }

    /// Words live for ever, so the input of a receiver is bounded: 64 words of 64 bytes.
    fn other(word: &str) -> Self {
        static WORDS: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        match words.iter().find(|known| **known == word) {
            Some(known) => Self::Other(known),
            None if words.len() >= 64 || word.len() > 64 => Self::Unspecified,
            None => {
                let word: &str = Box::leak(word.into());
                words.push(word);
                Self::Other(word)
            }
        }
    }
}

/// A function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Human-readable name.
    pub name: StringId,
    /// Name in the symbol table or runtime where it differs (mangled); else the empty string.
    pub system_name: StringId,
    /// Path of the source file.
    pub filename: StringId,
    /// First line, from 1; 0 when unknown.
    pub start_line: i64,
}

/// A source line within a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Line number, from 1; 0 when unknown.
    pub line: i64,
    /// Column, from 1; 0 when unknown.
    pub column: i64,
}

/// A code location; several lines when functions were inlined, innermost first. Borrowed: the argument of
/// [`Dictionary::location`] and the result of [`Dictionary::get_location`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location<'a> {
    /// The mapping of native code; empty otherwise.
    pub mapping: MappingId,
    /// Address of the instruction; 0 when it has none.
    pub address: u64,
    /// Lines, innermost first; empty when only the address is known.
    pub lines: &'a [Line],
    /// Attributes, [`FrameType`] included.
    pub attributes: AttributeSetId,
}

/// A mapped file range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub memory_start: u64,
    /// Address after the last.
    pub memory_limit: u64,
    /// Offset in the file of the first byte, in bytes.
    pub file_offset: u64,
    /// Path of the file.
    pub filename: StringId,
    /// Attributes, such as the build id.
    pub attributes: AttributeSetId,
}

/// Span link: the trace and span of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// W3C trace id; all zeros for none.
    pub trace_id: [u8; 16],
    /// W3C span id; all zeros for none.
    pub span_id: [u8; 8],
}

impl Link {
    /// Whether it has neither trace nor span.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
