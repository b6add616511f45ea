//! What a sample knows of its request. A `Copy` record, carried through the ring as it stands; the tables behind the ids
//! live in the facade crate, never here. Written by the capture function of a runtime, read by the drain thread.

/// The context of one raw sample: an id into the engine's context table, or the record itself.
///
/// Ids are never reused: an id whose row was evicted reads as `expired`, never as another request's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Context {
    /// No labels, no link.
    #[default]
    None,
    /// Row of the engine's context table (runtimes that carry the integer along with their tasks).
    Id(u64),
    /// The record itself (Java's buffer, Rust, OTEP 4947).
    Inline(InlineContext),
}

/// Label set and span of a request, handed over by value.
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
}
