//! Tables shared by all profiles of one request, and their interning. Every table deduplicates; ids are typed.

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        $($(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);)+
    };
}

ids! {
    /// Index into the string table; 0 is "".
    StringId;
    /// Index into the function table; 0 is the empty function.
    FunctionId;
    /// Index into the mapping table; 0 is the empty mapping.
    MappingId;
    /// Index into the location table; 0 is the empty location.
    LocationId;
    /// Index into the stack table; 0 is the empty stack.
    StackId;
    /// Index into the link table; 0 is "no link".
    LinkId;
    /// Index into the attribute table; 0 is the empty attribute.
    AttributeId;
}

/// Kind of code a frame runs, on the wire `profile.frame.type` (OpenTelemetry semantic conventions 1.42).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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

/// A named body of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: StringId,
    pub system_name: StringId,
    pub filename: StringId,
    pub start_line: i64,
}

/// A source line within a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    pub function: FunctionId,
    pub line: i64,
    pub column: i64,
}

/// A place in code; several lines when functions were inlined, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location {
    pub mapping: MappingId,
    pub address: u64,
    pub lines: Vec<Line>,
    pub attributes: Vec<AttributeId>,
}

/// A mapped file range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    pub memory_start: u64,
    pub memory_limit: u64,
    pub file_offset: u64,
    pub filename: StringId,
    pub attributes: Vec<AttributeId>,
}

/// Trace and span a sample belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
}

/// An attribute value. Floats are kept as bits so that the value can be interned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttributeValue {
    String(String),
    Int(i64),
    Bool(bool),
    Double(u64),
}

/// Key, value and UCUM unit ("" when it has none).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attribute {
    pub key: String,
    pub value: AttributeValue,
    pub unit: String,
}
