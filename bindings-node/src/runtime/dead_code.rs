//! Code that ended a short while ago: samples taken in it may still wait to be named. Owned by the code map; pure.

use std::collections::{BTreeMap, VecDeque};

use super::code_map::Code;

/// Drains after which no sample of dead code waits in the ring: each is a drain to the ring's head, unless the window was
/// full.
pub const KEPT_GENERATIONS: u64 = 8;

/// See the head of the module.
#[derive(Default)]
pub struct DeadCode {
    /// By where it lay and when it ended.
    codes: BTreeMap<(usize, u64), Code>,
    order: VecDeque<(u64, (usize, u64))>,
    /// Of all that were taken in since there was none.
    longest: usize,
}

impl DeadCode {
    pub fn insert(&mut self, code: Code, died: u64, generation: u64) {
        self.longest = self.longest.max(code.len);
        self.order.push_back((generation, (code.start, died)));
        self.codes.insert((code.start, died), code);
    }

    /// Takes out what lay there and ended then.
    pub fn remove(&mut self, start: usize, died: u64) -> Option<Code> {
        self.codes.remove(&(start, died))
    }

    /// Forgets what ended too many drains ago.
    pub fn expire(&mut self, generation: u64) {
        while let Some((_, key)) = self.order.front().filter(|(died_in, _)| died_in + KEPT_GENERATIONS <= generation) {
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
