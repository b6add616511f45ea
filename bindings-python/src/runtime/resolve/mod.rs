//! Names and lines for raw frames, on the drain thread and without the GIL: from the copy that the end of a code object
//! left behind, else from live memory, read under a check that the object did not end meanwhile (`code_lifetime` has the
//! proof). Called by the engine through the `Runtime` trait. Not here: caching of resolved frames, which the engine does.

mod code_info;
mod line_table;
mod text;

pub use code_info::CodeInfo;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{fence, Ordering};
use std::time::{Duration, Instant};

use spanprof::runtime::Frame;
use spanprof_signal::RawFrame;

use super::code_lifetime::{self, Tombstone};
use super::frame_word::FrameWord;
use super::layout::Layout;
use super::sampled_code_signal::{is_at_or_after, SAMPLED_CODE};

/// A tombstone is kept this long after the drain took it from the queue: all samples of the code are in the ring by then,
/// and the drain comes by several times a second. One that comes too late finds its bucket marked and no name.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(3);
/// Tombstones kept at one time take at most this much memory; beyond it the oldest go first.
const MAX_KEPT_BYTES: usize = 4 << 20;
/// Names of live code kept at one time.
const MAX_LIVE: usize = 65_536;
/// A live read that lost this many races in a row is given up.
const MAX_READS: usize = 16;

#[cfg(feature = "testing")]
pub use text::read as read_text;

/// Resolves raw frames. One per process, used by one thread at a time.
#[derive(Default)]
pub struct Resolver {
    live: HashMap<u64, Live>,
    ended: HashMap<u64, Vec<Buried>>,
    /// Order in which tombstones go.
    expiry: VecDeque<Expiry>,
    kept_bytes: usize,
    unresolved: u64,
}

struct Expiry {
    due: Instant,
    code: u64,
    bytes: usize,
}

struct Live {
    info: CodeInfo,
    generation: u32,
}

struct Buried {
    generation: u32,
    info: Option<CodeInfo>,
}

impl Resolver {
    /// The frame as a person sees it; `None` when its code can no longer be named.
    pub fn frame(&mut self, layout: &Layout, raw: RawFrame) -> Option<Frame> {
        self.code_info(layout, raw).map(|info| info.frame(FrameWord(raw.at)))
    }

    /// The copy of the code that `frame` saw; `None` when it can no longer be known.
    fn code_info(&mut self, layout: &Layout, frame: RawFrame) -> Option<&CodeInfo> {
        let generation = FrameWord(frame.at).generation();
        for _ in 0..MAX_READS {
            self.collect();
            if self.buried_index(frame.code, generation).is_some() {
                break;
            }
            match self.read_live(layout, frame.code, generation) {
                Reading::Done => break,
                Reading::Gone => {
                    self.unresolved += 1;
                    return None;
                }
                Reading::Raced => {}
            }
        }
        let found = match self.buried_index(frame.code, generation) {
            Some(index) => self.ended.get(&frame.code).and_then(|graves| graves.get(index)?.info.as_ref()),
            None => self.live.get(&frame.code).map(|live| &live.info),
        };
        if found.is_none() {
            self.unresolved += 1;
        }
        found
    }

    /// The grave of the life that a frame of `generation` saw: the earliest that ended at or after it.
    fn buried_index(&self, code: u64, generation: u32) -> Option<usize> {
        // Ends of one address are queued in their order.
        self.ended.get(&code)?.iter().position(|grave| is_at_or_after(grave.generation, generation))
    }

    /// Makes sure that `live` holds the code that now lives at this address, seen at `generation`.
    fn read_live(&mut self, layout: &Layout, code: u64, generation: u32) -> Reading {
        let now = SAMPLED_CODE.generation(code);
        if SAMPLED_CODE.is_lost(code, generation) {
            return Reading::Gone;
        }
        // The end of the code behind it would have been collected, unless it was lost.
        if self.live.get(&code).is_some_and(|live| !SAMPLED_CODE.is_lost(code, live.generation)) {
            return Reading::Done;
        }
        let info = CodeInfo::read(layout, code as usize);
        // Acquire: what was read above was read before the generation below. Partner: the fence in `SampledCode::end`.
        fence(Ordering::Acquire);
        if SAMPLED_CODE.generation(code) != now {
            return Reading::Raced;
        }
        let Some(info) = info else { return Reading::Gone };
        if self.live.len() >= MAX_LIVE {
            self.live.clear();
        }
        self.live.insert(code, Live { info, generation: now });
        Reading::Done
    }

    /// Takes the tombstones out of the queue.
    fn collect(&mut self) {
        while let Some(tombstone) = code_lifetime::next() {
            let bytes = tombstone.bytes();
            let Tombstone { code, generation, info } = tombstone;
            self.live.remove(&code);
            self.ended.entry(code).or_default().push(Buried { generation, info });
            self.expiry.push_back(Expiry { due: Instant::now() + TOMBSTONE_LIFE, code, bytes });
            self.kept_bytes += bytes;
        }
    }

    /// Called once per pass of the drain: takes new tombstones, lets old ones go, and names the codes that went.
    pub fn pass(&mut self, now: Instant) -> Vec<u64> {
        self.collect();
        let mut forgotten = Vec::new();
        while let Some(&Expiry { due, code, bytes }) = self.expiry.front() {
            if due > now && self.kept_bytes <= MAX_KEPT_BYTES {
                break;
            }
            self.expiry.pop_front();
            self.kept_bytes -= bytes;
            if let Entry::Occupied(mut graves) = self.ended.entry(code) {
                let oldest = graves.get_mut().remove(0);
                // Before the grave goes: a frame that still comes for it must not read the next life's names.
                SAMPLED_CODE.lose(code, oldest.generation);
                if graves.get().is_empty() {
                    graves.remove();
                }
            }
            forgotten.push(code);
        }
        forgotten
    }

    /// Frames that could no longer be named.
    pub fn unresolved(&self) -> u64 {
        self.unresolved
    }

    /// Tombstones kept now.
    pub fn tombstones(&self) -> usize {
        self.expiry.len()
    }
}

enum Reading {
    /// `live` holds the code.
    Done,
    /// It cannot be known any more, or is not readable.
    Gone,
    /// A code of the bucket ended during the read: look for its tombstone and start over.
    Raced,
}
