//! Code that ended a short while ago: samples taken in it may still wait to be named, or to be handed over. Owned by the code
//! map; pure.

use std::collections::{BTreeMap, VecDeque};

use super::code_map::Code;

/// When code dies that may still be seen.
pub const NOT_YET: u64 = u64::MAX;

/// Pieces kept though their samples are named: stacks of a long turn of an event loop are handed over at its end.
const KEPT_PIECES: usize = 2048;
/// Pieces kept at most, though samples may wait for long: a drain that one of them holds up must not cost the host its memory.
const MAX_PIECES: usize = 65_536;

/// See the head of the module.
#[derive(Default)]
pub struct DeadCode {
    /// By where it lay and when it ended.
    codes: BTreeMap<(usize, u64), Code>,
    /// Those of known end, as they came.
    order: VecDeque<(usize, u64)>,
    /// Of all that were taken in since there was none.
    longest: usize,
}

impl DeadCode {
    pub fn insert(&mut self, code: Code, died: u64) {
        self.longest = self.longest.max(code.len);
        if died != NOT_YET {
            self.order.push_back((code.start, died));
        }
        self.codes.insert((code.start, died), code);
    }

    /// Takes out what lay there and has no end yet.
    pub fn remove_unended(&mut self, start: usize) -> Option<Code> {
        self.codes.remove(&(start, NOT_YET))
    }

    /// Forgets what ended before all samples that still wait: those at `named_up_to` and behind it.
    pub fn expire(&mut self, named_up_to: u64) {
        let is_over = |died: u64, pieces: usize| pieces > MAX_PIECES || pieces > KEPT_PIECES && died <= named_up_to;
        while let Some(key) = self.order.front().filter(|(_, died)| is_over(*died, self.order.len())) {
            self.codes.remove(key);
            self.order.pop_front();
        }
        if self.codes.is_empty() {
            self.longest = 0;
        }
    }

    /// The code that lay at `address` when the ring stood at `position`.
    pub fn find(&self, address: usize, position: u64) -> Option<&Code> {
        let before = self.codes.range(..=(address, u64::MAX)).rev();
        let mut near = before.take_while(|((start, _), _)| address - start < self.longest);
        near.find(|((_, died), code)| position < *died && code.holds(address, position)).map(|(_, code)| code)
    }

    pub fn values(&self) -> impl Iterator<Item = &Code> {
        self.codes.values()
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
