//! Raw stacks → stacks of locations. A stack seen before costs one hash of its words. Owned by the drain; ids mean
//! something until `clear`.

use std::sync::Arc;

use crate::hash::{hash_frames, WordMap};
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
    by_locations: WordMap<Arc<[LocationIndex]>, StackIndex>,
    stacks: Vec<Arc<[LocationIndex]>>,
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
        let hash = hash_frames(frames) ^ u64::from(truncated);
        if let Some((len, stack)) = self.by_raw.get(&hash) {
            if *len == frames.len() as u32 {
                return *stack;
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let unnamed_before = losses.unnamed_frames;
        let complete = frames.iter().all(|raw| {
            let location = locations.location(*raw, position, runtime, &mut losses.unnamed_frames);
            scratch.extend(location);
            location.is_some()
        });
        if truncated {
            scratch.push(locations.intern(&[truncated_frame()]));
        }
        if scratch.is_empty() {
            scratch.push(locations.reason(DropReason::NoThreadState));
        }
        let known = self.by_locations.get(scratch.as_slice()).copied();
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
            if self.by_raw.len() >= RAW_PER_STACK * max_stacks as usize {
                self.by_raw.clear();
            }
            self.by_raw.insert(hash, (frames.len() as u32, stack));
        }
        self.scratch = scratch;
        stack
    }

    /// The stack that is only the name of a loss. Always has room.
    pub fn reason(&mut self, reason: DropReason, locations: &mut LocationTable) -> StackIndex {
        let location = [locations.reason(reason)];
        match self.by_locations.get(location.as_slice()) {
            Some(known) => *known,
            None => self.intern(&location),
        }
    }

    fn intern(&mut self, locations: &[LocationIndex]) -> StackIndex {
        let content: Arc<[LocationIndex]> = locations.into();
        let index = StackIndex(self.stacks.len() as u32);
        self.stacks.push(content.clone());
        self.by_locations.insert(content, index);
        index
    }

    /// Locations, leaf first.
    pub fn locations(&self, stack: StackIndex) -> &[LocationIndex] {
        self.stacks.get(stack.0 as usize).map_or(&[], |stack| stack)
    }

    /// Some code ended: words that were seen may mean something else now. Ids keep their meaning.
    pub fn forget_raw(&mut self) {
        self.by_raw.clear();
    }

    /// Forgets everything; all indices become meaningless.
    pub fn clear(&mut self) {
        self.by_raw.clear();
        self.by_locations.clear();
        self.stacks.clear();
    }
}
