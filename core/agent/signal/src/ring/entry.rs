//! Layout of one raw sample in the ring: a header word, five fixed words, the context, the frames. `ring` defines the
//! order of the accesses.
//!
//! ```text
//! word 0  header: kind 8 | flags 8 | context tag 8 | frames 16 | length in words 24   (never zero)
//! word 1  thread id          word 2  time_ns
//! word 3  values[0]          word 4  values[1]          word 5  key
//! then    context: none 0 words | id 1 word | inline 5 words
//! then    frames: 2 words each, leaf first
//! ```

use crate::context::{Context, InlineContext};
use crate::ring::sample::{RawFrame, RawSample, SampleFlags, SampleKind};

/// Maximum number of frames in an entry; deeper stacks are cut on the root side and flagged.
#[cfg(not(any(loom, miri)))]
pub const MAX_FRAMES: usize = 2048;
/// Model checkers have small stacks and need short runs.
#[cfg(any(loom, miri))]
pub const MAX_FRAMES: usize = 12;

/// Words before the context.
pub(crate) const FIXED_WORDS: usize = 6;
/// Words of the largest context.
pub(crate) const INLINE_CONTEXT_WORDS: usize = 5;

const TAG_NONE: u8 = 0;
const TAG_ID: u8 = 1;
const TAG_INLINE: u8 = 2;

/// The decoded header word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: SampleKind,
    pub flags: SampleFlags,
    context_tag: u8,
    frames: u16,
}

impl Header {
    /// The header of `sample`, its frames cut to [`MAX_FRAMES`].
    pub(crate) fn of(sample: &RawSample<'_>) -> Self {
        let frames = sample.frames.len().min(MAX_FRAMES);
        let mut flags = sample.flags;
        if frames < sample.frames.len() {
            flags.0 |= SampleFlags::TRUNCATED;
        }
        let context_tag = match sample.context {
            Context::None => TAG_NONE,
            Context::Id(_) => TAG_ID,
            Context::Inline(_) => TAG_INLINE,
        };
        Self { kind: sample.kind, flags, context_tag, frames: frames as u16 }
    }

    /// Length of the whole entry.
    pub(crate) const fn words(self) -> usize {
        FIXED_WORDS + self.context_words() + 2 * self.frames as usize
    }

    /// Number of frames.
    pub(crate) const fn frames(self) -> usize {
        self.frames as usize
    }

    /// Words of the context.
    pub(crate) const fn context_words(self) -> usize {
        match self.context_tag {
            TAG_ID => 1,
            TAG_INLINE => INLINE_CONTEXT_WORDS,
            _ => 0,
        }
    }

    /// The word that the ring stores. Never zero, since no kind is zero.
    pub(crate) const fn to_word(self) -> u64 {
        self.kind as u64
            | (self.flags.0 as u64) << 8
            | (self.context_tag as u64) << 16
            | (self.frames as u64) << 24
            | (self.words() as u64) << 40
    }

    /// Decodes a header; `None` for a word that `to_word` cannot produce.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let kind = SampleKind::from_code(word as u8)?;
        let header = Self {
            kind,
            flags: SampleFlags((word >> 8) as u8),
            context_tag: (word >> 16) as u8,
            frames: (word >> 24) as u16,
        };
        let valid =
            header.context_tag <= TAG_INLINE && header.frames() <= MAX_FRAMES && header.words() as u64 == word >> 40;
        valid.then_some(header)
    }

    /// Decodes the context of this header from its words.
    pub(crate) fn context(self, words: &[u64; INLINE_CONTEXT_WORDS]) -> Context {
        match self.context_tag {
            TAG_ID => Context::Id(words[0]),
            TAG_INLINE => {
                let mut trace_id = [0; 16];
                let (high, low) = trace_id.split_at_mut(8);
                high.copy_from_slice(&words[1].to_ne_bytes());
                low.copy_from_slice(&words[2].to_ne_bytes());
                Context::Inline(InlineContext {
                    label_set: words[0] as u32,
                    capture: (words[0] >> 32) as u32,
                    trace_id,
                    span_id: words[3].to_ne_bytes(),
                    local_root_span_id: words[4].to_ne_bytes(),
                })
            }
            _ => Context::None,
        }
    }
}

/// The words of a context, and their number.
pub(crate) fn context_words(context: &Context) -> ([u64; INLINE_CONTEXT_WORDS], usize) {
    match context {
        Context::None => ([0; INLINE_CONTEXT_WORDS], 0),
        Context::Id(id) => ([*id, 0, 0, 0, 0], 1),
        Context::Inline(inline) => {
            let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = inline.trace_id;
            let words = [
                inline.label_set as u64 | (inline.capture as u64) << 32,
                u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
                u64::from_ne_bytes([i, j, k, l, m, n, o, p]),
                u64::from_ne_bytes(inline.span_id),
                u64::from_ne_bytes(inline.local_root_span_id),
            ];
            (words, INLINE_CONTEXT_WORDS)
        }
    }
}

/// An empty frame that initializes scratch buffers.
pub(crate) const NO_FRAME: RawFrame = RawFrame { code: 0, at: 0 };
