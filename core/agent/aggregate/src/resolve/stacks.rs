//! Resolves raw stacks to stacks of locations. A known raw stack costs one hash of its words. A stack that differs from
//! a known one in its leaf only, as most new stacks do, costs the resolution of that leaf. Owned by the drain; indices
//! are valid until `clear`.

use crate::hash::{hash_frames, hash_numbers, mixed, WordMap};
use crate::resolve::locations::{truncated_frame, LocationIndex, LocationTable};
use crate::resolve::native_runs::hide_frames;
use crate::runtime::{Frame, Runtime};
use spanprof_signal::{DropReason, RawFrame, Ring};

/// Index into the table of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StackIndex(pub u32);

/// Cached raw stacks per allowed stack; several raw stacks map to one where instructions share a line.
const RAW_PER_STACK: usize = 4;

/// A raw stack and its ring position.
#[derive(Clone, Copy)]
pub(crate) struct RawStackAt<'a> {
    /// Leaf first.
    pub frames: &'a [RawFrame],
    /// Whether frames at the root are missing.
    pub truncated: bool,
    /// Position in the ring.
    pub position: u64,
}

/// Losses while stacks were resolved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackLosses {
    /// Frames whose code had ended before it was resolved.
    pub unnamed_frames: u64,
    /// Samples whose stack exceeded the table.
    pub too_many_stacks: u64,
}

/// The resolved stacks of the open window, by raw stack and by content.
#[derive(Default)]
pub(crate) struct StackTable {
    /// Hash of the raw words → number of raw frames and stack. 64 bits over at most a million stacks: a collision within a
    /// window is less likely than a memory error.
    by_raw: WordMap<u64, (u32, StackIndex)>,
    /// Hash of the callers of the leaf → number of raw frames and a stack with the same callers.
    by_callers: WordMap<u64, (u32, StackIndex)>,
    /// Hash of the locations → stack.
    by_locations: WordMap<u64, StackIndex>,
    stacks: Vec<Box<[LocationIndex]>>,
    scratch: Vec<LocationIndex>,
}

impl StackTable {
    /// The stack of a raw stack. `max_stacks` caps the table.
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
        let if_same_length = |(len, stack): &(u32, StackIndex)| (*len == frames.len() as u32).then_some(*stack);
        if let Some(stack) = self.by_raw.get(&hash).and_then(if_same_length) {
            return stack;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let uncached_before = locations.uncached;
        let mut resolve = |raw: &RawFrame| locations.location(*raw, position, runtime, &mut losses.unnamed_frames);
        // A native leaf may be hidden, and which of its native callers are shown depends on it.
        let has_callers = frames.len() > 1 && frames.first().is_some_and(|leaf| leaf.native_pc().is_none());
        let same_callers = self.by_callers.get(&callers).and_then(if_same_length).filter(|_| has_callers);
        let complete = match (frames.first(), same_callers) {
            (Some(leaf), Some(other)) => {
                let location = resolve(leaf);
                scratch.extend(location);
                // Includes the frame `[truncated]` of a truncated stack.
                scratch.extend_from_slice(self.locations(other).get(1..).unwrap_or(&[]));
                location.is_some()
            }
            _ => {
                let complete = frames.iter().all(|raw| {
                    let location = resolve(raw);
                    scratch.extend(location);
                    location.is_some()
                });
                hide_frames(&mut scratch, locations);
                if truncated {
                    scratch.push(locations.intern(&[truncated_frame()]));
                }
                complete
            }
        };
        if scratch.is_empty() && complete {
            scratch.push(locations.reason(DropReason::NoThreadState));
        }
        let existing = self.find(&scratch).filter(|_| complete);
        let has_capacity = complete && self.stacks.len() < max_stacks as usize;
        let stack = match existing {
            Some(stack) => stack,
            None if has_capacity => self.intern(&scratch),
            None => {
                losses.too_many_stacks += 1;
                self.scratch = scratch;
                return self.reason(DropReason::TooManyStacks, locations);
            }
        };
        // A frame that is resolved again next time has no cached raw stack.
        if locations.uncached == uncached_before {
            let capacity = RAW_PER_STACK * max_stacks as usize;
            cache(&mut self.by_raw, capacity, hash, (frames.len() as u32, stack));
            if same_callers.is_none() && has_callers {
                cache(&mut self.by_callers, capacity, callers, (frames.len() as u32, stack));
            }
        }
        self.scratch = scratch;
        stack
    }

    /// The stack of these locations, leaf first; `[too_many_stacks]` beyond the limit.
    pub fn of_locations(
        &mut self,
        stack: &[LocationIndex],
        max_stacks: u32,
        locations: &mut LocationTable,
    ) -> StackIndex {
        match self.find(stack) {
            Some(existing) => existing,
            None if self.stacks.len() < max_stacks as usize => self.intern(stack),
            None => self.reason(DropReason::TooManyStacks, locations),
        }
    }

    /// The stack without the functions at its leaf for which `is_hidden` is true, inlined ones included, and with the frame that
    /// `leaf_of` makes of them. Unchanged if it has no others.
    pub fn without_leaf(
        &mut self,
        stack: StackIndex,
        max_stacks: u32,
        locations: &mut LocationTable,
        is_hidden: impl Fn(&Frame) -> bool,
        leaf_of: impl FnOnce(&[Frame]) -> Option<Frame>,
    ) -> StackIndex {
        let mut hidden = Vec::new();
        for (index, location) in self.locations(stack).iter().enumerate() {
            let frames = locations.shared_frames(*location);
            let (of_leaf, others) = frames.split_at(frames.iter().take_while(|frame| is_hidden(frame)).count());
            hidden.extend_from_slice(of_leaf);
            if others.is_empty() {
                continue;
            }
            if hidden.is_empty() {
                break;
            }
            let leaf = leaf_of(&hidden).map(|leaf| locations.intern(&[leaf]));
            let caller = locations.intern(others);
            let callers = self.locations(stack).iter().skip(index + 1).copied();
            let kept: Vec<_> = leaf.into_iter().chain([caller]).chain(callers).collect();
            return self.of_locations(&kept, max_stacks, locations);
        }
        stack
    }

    /// The stack whose only frame is a drop reason. Not limited by `max_stacks`.
    pub fn reason(&mut self, reason: DropReason, locations: &mut LocationTable) -> StackIndex {
        let location = [locations.reason(reason)];
        self.find(&location).unwrap_or_else(|| self.intern(&location))
    }

    fn find(&self, locations: &[LocationIndex]) -> Option<StackIndex> {
        let stack = *self.by_locations.get(&hash_of(locations))?;
        // Of two stacks with the same hash only the later one is found.
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

    /// Notes the files that were loaded and unloaded, and forgets what it invalidates.
    pub fn refresh_native(&mut self, ring: &Ring, locations: &mut LocationTable) {
        if locations.refresh_native(ring) {
            self.forget_raw();
        }
    }

    /// As [`Self::refresh_native`], if raw frames were resolved, which may take long: files may have been unloaded meanwhile.
    pub fn refresh_after_resolution(&mut self, ring: &Ring, locations: &mut LocationTable) {
        if std::mem::take(&mut locations.has_resolved) {
            self.refresh_native(ring, locations);
        }
    }

    /// Clears the caches of raw stacks, whose words may be other code after some code ended. Indices stay valid.
    pub fn forget_raw(&mut self) {
        self.by_raw.clear();
        self.by_callers.clear();
    }

    /// Clears everything; all indices become invalid.
    pub fn clear(&mut self) {
        self.forget_raw();
        self.by_locations.clear();
        self.stacks.clear();
    }
}

fn hash_of(locations: &[LocationIndex]) -> u64 {
    hash_numbers(locations, |location| u64::from(location.0))
}

/// Inserts an entry into a table that is cleared when it is full.
fn cache(table: &mut WordMap<u64, (u32, StackIndex)>, capacity: usize, hash: u64, entry: (u32, StackIndex)) {
    if table.len() >= capacity {
        table.clear();
    }
    table.insert(hash, entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::NativeRole;
    use crate::scripted_engine_testing::{LIBRARY, PROGRAM};
    use crate::testing::FakeRuntime;

    const MAX_STACKS: u32 = 1000;

    fn at<'a>(frames: &'a [RawFrame], truncated: bool) -> RawStackAt<'a> {
        RawStackAt { frames, truncated, position: 0 }
    }

    /// Names of a stack's frames, leaf first.
    fn names(stacks: &StackTable, locations: &LocationTable, stack: StackIndex) -> Vec<String> {
        let name = |location: &LocationIndex| locations.frames(*location)[0].function.to_string();
        stacks.locations(stack).iter().map(name).collect()
    }
    use crate::scripted_engine_testing::ScriptedSymbols;

    fn locations() -> LocationTable {
        LocationTable::new(Box::new(ScriptedSymbols))
    }

    #[test]
    fn only_the_leaf_is_resolved_above_known_callers() {
        let runtime = FakeRuntime::new();
        let codes = ["leaf", "middle", "root"].map(|name| runtime.define(name, "a.fake", 1));
        let [leaf, middle, root] = codes.map(|code| RawFrame { code, at: 1 });
        let (mut stacks, mut locations, mut losses) = (StackTable::default(), locations(), StackLosses::default());
        let mut stack = |frames: &[RawFrame], truncated| {
            let raw = at(frames, truncated);
            let found = StackTable::stack(&mut stacks, raw, MAX_STACKS, &mut locations, &*runtime, &mut losses);
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

    /// The exported function of the library passes calls on.
    struct RuntimeWithGlue(std::sync::Arc<FakeRuntime>);

    impl Runtime for RuntimeWithGlue {
        fn resource_attributes(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn capture(&self) -> spanprof_signal::CaptureFn {
            crate::runtime::capture_nothing
        }

        fn resolve(&self, raw: RawFrame, position: u64, out: &mut Vec<Frame>) {
            self.0.resolve(raw, position, out);
        }

        fn native_role(&self, frame: &Frame) -> NativeRole {
            if &*frame.function == "getenv" {
                NativeRole::CallGlue
            } else {
                NativeRole::Shown
            }
        }
    }

    #[test]
    fn a_hidden_leaf_takes_no_caller_from_stacks_with_another_leaf() {
        let fake = FakeRuntime::new();
        let [leaf, root] = ["leaf", "root"].map(|name| RawFrame { code: fake.define(name, "a.fake", 1), at: 1 });
        let [glue, library] = [LIBRARY, PROGRAM].map(RawFrame::native);
        let runtime = RuntimeWithGlue(fake);
        let (mut stacks, mut locations, mut losses) = (StackTable::default(), locations(), StackLosses::default());
        for _ in 0..2 {
            for (frames, expected) in [
                ([glue, library, root], &["main", "root"][..]),
                ([leaf, library, root], &["leaf", "main", "root"]),
                ([library, library, root], &["main", "main", "root"]),
                ([glue, leaf, root], &["leaf", "root"]),
                ([leaf, leaf, root], &["leaf", "leaf", "root"]),
            ] {
                let stack = stacks.stack(at(&frames, false), MAX_STACKS, &mut locations, &runtime, &mut losses);
                assert_eq!(names(&stacks, &locations, stack), expected);
            }
            stacks.by_raw.clear();
        }
    }

    #[test]
    fn hidden_functions_are_left_out_at_the_leaf_only() {
        let frame = |name: &str| Frame { function: name.into(), ..Frame::default() };
        let (mut stacks, mut locations) = (StackTable::default(), locations());
        let vec = locations.intern(&[frame("reserve")]);
        let inlined = locations.intern(&[frame("push"), frame("fill")]);
        let root = locations.intern(&[frame("main")]);
        let is_hidden = |frame: &Frame| ["reserve", "push"].contains(&&*frame.function);
        let mut visible = |stack: &[LocationIndex]| {
            let stack = stacks.of_locations(stack, MAX_STACKS, &mut locations);
            let visible = [false, true].map(|has_leaf| {
                let leaf_of = |hidden: &[Frame]| {
                    has_leaf.then(|| frame(&hidden.iter().map(|frame| &*frame.function).collect::<String>()))
                };
                stacks.without_leaf(stack, MAX_STACKS, &mut locations, is_hidden, leaf_of)
            });
            visible.map(|stack| names(&stacks, &locations, stack).join(" < "))
        };
        assert_eq!(visible(&[vec, inlined, root]), ["fill < main", "reservepush < fill < main"]);
        assert_eq!(visible(&[root, vec]), ["main < reserve"; 2]);
        assert_eq!(visible(&[vec, vec]), ["reserve < reserve"; 2]);
    }

    #[test]
    fn callers_whose_code_ended_are_resolved_again_below_any_leaf() {
        let runtime = FakeRuntime::new();
        let [leaf, root] = ["leaf", "root"].map(|name| runtime.define(name, "a.fake", 1));
        let (mut stacks, mut locations, mut losses) = (StackTable::default(), locations(), StackLosses::default());
        let mut stack = |stacks: &mut StackTable, locations: &mut LocationTable, leaf_at| {
            let frames = [RawFrame { code: leaf, at: leaf_at }, RawFrame { code: root, at: 1 }];
            let found = stacks.stack(at(&frames, false), MAX_STACKS, locations, &*runtime, &mut losses);
            names(stacks, locations, found)
        };
        assert_eq!(stack(&mut stacks, &mut locations, 1), ["leaf", "root"]);
        runtime.redefine(root, "another", "a.fake", 1);
        assert!(locations.code_ended(root));
        stacks.forget_raw();
        assert_eq!(stack(&mut stacks, &mut locations, 2), ["leaf", "another"]);
    }

    #[test]
    fn a_stack_beyond_the_cap_is_a_loss_even_with_known_callers() {
        let runtime = FakeRuntime::new();
        let code = runtime.define("only", "a.fake", 1);
        let frames = |leaf_at| [RawFrame { code, at: leaf_at }, RawFrame { code, at: 1 }];
        let (mut stacks, mut locations) = (StackTable::default(), locations());
        let mut losses = StackLosses::default();
        for leaf_at in 1..4 {
            // The fake runtime gives each `at` a line of its own.
            stacks.stack(at(&frames(leaf_at), false), 2, &mut locations, &*runtime, &mut losses);
        }
        assert_eq!(losses.too_many_stacks, 1);
    }
}
