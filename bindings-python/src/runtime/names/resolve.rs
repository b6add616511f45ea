//! Resolves raw frames to names and lines, on the drain thread and without the GIL. The source is the tombstone of an ended
//! code object, else live memory. After a live read it checks that the object has not ended (`code_lifetime` has the proof).
//! Called by the engine through the `Runtime` trait. Not here: caching of resolved frames, which the engine does.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{fence, Ordering};
use std::time::{Duration, Instant};

use spanprof_aggregate::runtime::Frame;
use spanprof_signal::RawFrame;

use super::code_info::CodeObjectInfo;
use super::code_lifetime::{self, Tombstone};
use crate::runtime::interpreter::layout::InterpreterLayout;
use crate::runtime::walk::frame_word::FrameWord;
use crate::runtime::walk::sampled_code::{is_at_or_after, SAMPLED_CODE};

/// A tombstone is kept this long after the drain took it from the queue. All samples of the code object are in the ring by
/// then, and the drain runs several times a second. For a later sample the bucket is marked as lost, and the frame has no name.
const TOMBSTONE_TTL: Duration = Duration::from_secs(3);
/// Memory limit of the kept tombstones; beyond it the oldest are dropped first.
const MAX_KEPT_BYTES: usize = 4 << 20;
/// Limit of cached live code objects.
const MAX_LIVE: usize = 65_536;
/// Attempts of a live read that races with ending code objects.
const MAX_READS: usize = 16;

/// Resolves raw frames. One per process, used by one thread at a time.
#[derive(Default)]
pub struct FrameResolver {
    live: HashMap<u64, LiveCode>,
    ended: HashMap<u64, Vec<EndedCodeObject>>,
    /// Tombstones in the order of their expiry.
    expiry: VecDeque<Expiry>,
    kept_bytes: usize,
    unresolved: u64,
}

struct Expiry {
    due: Instant,
    code: u64,
    bytes: usize,
}

struct LiveCode {
    info: CodeObjectInfo,
    generation: u32,
}

struct EndedCodeObject {
    generation: u32,
    info: Option<CodeObjectInfo>,
}

impl FrameResolver {
    /// The resolved frame; `None` when its code object can no longer be identified.
    pub fn frame(&mut self, layout: &InterpreterLayout, raw: RawFrame) -> Option<Frame> {
        self.code_info(layout, raw).map(|info| info.frame(FrameWord(raw.at)))
    }

    /// The copy of the code object that `frame` sampled; `None` when it can no longer be identified.
    fn code_info(&mut self, layout: &InterpreterLayout, frame: RawFrame) -> Option<&CodeObjectInfo> {
        let generation = FrameWord(frame.at).generation();
        for _ in 0..MAX_READS {
            self.collect();
            if self.tombstone_index(frame.code, generation).is_some() {
                break;
            }
            match self.read_live(layout, frame.code, generation) {
                LiveReadOutcome::Done => break,
                LiveReadOutcome::Gone => {
                    self.unresolved += 1;
                    return None;
                }
                LiveReadOutcome::Raced => {}
            }
        }
        let info = match self.tombstone_index(frame.code, generation) {
            Some(index) => self.ended.get(&frame.code).and_then(|ended| ended.get(index)?.info.as_ref()),
            None => self.live.get(&frame.code).map(|live| &live.info),
        };
        if info.is_none() {
            self.unresolved += 1;
        }
        info
    }

    /// The tombstone of the lifetime that a frame of `generation` sampled: the earliest one that ended at or after it.
    fn tombstone_index(&self, code: u64, generation: u32) -> Option<usize> {
        // Ends of one address are queued in their order.
        self.ended.get(&code)?.iter().position(|tombstone| is_at_or_after(tombstone.generation, generation))
    }

    /// Ensures that `live` holds the live code object at this address, which was sampled at `generation`.
    fn read_live(&mut self, layout: &InterpreterLayout, code: u64, generation: u32) -> LiveReadOutcome {
        let now = SAMPLED_CODE.generation(code);
        if SAMPLED_CODE.is_lost(code, generation) {
            return LiveReadOutcome::Gone;
        }
        // A cached code object has not ended: its tombstone would have been collected, unless it was lost.
        if self.live.get(&code).is_some_and(|live| !SAMPLED_CODE.is_lost(code, live.generation)) {
            return LiveReadOutcome::Done;
        }
        let info = CodeObjectInfo::read(layout, code as usize);
        // Acquire: orders the reads above before the load of the generation below. Pairs with the fence in `SampledCode::end`.
        fence(Ordering::Acquire);
        if SAMPLED_CODE.generation(code) != now {
            return LiveReadOutcome::Raced;
        }
        let Some(info) = info else { return LiveReadOutcome::Gone };
        if self.live.len() >= MAX_LIVE {
            self.live.clear();
        }
        self.live.insert(code, LiveCode { info, generation: now });
        LiveReadOutcome::Done
    }

    /// Takes the tombstones out of the queue.
    fn collect(&mut self) {
        while let Some(tombstone) = code_lifetime::next() {
            let bytes = tombstone.bytes();
            let Tombstone { code, generation, info } = tombstone;
            self.live.remove(&code);
            self.ended.entry(code).or_default().push(EndedCodeObject { generation, info });
            self.expiry.push_back(Expiry { due: Instant::now() + TOMBSTONE_TTL, code, bytes });
            self.kept_bytes += bytes;
        }
    }

    /// Called once per pass of the drain: collects new tombstones, drops expired ones and returns their code addresses.
    pub fn pass(&mut self, now: Instant) -> Vec<u64> {
        self.collect();
        let mut expired = Vec::new();
        while let Some(&Expiry { due, code, bytes }) = self.expiry.front() {
            if due > now && self.kept_bytes <= MAX_KEPT_BYTES {
                break;
            }
            self.expiry.pop_front();
            self.kept_bytes -= bytes;
            if let Entry::Occupied(mut ended) = self.ended.entry(code) {
                let oldest = ended.get_mut().remove(0);
                // Before the tombstone is dropped: a late frame must not get the names of the next lifetime.
                SAMPLED_CODE.lose(code, oldest.generation);
                if ended.get().is_empty() {
                    ended.remove();
                }
            }
            expired.push(code);
        }
        expired
    }

    /// Number of frames whose code object could not be identified.
    pub fn unresolved(&self) -> u64 {
        self.unresolved
    }

    /// Number of tombstones kept now.
    pub fn tombstones(&self) -> usize {
        self.expiry.len()
    }
}

enum LiveReadOutcome {
    /// `live` holds the code object.
    Done,
    /// The code object cannot be identified, or is not readable.
    Gone,
    /// A code object of the bucket ended during the read: check its tombstone and retry.
    Raced,
}
