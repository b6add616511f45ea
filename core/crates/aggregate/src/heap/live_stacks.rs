//! Stacks of live objects: named frames that outlive the window's tables. Equal stacks share their memory.

use std::collections::HashSet;
use std::sync::Arc;

use crate::hash::WordMap;
use crate::resolve::locations::LocationTable;
use crate::resolve::stacks::{StackIndex, StackTable};
use crate::runtime::Frame;

/// Leaf first; each location with its inlined functions, innermost first.
pub(crate) type LiveStack = Arc<[Arc<[Frame]>]>;

/// The stacks, and those of the current window by index.
#[derive(Default)]
pub(crate) struct LiveStacks {
    known: HashSet<LiveStack>,
    by_index: WordMap<StackIndex, LiveStack>,
    /// By address of the stack.
    indices: WordMap<usize, StackIndex>,
}

impl LiveStacks {
    /// The stack of an index of the current window.
    pub fn intern(&mut self, index: StackIndex, stacks: &StackTable, locations: &LocationTable) -> LiveStack {
        if let Some(known) = self.by_index.get(&index) {
            return known.clone();
        }
        let frames: LiveStack =
            stacks.locations(index).iter().map(|location| locations.shared_frames(*location)).collect();
        let stack = match self.known.get(&frames) {
            Some(known) => known.clone(),
            None => {
                self.known.insert(frames.clone());
                frames
            }
        };
        self.by_index.insert(index, stack.clone());
        self.indices.insert(stack.as_ptr() as usize, index);
        stack
    }

    /// The index of a stack in the current window.
    pub fn index(
        &mut self,
        stack: &LiveStack,
        stacks: &mut StackTable,
        locations: &mut LocationTable,
        max_stacks: u32,
    ) -> StackIndex {
        let address = stack.as_ptr() as usize;
        if let Some(known) = self.indices.get(&address) {
            return *known;
        }
        let frames: Vec<_> = stack.iter().map(|frames| locations.intern(frames)).collect();
        let index = stacks.of_locations(&frames, max_stacks, locations);
        self.indices.insert(address, index);
        index
    }

    /// Forgets the indices of a closed window.
    pub fn forget_window(&mut self) {
        self.by_index.clear();
        self.indices.clear();
    }

    /// Memory of the stacks in bytes. Excludes their frames, which are shared with the window's tables.
    pub fn bytes(&self) -> usize {
        let of_stack = |stack: &LiveStack| size_of::<LiveStack>() + size_of_val::<[_]>(stack) + 32;
        self.known.iter().map(of_stack).sum()
    }

    /// Frees the stacks that no object and no index of this window uses.
    pub fn forget_unused(&mut self) {
        self.known.retain(|stack| Arc::strong_count(stack) > 1);
    }
}
