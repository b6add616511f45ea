//! Raw stacks → stacks of locations. A stack seen before costs one hash of its words; one that differs from it in its leaf
//! alone, as most new ones do, the look at that leaf. Owned by the drain; ids mean something until `clear`.

use crate::hash::{hash_frames, hash_numbers, mixed, WordMap};
use crate::locations::{truncated_frame, LocationIndex, LocationTable};
use crate::runtime::Runtime;
use spanprof_signal::{DropReason, RawFrame};

/// Index into the table of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StackIndex(pub u32);

/// Raw stacks remembered per stack allowed; code without line changes gives several raw stacks for one.
const RAW_PER_STACK: usize = 4;

/// A stack as it stood in the ring.
#[derive(Clone, Copy)]
pub(crate) struct RawStackAt<'a> {
    /// Leaf first.
    pub frames: &'a [RawFrame],
    /// Whether the root side is cut.
    pub truncated: bool,
    /// Its position in the ring.
    pub position: u64,
}

/// What happened to frames while stacks were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackLosses {
    /// Frames whose code could not be named any more.
    pub unnamed_frames: u64,
    /// Samples whose stack had no room.
    pub too_many_stacks: u64,
}

/// See the head of the module.
#[derive(Default)]
pub(crate) struct StackTable {
    /// Hash of the raw words → number of raw frames and stack. 64 bits over at most a million stacks: a false match
    /// within a window is less likely than a fault of memory.
    by_raw: WordMap<u64, (u32, StackIndex)>,
    /// The same of the raw frames below the leaf → a stack that has them below its own.
    by_callers: WordMap<u64, (u32, StackIndex)>,
    /// By the hash of its locations.
    by_locations: WordMap<u64, StackIndex>,
    stacks: Vec<Box<[LocationIndex]>>,
    scratch: Vec<LocationIndex>,
}

impl StackTable {
    /// The stack of a raw one. `max_stacks` caps the table.
    pub fn stack(
        &mut self,
        raw_stack: RawStackAt<'_>,
        max_stacks: u32,
        locations: &mut LocationTable,
        runtime: &dyn Runtime,
        losses: &mut StackLosses,
    ) -> StackIndex {
        let RawStackAt { frames, truncated, position } = raw_stack;
        let callers = hash_frames(frames.get(1..).unwrap_or(&[])) ^ u64::from(truncated);
        let hash = frames.first().map_or(callers, |leaf| mixed(mixed(callers, leaf.code), leaf.at));
        let of_this_length = |(len, stack): &(u32, StackIndex)| (*len == frames.len() as u32).then_some(*stack);
        if let Some(stack) = self.by_raw.get(&hash).and_then(of_this_length) {
            return stack;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let unnamed_before = losses.unnamed_frames;
        let mut named = |raw: &RawFrame| locations.location(*raw, position, runtime, &mut losses.unnamed_frames);
        let same_callers = self.by_callers.get(&callers).and_then(of_this_length).filter(|_| frames.len() > 1);
        let complete = match (frames.first(), same_callers) {
            (Some(leaf), Some(other)) => {
                let location = named(leaf);
                scratch.extend(location);
                // With the frame that says where it was cut.
                scratch.extend_from_slice(self.locations(other).get(1..).unwrap_or(&[]));
                location.is_some()
            }
            _ => {
                let complete = frames.iter().all(|raw| {
                    let location = named(raw);
                    scratch.extend(location);
                    location.is_some()
                });
                if truncated {
                    scratch.push(locations.intern(&[truncated_frame()]));
                }
                complete
            }
        };
        if scratch.is_empty() && complete {
            scratch.push(locations.reason(DropReason::NoThreadState));
        }
        let known = self.known(&scratch).filter(|_| complete);
        let room = complete && self.stacks.len() < max_stacks as usize;
        let stack = match known {
            Some(stack) => stack,
            None if room => self.intern(&scratch),
            None => {
                losses.too_many_stacks += 1;
                self.scratch = scratch;
                return self.reason(DropReason::TooManyStacks, locations);
            }
        };
        // A frame without a name is asked again next time, so its stack is not remembered by its words.
        if losses.unnamed_frames == unnamed_before {
            let most = RAW_PER_STACK * max_stacks as usize;
            remember(&mut self.by_raw, most, hash, (frames.len() as u32, stack));
            if same_callers.is_none() {
                remember(&mut self.by_callers, most, callers, (frames.len() as u32, stack));
            }
        }
        self.scratch = scratch;
        stack
    }

    /// The stack that is only the name of a loss. Always has room.
    pub fn reason(&mut self, reason: DropReason, locations: &mut LocationTable) -> StackIndex {
        let location = [locations.reason(reason)];
        self.known(&location).unwrap_or_else(|| self.intern(&location))
    }

    fn known(&self, locations: &[LocationIndex]) -> Option<StackIndex> {
        let stack = *self.by_locations.get(&hash_of(locations))?;
        // Of two stacks with one hash the later one is known.
        (self.locations(stack) == locations).then_some(stack)
    }

    fn intern(&mut self, locations: &[LocationIndex]) -> StackIndex {
        let index = StackIndex(self.stacks.len() as u32);
        self.stacks.push(locations.into());
        self.by_locations.insert(hash_of(locations), index);
        index
    }

    /// Locations, leaf first.
    pub fn locations(&self, stack: StackIndex) -> &[LocationIndex] {
        self.stacks.get(stack.0 as usize).map_or(&[], |stack| stack)
    }

    /// Some code ended: words that were seen may mean something else now. Ids keep their meaning.
    pub fn forget_raw(&mut self) {
        self.by_raw.clear();
        self.by_callers.clear();
    }

    /// Forgets everything; all indices become meaningless.
    pub fn clear(&mut self) {
        self.forget_raw();
        self.by_locations.clear();
        self.stacks.clear();
    }
}

fn hash_of(locations: &[LocationIndex]) -> u64 {
    hash_numbers(locations, |location| u64::from(location.0))
}

/// Puts an entry into a table that forgets everything when it is full.
fn remember(table: &mut WordMap<u64, (u32, StackIndex)>, most: usize, hash: u64, entry: (u32, StackIndex)) {
    if table.len() >= most {
        table.clear();
    }
    table.insert(hash, entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeRuntime;

    const MANY: u32 = 1000;

    fn at<'a>(frames: &'a [RawFrame], truncated: bool) -> RawStackAt<'a> {
        RawStackAt { frames, truncated, position: 0 }
    }

    /// Names of a stack's frames, leaf first.
    fn names(stacks: &StackTable, locations: &LocationTable, stack: StackIndex) -> Vec<String> {
        let of = |location: &LocationIndex| locations.frames(*location)[0].function.to_string();
        stacks.locations(stack).iter().map(of).collect()
    }

    #[test]
    fn a_new_leaf_on_callers_seen_before_is_the_only_frame_that_is_looked_at() {
        let runtime = FakeRuntime::new();
        let codes = ["leaf", "middle", "root"].map(|name| runtime.define(name, "a.fake", 1));
        let [leaf, middle, root] = codes.map(|code| RawFrame { code, at: 1 });
        let (mut stacks, mut locations, mut losses) = Default::default();
        let mut stack = |frames: &[RawFrame], truncated| {
            let found =
                StackTable::stack(&mut stacks, at(frames, truncated), MANY, &mut locations, &*runtime, &mut losses);
            names(&stacks, &locations, found)
        };
        assert_eq!(stack(&[leaf, middle, root], false), ["leaf", "middle", "root"]);
        let resolved = runtime.resolved();
        let other_leaf = RawFrame { at: 2, ..leaf };
        assert_eq!(stack(&[other_leaf, middle, root], false), ["leaf", "middle", "root"]);
        assert_eq!(stack(&[middle, middle, root], false), ["middle", "middle", "root"]);
        assert_eq!(runtime.resolved(), resolved + 1);
        assert_eq!(stack(&[other_leaf, middle, root], true), ["leaf", "middle", "root", "[truncated]"]);
        assert_eq!(stack(&[leaf, middle, root], true), ["leaf", "middle", "root", "[truncated]"]);
        assert_eq!(stack(&[leaf], false), ["leaf"]);
        assert_eq!(stack(&[root], false), ["root"]);
        assert_eq!(stack(&[], false), ["[no_thread_state]"]);
    }

    #[test]
    fn callers_whose_code_ended_are_named_anew_below_any_leaf() {
        let runtime = FakeRuntime::new();
        let [leaf, root] = ["leaf", "root"].map(|name| runtime.define(name, "a.fake", 1));
        let (mut stacks, mut locations, mut losses) = Default::default();
        let mut stack = |stacks: &mut StackTable, locations: &mut LocationTable, leaf_at| {
            let frames = [RawFrame { code: leaf, at: leaf_at }, RawFrame { code: root, at: 1 }];
            let found = stacks.stack(at(&frames, false), MANY, locations, &*runtime, &mut losses);
            names(stacks, locations, found)
        };
        assert_eq!(stack(&mut stacks, &mut locations, 1), ["leaf", "root"]);
        runtime.redefine(root, "another", "a.fake", 1);
        assert!(locations.code_ended(root));
        stacks.forget_raw();
        assert_eq!(stack(&mut stacks, &mut locations, 2), ["leaf", "another"]);
    }

    #[test]
    fn a_stack_without_room_is_a_loss_whatever_its_callers() {
        let runtime = FakeRuntime::new();
        let code = runtime.define("only", "a.fake", 1);
        let frames = |leaf_at| [RawFrame { code, at: leaf_at }, RawFrame { code, at: 1 }];
        let (mut stacks, mut locations) = <(StackTable, LocationTable)>::default();
        let mut losses = StackLosses::default();
        for leaf_at in 1..4 {
            // The fake names places by their line.
            stacks.stack(at(&frames(leaf_at), false), 2, &mut locations, &*runtime, &mut losses);
        }
        assert_eq!(losses.too_many_stacks, 1);
    }
}
