//! Raw frames → locations: what the runtime or the linker named once is remembered until its code ends. Owned by the
//! drain; not shared. Ids are positions in one table and mean something until `forget_all`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::hash::WordMap;
use crate::runtime::{Frame, FrameType, Runtime};
use crate::sys::{self, FileSymbols, NativeSymbol};
use spanprof_signal::{DropReason, RawFrame};

/// Most locations remembered; a window that needs more shows `[too_many_stacks]`, the next one starts afresh.
const MAX_LOCATIONS: usize = 131_072;
/// Most raw frames remembered: the many places of one native function share a location.
const MAX_RAW_FRAMES: usize = 2 * MAX_LOCATIONS;
/// The function of every frame in this library.
const OWN_CODE: &str = "spanprof";
/// What GCC and LLVM append to the names of a function's copies and parts.
const PARTS: [&str; 6] = [".part.", ".constprop.", ".isra.", ".cold", ".lto_priv.", ".llvm."];
/// Most C++ names remembered.
const MAX_WRITTEN: usize = 16_384;

/// Index into the table of locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocationIndex(pub u32);

/// See the head of the module.
#[derive(Default)]
pub(crate) struct LocationTable {
    by_raw: WordMap<RawFrame, LocationIndex>,
    /// Per code the places in it that were seen, to be forgotten together.
    places_of: WordMap<u64, Vec<u64>>,
    by_content: HashMap<Arc<[Frame]>, LocationIndex>,
    contents: Vec<Arc<[Frame]>>,
    /// Functions that no object exports.
    file_symbols: FileSymbols,
    /// C++ symbols as they were written: a function has many places, and taking its symbol apart takes microseconds.
    written: HashMap<String, Arc<str>>,
    scratch: Vec<Frame>,
}

impl LocationTable {
    /// The location of a raw frame; `None` when the table is full. `unnamed` counts frames whose code ended.
    pub fn location(
        &mut self,
        raw: RawFrame,
        position: u64,
        runtime: &dyn Runtime,
        unnamed: &mut u64,
    ) -> Option<LocationIndex> {
        if let Some(known) = self.by_raw.get(&raw) {
            return Some(*known);
        }
        if self.contents.len() >= MAX_LOCATIONS || self.by_raw.len() >= MAX_RAW_FRAMES {
            return None;
        }
        let mut frames = std::mem::take(&mut self.scratch);
        frames.clear();
        let (mut lasting, mut ends) = (true, true);
        if let Some(reason) = raw.as_reason() {
            frames.push(reason_frame(reason));
        } else if let Some(pc) = raw.native_pc() {
            let (frame, is_of_program) = self.native_frame(pc);
            frames.push(frame);
            // To look a name up in a large program takes long, and nobody unloads it.
            ends = !is_of_program;
        } else {
            runtime.resolve(raw, position, &mut frames);
            if frames.is_empty() {
                *unnamed += 1;
                frames.push(reason_frame(DropReason::CodeEnded));
                // Not remembered: the same words may be other code soon.
                lasting = false;
            }
        }
        let location = self.intern(&frames);
        self.scratch = frames;
        if lasting {
            self.by_raw.insert(raw, location);
            if ends {
                self.places_of.entry(raw.code).or_default().push(raw.at);
            }
        }
        Some(location)
    }

    /// The frame, and whether the place it names is the program's own.
    fn native_frame(&mut self, pc: u64) -> (Frame, bool) {
        let nowhere = || Frame { function: "[native]".into(), frame_type: FrameType::Native, ..Frame::default() };
        let Some(found) = sys::native_symbol(pc) else { return (nowhere(), false) };
        let symbol = match &found.symbol {
            Some(exported) => Some(self.written(exported)),
            None if sys::is_own_code(&found, pc) => None,
            None => self.file_symbols.name(&found.object(pc), pc).map(|symbol| self.written(&symbol)),
        };
        named(found, pc, symbol)
    }

    fn written(&mut self, symbol: &str) -> Arc<str> {
        if let Some(known) = self.written.get(symbol) {
            return known.clone();
        }
        let Some(written) = as_written(symbol).map(Arc::<str>::from) else { return symbol.into() };
        if self.written.len() >= MAX_WRITTEN {
            self.written.clear();
        }
        self.written.insert(symbol.to_owned(), written.clone());
        written
    }

    /// The location of frames that no raw frame stands for.
    pub fn intern(&mut self, frames: &[Frame]) -> LocationIndex {
        if let Some(known) = self.by_content.get(frames) {
            return *known;
        }
        let content: Arc<[Frame]> = frames.into();
        let index = LocationIndex(self.contents.len() as u32);
        self.contents.push(content.clone());
        self.by_content.insert(content, index);
        index
    }

    /// The location that names a loss.
    pub fn reason(&mut self, reason: DropReason) -> LocationIndex {
        self.intern(&[reason_frame(reason)])
    }

    /// Forgets what `code` meant. True when anything of it had been seen.
    pub fn code_ended(&mut self, code: u64) -> bool {
        let Some(places) = self.places_of.remove(&code) else { return false };
        for at in places {
            self.by_raw.remove(&RawFrame { code, at });
        }
        true
    }

    /// Innermost first.
    pub fn frames(&self, location: LocationIndex) -> &[Frame] {
        self.contents.get(location.0 as usize).map_or(&[], |frames| frames)
    }

    /// Whether another window of the same kind might not fit.
    pub fn is_half_full(&self) -> bool {
        self.contents.len() > MAX_LOCATIONS / 2 || self.by_raw.len() > MAX_RAW_FRAMES / 2
    }

    /// Native code of libraries may be unloaded without a word: its names last one window.
    pub fn forget_native(&mut self) {
        self.code_ended(RawFrame::native(0).code);
        self.file_symbols.verify_again();
    }

    /// Forgets everything; all indices become meaningless.
    pub fn forget_all(&mut self) {
        // What files say is bounded by itself, and slow to read.
        let file_symbols = std::mem::take(&mut self.file_symbols);
        *self = Self { file_symbols, ..Self::default() };
        self.file_symbols.verify_again();
    }
}

/// The frame that says why there is no better one.
fn reason_frame(reason: DropReason) -> Frame {
    Frame { function: format!("[{}]", reason.name()).into(), ..Frame::default() }
}

/// The frame at the root of a stack that was deeper than `max_stack_depth`.
pub(crate) fn truncated_frame() -> Frame {
    Frame { function: "[truncated]".into(), ..Frame::default() }
}

/// The frame of native code, and whether it is the program's own.
fn named(found: NativeSymbol, pc: u64, symbol: Option<Arc<str>>) -> (Frame, bool) {
    let file = found.file.to_string_lossy();
    let function = match symbol {
        _ if sys::is_own_code(&found, pc) => OWN_CODE.into(),
        Some(symbol) => symbol,
        None => {
            let name = found.file.file_name().map_or(file.clone(), |name| name.to_string_lossy());
            format!("[{name}]").into()
        }
    };
    let file = file.as_ref().into();
    (Frame { function, file, frame_type: FrameType::Native, ..Frame::default() }, found.is_of_program)
}

/// The frame of native code by what its object exports, for rare use; `None` where no loaded file lies.
pub(crate) fn found_native(pc: u64) -> Option<(Frame, bool)> {
    let mut found = sys::native_symbol(pc)?;
    let symbol = found.symbol.take().map(|symbol| as_written(&symbol).unwrap_or(symbol).into());
    Some(named(found, pc, symbol))
}

/// A C++ or Rust symbol as its author wrote it, without parameters, hashes and what a compiler appends to the names of a
/// function's parts (`.part.0`, `.cold`); `None` for other symbols.
fn as_written(symbol: &str) -> Option<String> {
    let end = PARTS.iter().filter_map(|part| symbol.find(part)).min().unwrap_or(symbol.len());
    let whole = symbol.get(..end)?;
    if let Ok(rust) = rustc_demangle::try_demangle(whole) {
        return Some(format!("{rust:#}"));
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = whole.starts_with("_Z").then(|| cpp_demangle::Symbol::new(whole).ok()).flatten();
    let written = cpp.and_then(|cpp| cpp.demangle_with_options(&options).ok());
    written.or_else(|| (whole.len() < symbol.len() && !whole.is_empty()).then(|| whole.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeRuntime;

    #[test]
    fn a_cpp_symbol_reads_as_it_was_written_and_others_stay() {
        let written = as_written("_ZN2v88internal10HeapObject11SizeFromMapENS0_3MapE");
        assert_eq!(written.as_deref(), Some("v8::internal::HeapObject::SizeFromMap"));
        assert_eq!(["epoll_wait", "_Z", "_ZN4"].map(as_written), [None, None, None]);
    }

    #[test]
    fn parts_of_a_function_bear_its_name_and_rust_names_no_hash() {
        let part = as_written("_ZN8PhaseIFG9re_insertEj.part.0.cold");
        assert_eq!(part.as_deref(), Some("PhaseIFG::re_insert"));
        assert_eq!(as_written("qsort_r.constprop.0").as_deref(), Some("qsort_r"));
        assert_eq!(as_written("runtime.mallocgc"), None, "Go's names have dots of their own");
        let rust = as_written("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE");
        assert_eq!(rust.as_deref(), Some("core::fmt::Formatter::pad"));
    }

    #[test]
    fn a_symbol_is_taken_apart_once() {
        let mut table = LocationTable::default();
        let symbol = "_ZN2v88internal10HeapObject11SizeFromMapENS0_3MapE";
        let [first, second] = [0; 2].map(|_| table.written(symbol));
        assert!(Arc::ptr_eq(&first, &second) && &*first == "v8::internal::HeapObject::SizeFromMap");
        assert_eq!(&*table.written("epoll_wait"), "epoll_wait");
        assert_eq!(table.written.len(), 1);
    }

    #[test]
    fn names_of_the_programs_own_code_last_and_those_of_libraries_do_not() {
        let mut table = LocationTable::default();
        let places = [as_written as *const () as u64, libc::getenv as *const () as u64].map(RawFrame::native);
        for raw in places {
            table.location(raw, 0, &*FakeRuntime::new(), &mut 0);
        }
        table.forget_native();
        assert_eq!(places.map(|raw| table.by_raw.contains_key(&raw)), [true, false]);
    }

    #[test]
    fn places_that_share_one_location_have_a_limit_too() {
        let mut table = LocationTable::default();
        let location = table.reason(DropReason::CodeEnded);
        for pc in 0..MAX_RAW_FRAMES as u64 {
            assert!(table.by_raw.insert(RawFrame::native(4096 + pc), location).is_none());
        }
        let (known, new) = (RawFrame::native(4096), RawFrame::native(as_written as *const () as u64));
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
        let mut table = LocationTable::default();
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
    fn code_that_cannot_be_named_any_more_says_so_and_is_asked_again() {
        let runtime = FakeRuntime::new();
        let mut table = LocationTable::default();
        let mut unnamed = 0;
        let raw = RawFrame { code: 1 << 40, at: 0 };
        for _ in 0..2 {
            let location = table.location(raw, 0, &*runtime, &mut unnamed).unwrap();
            assert_eq!(&*table.frames(location)[0].function, "[code_ended]");
        }
        assert_eq!((unnamed, runtime.resolved()), (2, 2));
    }

    #[test]
    fn native_code_is_named_by_the_linker() {
        let runtime = FakeRuntime::new();
        let mut table = LocationTable::default();
        let raw = RawFrame::native(libc::getenv as *const () as u64);
        let location = table.location(raw, 0, &*runtime, &mut 0).unwrap();
        assert_eq!(&*table.frames(location)[0].function, "getenv");
        assert_eq!(table.frames(location)[0].frame_type, FrameType::Native);
        assert_eq!(
            found_native(libc::getenv as *const () as u64).map(|(frame, _)| frame),
            Some(table.frames(location)[0].clone())
        );
        assert_eq!(found_native(16), None);
        let nowhere = table.location(RawFrame::native(16), 0, &*runtime, &mut 0).unwrap();
        assert_eq!(&*table.frames(nowhere)[0].function, "[native]");
    }
}
