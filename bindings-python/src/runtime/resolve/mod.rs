//! Names and lines for raw frames, on the drain thread and without the GIL: from the copy that the end of a code object
//! left behind, else from live memory, read under a check that the object did not end meanwhile (`code_lifetime` has the
//! proof). Called by the engine through the `Runtime` trait. Not here: caching of resolved frames, which the engine does.

mod code_info;
mod line_table;
mod text;

pub use code_info::CodeInfo;
pub use line_table::Position;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{fence, Ordering};
use std::time::{Duration, Instant};

use spanprof_signal::RawFrame;

use super::code_lifetime::{self, Tombstone};
use super::frame_word::FrameWord;
use super::layout::Layout;
use super::sampled_code_signal::SAMPLED_CODE;

/// A tombstone is kept this long after the drain took it from the queue: samples of the code are in the ring by then, and
/// the drain comes by several times a second.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(5);
/// Tombstones kept at one time; the oldest goes first, and its bucket remembers the loss.
const MAX_TOMBSTONES: usize = 32_768;
/// Names of live code kept at one time.
const MAX_LIVE: usize = 65_536;
/// A live read that lost this many races in a row is given up.
const MAX_READS: usize = 16;

#[cfg(any(test, feature = "testing"))]
pub use text::read as read_text;

/// Resolves raw frames. One per process, used by one thread at a time.
#[derive(Default)]
pub struct Resolver {
    live: HashMap<u64, Live>,
    ended: HashMap<u64, Vec<Buried>>,
    /// Order in which tombstones go.
    expiry: VecDeque<(Instant, u64)>,
    /// Codes whose tombstones went, for the engine's caches.
    forgotten: Vec<u64>,
    unresolved: u64,
}

struct Live {
    info: CodeInfo,
    generation: u32,
}

struct Buried {
    generation: u32,
    info: Option<CodeInfo>,
}

/// Whether generation `a` is at or after `b`; both wrap.
fn is_at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

impl Resolver {
    /// The copy of the code that `frame` saw, and its word; `None` when it can no longer be known.
    pub fn code_info(&mut self, layout: &Layout, frame: RawFrame) -> Option<&CodeInfo> {
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
        let uncertain = now != generation && SAMPLED_CODE.has_lost(code);
        if uncertain {
            return Reading::Gone;
        }
        if let Some(live) = self.live.get(&code) {
            // Its end would have been collected, unless it was lost.
            if live.generation == now || !SAMPLED_CODE.has_lost(code) {
                return Reading::Done;
            }
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
        while let Some(Tombstone { code, generation, info }) = code_lifetime::next() {
            self.live.remove(&code);
            self.ended.entry(code).or_default().push(Buried { generation, info });
            self.expiry.push_back((Instant::now() + TOMBSTONE_LIFE, code));
        }
    }

    /// Called once per pass of the drain: takes new tombstones, lets old ones go, and names the codes that went.
    pub fn pass(&mut self, now: Instant) -> Vec<u64> {
        self.collect();
        while let Some(&(due, code)) = self.expiry.front() {
            let crowded = self.expiry.len() > MAX_TOMBSTONES;
            if due > now && !crowded {
                break;
            }
            self.expiry.pop_front();
            if let Entry::Occupied(mut graves) = self.ended.entry(code) {
                if !graves.get().is_empty() {
                    graves.get_mut().remove(0);
                }
                if graves.get().is_empty() {
                    graves.remove();
                }
            }
            if due > now {
                SAMPLED_CODE.lose(code);
            }
            self.forgotten.push(code);
        }
        std::mem::take(&mut self.forgotten)
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
