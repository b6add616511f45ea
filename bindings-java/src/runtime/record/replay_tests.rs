//! Replays the recorded stacks of tests/recorded.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use spanprof_recorded_stack::{RecordedMemory, RecordedStack, RecordedWord};
use spanprof_signal::{RawFrame, USER_SPACE_END};

use super::replay::{ReplayInputs, MAX_FRAMES};
use crate::runtime::vm::raw_frame::{self, FrameKind};
use crate::runtime::walk::recorded_shape::SHAPES;

fn recorded() -> Vec<(PathBuf, RecordedStack)> {
    RecordedStack::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")).unwrap()
}

/// Stacks of Java 8 and 11 are left out: the fingerprint of a method differs if a word of its names is unreadable.
fn recorded_since_17() -> impl Iterator<Item = (PathBuf, RecordedStack)> {
    let is_older =
        |path: &Path| ["8", "11"].iter().any(|java| path.parent().is_some_and(|parent| parent.ends_with(java)));
    recorded().into_iter().filter(move |(path, _)| !is_older(path))
}

#[test]
fn every_shape_is_recorded_for_each_version() {
    let versions = ["8", "11", "17", "21", "25"];
    let mut missing = SHAPES.iter().flat_map(|shape| versions.map(|java| (java, shape.name))).collect::<Vec<_>>();
    for (path, stack) in recorded() {
        let directory = path.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        // The VM of Java 8 has the version 25.
        let major = if directory == "8" { "25" } else { directory };
        assert!(stack.version.starts_with(&format!("{major}.")), "{}: {}", path.display(), stack.version);
        missing.retain(|(java, shape)| *java != directory || *shape != stack.shape);
    }
    // Up to 11 the VM's fault handler lets no sample interrupt it. There are no virtual threads up to 17.
    let in_heap = ["8", "11", "17"].map(|java| (java, "frames_in_heap"));
    assert_eq!(missing, [&[("8", "fault"), ("11", "fault")][..], &in_heap].concat());
}

#[test]
fn a_replay_finds_the_recorded_frames() {
    for (path, stack) in recorded() {
        let replayed = ReplayInputs::of(&stack).unwrap().walk(&stack.memory());
        assert_eq!(replayed.frames, stack.raw_frames(), "{}", path.display());
    }
}

#[test]
fn a_replay_has_the_shape_and_the_functions_of_its_name() {
    for (path, stack) in recorded() {
        let shape = SHAPES.iter().find(|shape| shape.name == stack.shape).expect("a known shape");
        let replayed = ReplayInputs::of(&stack).unwrap().walk(&stack.memory());
        assert!(replayed.has_shape(shape), "{}", path.display());
        assert!(shape.is_named(stack.frames.iter().map(|frame| frame.name.as_str())), "{}", path.display());
    }
}

/// A frame without its bytecode index.
fn function(frame: &RawFrame) -> (u64, u64) {
    match raw_frame::decode(*frame) {
        FrameKind::Method { .. } => (frame.code, frame.at >> 16),
        _ => (frame.code, frame.at),
    }
}

/// The functions of a walk up to its reason frame, and whether it has one.
fn functions(frames: &[RawFrame]) -> (Vec<(u64, u64)>, bool) {
    let functions: Vec<_> = frames.iter().take_while(|frame| frame.as_reason().is_none()).map(function).collect();
    let has_reason = functions.len() < frames.len();
    (functions, has_reason)
}

#[test]
fn memory_cut_at_any_word_gives_the_first_frames_and_no_other() {
    for (path, stack) in recorded_since_17() {
        let inputs = ReplayInputs::of(&stack).unwrap();
        let (whole, _) = functions(&stack.raw_frames());
        for cut in 0..stack.words.len() {
            let frames = inputs.walk(&stack.memory_cut_at(cut)).frames;
            let (found, has_reason) = functions(&frames);
            let case = format!("{} cut at {cut}: {frames:x?}", path.display());
            assert!(whole.starts_with(&found), "{case}");
            // Without readable Java frames, native code is that of the VM. Without a readable entry, the carrier thread's
            // frames are absent.
            let ends_early = match frames.last() {
                Some(last) => last.native_pc().is_some() || *last == raw_frame::IN_HEAP,
                None => false,
            };
            assert!(found.len() == whole.len() || has_reason || ends_early, "{case}");
        }
    }
}

#[test]
fn one_unreadable_word_leaves_frames_out_but_adds_none() {
    for (path, stack) in recorded_since_17() {
        let inputs = ReplayInputs::of(&stack).unwrap();
        let (whole, _) = functions(&stack.raw_frames());
        for missing in 0..stack.words.len() {
            let mut words = stack.words.clone();
            words.remove(missing);
            let (found, _) = functions(&inputs.walk(&RecordedMemory::new(&words)).frames);
            let mut rest = whole.iter();
            let case = format!("{} without word {missing}: {found:x?}", path.display());
            assert!(found.iter().all(|function| rest.any(|other| other == function)), "{case}");
            // An unreadable method that the interpreter enters is left out.
            let may_skip = stack.shape == "interpreter_entry";
            assert!(may_skip || whole.starts_with(&found), "{case}");
        }
    }
}

/// A change of a number: another number of the recording, any number, or one nearby.
#[derive(Clone, Debug)]
enum Change {
    Other(Index),
    Any(u64),
    Near(i8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<Index>().prop_map(Change::Other),
        any::<u64>().prop_map(Change::Any),
        any::<i8>().prop_map(Change::Near),
        prop_oneof![Just(0), Just(u64::MAX), Just(USER_SPACE_END as u64 - 1), Just(USER_SPACE_END as u64)]
            .prop_map(Change::Any),
    ]
}

impl Change {
    fn apply(&self, value: u64, words: &[RecordedWord]) -> u64 {
        match self {
            Self::Other(index) => words[index.index(words.len())].value,
            Self::Any(value) => *value,
            Self::Near(distance) => value.wrapping_add_signed(i64::from(*distance)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_walk_over_changed_words_and_registers_ends_within_its_bounds(
        stack in any::<Index>(),
        words in proptest::collection::vec((any::<Index>(), change()), 0..6),
        registers in proptest::collection::vec((any::<Index>(), change()), 0..3),
        cut in proptest::option::of(any::<Index>()),
    ) {
        static RECORDED: LazyLock<Vec<(PathBuf, RecordedStack)>> = LazyLock::new(recorded);
        let mut stack = RECORDED[stack.index(RECORDED.len())].1.clone();
        let original = stack.words.clone();
        for (at, change) in &words {
            let word = &mut stack.words[at.index(original.len())];
            word.value = change.apply(word.value, &original);
        }
        // The address of the JavaThread is the VM's.
        let names: Vec<String> = stack.registers.keys().filter(|name| *name != "java_thread").cloned().collect();
        for (at, change) in &registers {
            let register = stack.registers.get_mut(&names[at.index(names.len())]).unwrap();
            *register = change.apply(*register, &original);
        }
        let memory = match cut {
            Some(cut) => stack.memory_cut_at(cut.index(original.len())),
            None => stack.memory(),
        };
        let replayed = ReplayInputs::of(&stack).unwrap().walk(&memory);
        prop_assert!(replayed.frames.len() <= MAX_FRAMES);
    }
}
