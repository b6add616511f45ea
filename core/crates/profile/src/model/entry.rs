//! The entries of the dictionary's tables: functions, lines, locations, mappings, links. Plain values of ids.

use super::*;

/// Kind of code a frame runs, on the wire `profile.frame.type` (OpenTelemetry semantic conventions 1.42).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameType {
    /// Unknown, or a frame of our own that names a reason.
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
}

impl FrameType {
    /// The attribute key that carries it.
    pub const KEY: &'static str = "profile.frame.type";

    /// The value on the wire; `None` for [`FrameType::Unspecified`], which is not written.
    pub const fn as_str(self) -> Option<&'static str> {
        Some(match self {
            Self::Unspecified => return None,
            Self::Cpython => "cpython",
            Self::V8js => "v8js",
            Self::Jvm => "jvm",
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::Rust => "rust",
        })
    }

    /// The type of a value on the wire; [`FrameType::Unspecified`] for one this crate does not name.
    pub fn from_wire(value: &str) -> Self {
        match value {
            "cpython" => Self::Cpython,
            "v8js" => Self::V8js,
            "jvm" => Self::Jvm,
            "native" => Self::Native,
            "kernel" => Self::Kernel,
            "rust" => Self::Rust,
            _ => Self::Unspecified,
        }
    }
}

/// A named body of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// As people read it.
    pub name: StringId,
    /// As the linker or runtime knows it, where that differs; else the empty string.
    pub system_name: StringId,
    /// Path of the source file.
    pub filename: StringId,
    /// Line it begins in, from 1; 0 when unknown.
    pub start_line: i64,
}

/// A source line within a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Executing line, from 1; 0 when unknown.
    pub line: i64,
    /// Column, from 1; 0 when unknown.
    pub column: i64,
}

/// A place in code; several lines when functions were inlined, innermost first. Borrowed: given to
/// [`Dictionary::location`], returned by [`Dictionary::get_location`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location<'a> {
    /// The mapped file of native code; empty otherwise.
    pub mapping: MappingId,
    /// Address of the instruction; 0 when it has none.
    pub address: u64,
    /// Lines, innermost first; empty when nothing is known but the address.
    pub lines: &'a [Line],
    /// Attributes, [`FrameType`]'s among them.
    pub attributes: AttributeSetId,
}

/// A mapped file range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub memory_start: u64,
    /// Address behind the last.
    pub memory_limit: u64,
    /// Offset in the file of the first byte, in bytes.
    pub file_offset: u64,
    /// Path of the file.
    pub filename: StringId,
    /// Attributes, such as the build id.
    pub attributes: AttributeSetId,
}

/// Trace and span a sample belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// W3C trace id; all zeros for none.
    pub trace_id: [u8; 16],
    /// W3C span id; all zeros for none.
    pub span_id: [u8; 8],
}

impl Link {
    /// Whether it names neither trace nor span.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
