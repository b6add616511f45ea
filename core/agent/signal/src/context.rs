//! The context of a sample: a `Copy` record that the ring stores by value. A runtime's capture function writes it; the
//! drain thread reads it. The tables that resolve its ids are in `spanprof-aggregate`.

/// The context of one raw sample: an id in the engine's context table, or the record itself.
///
/// Ids are never reused: the id of an evicted row reads as `expired`, never as another request's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Context {
    /// No labels, no link.
    #[default]
    None,
    /// Row of the engine's context table, for runtimes that propagate an integer with their tasks.
    Id(u64),
    /// The record itself (Java's buffer, Rust, OTEP 4947).
    Inline(InlineContext),
}

impl Context {
    /// Whether it has neither labels nor a span.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::None => true,
            Self::Id(id) => *id == 0,
            Self::Inline(inline) => *inline == InlineContext::default(),
        }
    }
}

/// Label set and span link of a sample, by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineContext {
    /// Id of an interned label set; 0 is the empty set.
    pub label_set: u32,
    /// W3C trace id, all zero when there is none.
    pub trace_id: [u8; 16],
    /// W3C span id, all zero when there is none.
    pub span_id: [u8; 8],
    /// Span id of the local root span, all zero when unknown.
    pub local_root_span_id: [u8; 8],
    /// Number of the capture of one request, which nested contexts inherit; 0 for none.
    pub capture: u32,
}
