//! Code that ended recently: samples taken in it may still be unresolved, or not submitted yet. Owned by the code map; pure.
//!
//! Code is removed when the ring's tail has passed the position of its end, never after a time or a number of drains. One
//! uncommitted entry stops the drain, for example of a thread that waits for a processor in its handler, while a ring that fills
//! causes eight drains within 4 ms.

use std::collections::{BTreeMap, VecDeque};

use super::code_object::CodeObject;

/// End position of code that stacks may still contain.
pub const NO_END: u64 = u64::MAX;

/// Retired code objects kept after their samples are resolved: the stacks of a long event loop turn are submitted at its end.
const MIN_KEPT: usize = 2048;
/// Maximum number of retired code objects: a sample that blocks the drain must not exhaust the host's memory.
const MAX_KEPT: usize = 65_536;

/// Code objects that have ended, until their samples are resolved.
#[derive(Default)]
pub struct RetiredCode {
    /// By start address and end position.
    codes: BTreeMap<(usize, u64), Box<CodeObject>>,
    /// Keys of code with a known end, in order of arrival.
    order: VecDeque<(usize, u64)>,
    /// Length of the longest code object inserted since the map was last empty.
    longest: usize,
}

impl RetiredCode {
    pub fn insert(&mut self, code: Box<CodeObject>, ended_at: u64) {
        self.longest = self.longest.max(code.len);
        if ended_at != NO_END {
            self.order.push_back((code.start, ended_at));
        }
        self.codes.insert((code.start, ended_at), code);
    }

    /// Removes the code at `start` that has no end yet.
    pub fn remove_unended(&mut self, start: usize) -> Option<Box<CodeObject>> {
        self.codes.remove(&(start, NO_END))
    }

    /// Drops code that ended before every unresolved sample; these are at or after `resolved_up_to`.
    pub fn expire(&mut self, resolved_up_to: u64) {
        let is_over = |ended_at: u64, count: usize| count > MAX_KEPT || count > MIN_KEPT && ended_at <= resolved_up_to;
        while let Some(key) = self.order.front().filter(|(_, ended_at)| is_over(*ended_at, self.order.len())) {
            self.codes.remove(key);
            self.order.pop_front();
        }
        if self.codes.is_empty() {
            self.longest = 0;
        }
    }

    /// The code at `address` when the ring was at `position`.
    pub fn find(&self, address: usize, position: u64) -> Option<&CodeObject> {
        let before = self.codes.range(..=(address, u64::MAX)).rev();
        let mut near = before.take_while(|((start, _), _)| address - start < self.longest);
        near.find(|((_, ended_at), code)| position < *ended_at && code.contains(address, position))
            .map(|(_, code)| &**code)
    }

    pub fn values(&self) -> impl Iterator<Item = &CodeObject> {
        self.codes.values().map(Box::as_ref)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
