//! Resolves raw frames to locations. A location is cached until its code ends: that of a library until files are loaded or
//! unloaded. Owned by the drain; not shared. Indices are valid until `end_window`.

use std::collections::HashMap;
use std::sync::Arc;

use super::native_symbols::{frame_of_function, NativeCode, NativeFunction, NativeSymbols, OWN_CODE};
use crate::context::{labels_of, LabelSetId};
use crate::hash::WordMap;
use crate::runtime::{Frame, FrameType, NativeMapping, NativePlace, NativeRole, Runtime};
use spanprof_profile::demangle;
use spanprof_signal::{DropReason, RawFrame, Ring};

/// Capacity for locations. A window that needs more shows `[too_many_stacks]`; the table is cleared after it.
const MAX_LOCATIONS: usize = 131_072;
/// Capacity for raw frames: the instruction addresses of one native function share a location.
const MAX_RAW_FRAMES: usize = 2 * MAX_LOCATIONS;
/// Capacity for demangled names.
const MAX_DEMANGLED: usize = 16_384;

/// Index into the table of locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocationIndex(pub u32);

/// Locations by raw frame and by content.
pub(crate) struct LocationTable {
    by_raw: WordMap<RawFrame, LocationIndex>,
    /// The cached `RawFrame::at` values of each code; they end together.
    cached_of_code: WordMap<u64, Vec<u64>>,
    /// The cached raw frames of native code that may be unloaded.
    cached_of_libraries: Vec<RawFrame>,
    /// Raw frames that were resolved and not cached: their words may be other code in another sample.
    pub uncached: u64,
    /// Set when a raw frame was resolved.
    pub has_resolved: bool,
    by_content: HashMap<Arc<[Frame]>, LocationIndex>,
    contents: Vec<Arc<[Frame]>>,
    /// Of the first contents; those after them are no native code.
    native_roles: Vec<NativeRole>,
    native_symbols: Box<dyn NativeSymbols>,
    /// Symbol → demangled name. Demangling takes microseconds, and a function has many addresses.
    demangled: HashMap<String, Arc<str>>,
    scratch: Vec<Frame>,
}

impl LocationTable {
    pub fn new(native_symbols: Box<dyn NativeSymbols>) -> Self {
        Self {
            by_raw: WordMap::default(),
            cached_of_code: WordMap::default(),
            cached_of_libraries: Vec::new(),
            uncached: 0,
            has_resolved: false,
            by_content: HashMap::new(),
            contents: Vec::new(),
            native_roles: Vec::new(),
            native_symbols,
            demangled: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// The location of a raw frame; `None` when the table is full. `unnamed` counts frames whose code ended.
    pub fn location(
        &mut self,
        raw: RawFrame,
        position: u64,
        runtime: &dyn Runtime,
        unnamed: &mut u64,
    ) -> Option<LocationIndex> {
        if let Some(location) = self.by_raw.get(&raw) {
            return Some(*location);
        }
        if self.contents.len() >= MAX_LOCATIONS || self.by_raw.len() >= MAX_RAW_FRAMES {
            return None;
        }
        self.has_resolved = true;
        let mut frames = std::mem::take(&mut self.scratch);
        frames.clear();
        let native_pc = runtime.native_pc(raw);
        let code = native_pc.map(|pc| self.native_symbols.code(pc, position));
        let mut is_cached = code != Some(NativeCode::Unloaded);
        if let Some(reason) = raw.as_reason() {
            frames.push(reason_frame(reason));
        } else if let Some(activity) = raw.as_synthetic() {
            frames.push(Frame { function: activity.name().into(), ..Frame::default() });
        } else if let Some(label_set) = raw.as_named() {
            let name = labels_of(LabelSetId(label_set)).into_iter().next().map(|(_, value)| value).unwrap_or_default();
            frames.push(Frame { function: name.into(), ..Frame::default() });
        } else if code != Some(NativeCode::Doubtful) {
            let mut start = None;
            match raw.native_pc() {
                Some(pc) => {
                    let function = self.native_symbols.function(pc, position);
                    start = function.as_ref().and_then(|function| function.start);
                    frames.push(runtime.native_frame(self.native_frame(function)));
                }
                None => runtime.resolve(raw, position, &mut frames),
            }
            if let Some(pc) = native_pc {
                add_place(&mut frames, || self.native_symbols.place(pc, position, start));
            }
        }
        if frames.is_empty() {
            *unnamed += 1;
            frames.push(reason_frame(DropReason::CodeEnded));
            // Not cached: the same words may soon be other code.
            is_cached = false;
        }
        let location = self.intern(&frames);
        if let (Some(_), Some(frame)) = (raw.native_pc(), frames.first()) {
            self.set_native_role(location, runtime.native_role(frame));
        }
        self.uncached += u64::from(!is_cached);
        if is_cached {
            self.by_raw.insert(raw, location);
            if code.is_none() {
                self.cached_of_code.entry(raw.code).or_default().push(raw.at);
            }
            // A runtime also returns native code where it has none of the language. The program's own code stays: a lookup in a
            // large program is expensive.
            let is_native = |frame: &Frame| frame.frame_type == FrameType::Native;
            if code.map_or_else(|| frames.iter().any(is_native), |code| code != NativeCode::Program) {
                self.cached_of_libraries.push(raw);
            }
        }
        self.scratch = frames;
        Some(location)
    }

    fn native_frame(&mut self, function: Option<NativeFunction>) -> Frame {
        let unknown = || Frame { function: "[native]".into(), frame_type: FrameType::Native, ..Frame::default() };
        let Some(function) = function else { return unknown() };
        let symbol = function.symbol.as_ref().map(|symbol| self.demangled(symbol));
        frame_of_function(&function, symbol)
    }

    fn demangled(&mut self, symbol: &str) -> Arc<str> {
        if let Some(name) = self.demangled.get(symbol) {
            return name.clone();
        }
        let Some(name) = demangle(symbol).map(Arc::<str>::from) else { return symbol.into() };
        if self.demangled.len() >= MAX_DEMANGLED {
            self.demangled.clear();
        }
        self.demangled.insert(symbol.to_owned(), name.clone());
        name
    }

    /// The location of frames that have no raw frame.
    pub fn intern(&mut self, frames: &[Frame]) -> LocationIndex {
        if let Some(location) = self.by_content.get(frames) {
            return *location;
        }
        let content: Arc<[Frame]> = frames.into();
        let index = LocationIndex(self.contents.len() as u32);
        self.contents.push(content.clone());
        self.by_content.insert(content, index);
        index
    }

    /// The location of a drop reason.
    pub fn reason(&mut self, reason: DropReason) -> LocationIndex {
        self.intern(&[reason_frame(reason)])
    }

    /// Removes the raw frames of `code` from the cache. True when there were any.
    pub fn code_ended(&mut self, code: u64) -> bool {
        let Some(cached) = self.cached_of_code.remove(&code) else { return false };
        for at in cached {
            self.by_raw.remove(&RawFrame { code, at });
        }
        true
    }

    /// Innermost first.
    pub fn frames(&self, location: LocationIndex) -> &[Frame] {
        self.contents.get(location.0 as usize).map_or(&[], |frames| frames)
    }

    /// The part of native code that a location has in stacks.
    pub fn native_role(&self, location: LocationIndex) -> NativeRole {
        self.native_roles.get(location.0 as usize).copied().unwrap_or_default()
    }

    /// See [`Self::native_role`].
    pub fn set_native_role(&mut self, location: LocationIndex, role: NativeRole) {
        let position = location.0 as usize;
        if self.native_roles.len() <= position {
            self.native_roles.resize(position + 1, NativeRole::NotNative);
        }
        self.native_roles[position] = role;
    }

    /// Whether it is native code that has the name of its file only, as that of this profiler.
    pub fn is_unnamed(&self, location: LocationIndex) -> bool {
        let is_of_file = |frame: &Frame| frame.function.starts_with('[') || &*frame.function == OWN_CODE;
        self.native_role(location) != NativeRole::NotNative && self.frames(location).first().is_some_and(is_of_file)
    }

    /// Whether two locations have the same name.
    pub fn has_same_name(&self, one: LocationIndex, other: LocationIndex) -> bool {
        self.frames(one).first().map(|frame| &frame.function) == self.frames(other).first().map(|frame| &frame.function)
    }

    /// As [`Self::frames`], to be kept after the table is cleared.
    pub fn shared_frames(&self, location: LocationIndex) -> Arc<[Frame]> {
        self.contents.get(location.0 as usize).cloned().unwrap_or_else(|| Arc::from([]))
    }

    /// Whether another window of the same size may exceed the table.
    fn is_half_full(&self) -> bool {
        self.contents.len() > MAX_LOCATIONS / 2 || self.by_raw.len() > MAX_RAW_FRAMES / 2
    }

    /// Notes the files that were loaded and unloaded, and forgets native code that may be another one now. True if it did.
    pub fn refresh_native(&mut self, ring: &Ring) -> bool {
        let has_changed = self.native_symbols.refresh(ring);
        if has_changed {
            self.forget_native();
        }
        has_changed
    }

    /// A window ends: clears a table that the next one may fill. Otherwise forgets native code of libraries, if they may be unloaded
    /// without notice. Indices become invalid.
    pub fn end_window(&mut self) {
        if self.is_half_full() {
            self.forget_all();
        } else if !self.native_symbols.notices_unloads() {
            self.forget_native();
        }
    }

    fn forget_native(&mut self) {
        for raw in std::mem::take(&mut self.cached_of_libraries) {
            self.by_raw.remove(&raw);
            self.code_ended(raw.code);
        }
    }

    /// Clears everything except the symbol tables, which have a bound of their own and are slow to read; all indices become invalid.
    fn forget_all(&mut self) {
        self.by_raw.clear();
        self.cached_of_code.clear();
        self.cached_of_libraries.clear();
        self.by_content.clear();
        self.contents.clear();
        self.native_roles.clear();
        self.demangled.clear();
    }
}

/// Adds the place of native code to its function's frame, which inlined frames precede.
fn add_place(frames: &mut [Frame], place: impl FnOnce() -> Option<(Arc<NativeMapping>, u64)>) {
    let Some(function) = frames.last_mut() else { return };
    let is_unnamed = function.frame_type == FrameType::Native && function.function.starts_with('[');
    function.native = place().map(|(mapping, address)| NativePlace { mapping, address, is_unnamed });
}

/// The frame that shows a drop reason.
fn reason_frame(reason: DropReason) -> Frame {
    Frame { function: format!("[{}]", reason.name()).into(), ..Frame::default() }
}

/// The frame at the root of a stack that was deeper than `max_stack_depth`.
pub(crate) fn truncated_frame() -> Frame {
    Frame { function: "[truncated]".into(), ..Frame::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted_engine_testing::{ScriptedSymbols, DOUBTFUL, LIBRARY, PROGRAM, UNLOADED};
    use crate::testing::FakeRuntime;

    fn table() -> LocationTable {
        LocationTable::new(Box::new(ScriptedSymbols))
    }

    #[test]
    fn a_symbol_is_demangled_once() {
        let mut table = table();
        let symbol = "_ZN2v88internal10HeapObject11SizeFromMapENS0_3MapE";
        let [first, second] = [0; 2].map(|_| table.demangled(symbol));
        assert!(Arc::ptr_eq(&first, &second) && &*first == "v8::internal::HeapObject::SizeFromMap");
        assert_eq!(&*table.demangled("epoll_wait"), "epoll_wait");
        assert_eq!(table.demangled.len(), 1);
    }

    #[test]
    fn names_of_libraries_are_forgotten_when_files_change_and_are_never_cached_after_an_unload() {
        let (mut table, runtime) = (table(), FakeRuntime::new());
        let frames = [PROGRAM, LIBRARY, UNLOADED, DOUBTFUL].map(RawFrame::native);
        let mut unnamed = 0;
        let names = frames.map(|raw| {
            let location = table.location(raw, 0, &*runtime, &mut unnamed).unwrap();
            table.frames(location)[0].function.to_string()
        });
        assert_eq!(names, ["main", "getenv", "getenv", "[code_ended]"]);
        let cached = |table: &LocationTable| frames.map(|raw| table.by_raw.contains_key(&raw));
        assert_eq!((cached(&table), table.uncached, unnamed), ([true, true, false, false], 2, 1));
        table.end_window();
        assert_eq!(cached(&table), [true, true, false, false]);
        table.forget_native();
        assert_eq!(cached(&table), [true, false, false, false]);
    }

    #[test]
    fn raw_frames_that_share_one_location_have_a_cap_too() {
        let mut table = table();
        let location = table.reason(DropReason::CodeEnded);
        for pc in 0..MAX_RAW_FRAMES as u64 {
            assert!(table.by_raw.insert(RawFrame::native(4096 + pc), location).is_none());
        }
        let (known, new) = (RawFrame::native(4096), RawFrame::native(LIBRARY));
        assert!(table.is_half_full());
        assert_eq!(table.location(known, 0, &*FakeRuntime::new(), &mut 0), Some(location));
        assert_eq!(table.location(new, 0, &*FakeRuntime::new(), &mut 0), None);
        table.forget_all();
        assert!(!table.is_half_full() && table.location(new, 0, &*FakeRuntime::new(), &mut 0).is_some());
    }

    #[test]
    fn a_raw_frame_is_resolved_once_and_again_after_its_code_ended() {
        let runtime = FakeRuntime::new();
        let code = runtime.define("first", "a.fake", 1);
        let mut table = table();
        let mut unnamed = 0;
        let raw = RawFrame { code, at: 7 };
        let first = table.location(raw, 0, &*runtime, &mut unnamed).unwrap();
        assert_eq!(table.location(raw, 1, &*runtime, &mut unnamed), Some(first));
        assert_eq!(runtime.resolved(), 1);

        runtime.redefine(code, "second", "b.fake", 1);
        assert!(table.code_ended(code));
        let second = table.location(raw, 2, &*runtime, &mut unnamed).unwrap();
        assert_eq!(&*table.frames(first)[0].function, "first");
        assert_eq!(&*table.frames(second)[0].function, "second");
    }

    #[test]
    fn readers_know_the_reason_of_each_wait() {
        use spanprof_profile::code_origin::{CodeOrigin, WaitReason};
        use spanprof_signal::SyntheticFrame;
        for (frame, reason) in [
            (SyntheticFrame::Lock, WaitReason::LockOrCondition),
            (SyntheticFrame::Io, WaitReason::Io),
            (SyntheticFrame::Sleep, WaitReason::Sleep),
            (SyntheticFrame::ScheduledOut, WaitReason::NoProcessor),
            (SyntheticFrame::Await, WaitReason::Await),
        ] {
            let leaf = (frame.name(), "", CodeOrigin::of(frame.name(), "", FrameType::Unspecified));
            assert_eq!(WaitReason::of_stack(std::iter::once(leaf)), reason, "{frame:?}");
            assert!(reason.frame().is_none_or(|name| name == frame.name()), "{frame:?}");
        }
    }

    #[test]
    fn ended_code_becomes_a_reason_frame_and_is_resolved_again() {
        let runtime = FakeRuntime::new();
        let mut table = table();
        let mut unnamed = 0;
        let raw = RawFrame { code: 1 << 40, at: 0 };
        for _ in 0..2 {
            let location = table.location(raw, 0, &*runtime, &mut unnamed).unwrap();
            assert_eq!(&*table.frames(location)[0].function, "[code_ended]");
        }
        assert_eq!((unnamed, runtime.resolved()), (2, 2));
    }

    #[test]
    fn native_code_has_the_name_of_its_exported_symbol() {
        let runtime = FakeRuntime::new();
        let mut table = table();
        let raw = RawFrame::native(LIBRARY);
        let location = table.location(raw, 0, &*runtime, &mut 0).unwrap();
        assert_eq!(&*table.frames(location)[0].function, "getenv");
        assert_eq!(table.frames(location)[0].frame_type, FrameType::Native);
        let unknown = table.location(RawFrame::native(16), 0, &*runtime, &mut 0).unwrap();
        assert_eq!(&*table.frames(unknown)[0].function, "[native]");
    }
}
