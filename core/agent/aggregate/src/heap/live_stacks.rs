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
    /// By address of the stack, which is kept as long.
    indices: WordMap<usize, (LiveStack, StackIndex)>,
    /// Of the types of objects.
    type_frames: HashSet<Arc<[Frame]>>,
}

impl LiveStacks {
    /// The stack of an index of the current window.
    pub fn intern(&mut self, index: StackIndex, stacks: &StackTable, locations: &LocationTable) -> LiveStack {
        if let Some(stack) = self.by_index.get(&index) {
            return stack.clone();
        }
        let frames: LiveStack =
            stacks.locations(index).iter().map(|location| locations.shared_frames(*location)).collect();
        let stack = self.shared(frames);
        self.by_index.insert(index, stack.clone());
        self.indices.insert(stack.as_ptr() as usize, (stack.clone(), index));
        stack
    }

    fn shared(&mut self, frames: LiveStack) -> LiveStack {
        if let Some(known) = self.known.get(&frames) {
            return known.clone();
        }
        self.known.insert(frames.clone());
        frames
    }

    /// A frame that names a type; equal ones share their memory.
    pub fn type_frame(&mut self, frame: Frame) -> Arc<[Frame]> {
        let frame = [frame];
        if let Some(interned) = self.type_frames.get(&frame[..]) {
            return interned.clone();
        }
        let frame: Arc<[Frame]> = frame.into();
        self.type_frames.insert(frame.clone());
        frame
    }

    /// `stack` as the caller of the frame of a type.
    pub fn below_type(&mut self, type_frame: Option<&Arc<[Frame]>>, stack: &LiveStack) -> LiveStack {
        match type_frame {
            Some(type_frame) => self.shared(std::iter::once(type_frame).chain(&**stack).cloned().collect()),
            None => stack.clone(),
        }
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
        if let Some((_, known)) = self.indices.get(&address) {
            return *known;
        }
        let frames: Vec<_> = stack.iter().map(|frames| locations.intern(frames)).collect();
        let index = stacks.of_locations(&frames, max_stacks, locations);
        self.indices.insert(address, (stack.clone(), index));
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
        self.type_frames.retain(|frame| Arc::strong_count(frame) > 1);
    }
}
