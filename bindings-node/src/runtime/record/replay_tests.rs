//! Replays the stacks of this processor in `tests/recorded`, which `cargo xtask live node --record` recorded, and for arm64
//! `cargo xtask live platforms --record`: as they are, with memory that is cut or has a hole, and with words and registers changed
//! at random.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use spanprof_recorded_stack::{RecordedMemory, RecordedStack, RecordedWord};
use spanprof_signal::{Memory, RawFrame, RawStack};

use super::recorded_shape::{LeafCode, V8StackShape, SHAPES};
use super::replay::{RecordedV8Walk, MAX_FRAMES};
use crate::runtime::code::synthetic_names;
use crate::runtime::v8::node_versions::MEASURED;
use crate::runtime::walk::frame_pointers::MAX_FRAME_POINTERS;
use crate::runtime::walk::frameless::frameless_return;
use crate::runtime::walk::native_code::{walk_native, StackRegisters};

/// Two words of each frame pointer, two slots and a map of an interpreted frame; fewer than 16 for the leaf.
const MAX_READS: usize = 5 * MAX_FRAME_POINTERS + 16;

/// Every recorded stack of this processor, and its path.
static RECORDED: LazyLock<Vec<(PathBuf, RecordedStack)>> = LazyLock::new(|| {
    let processor = if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(processor);
    RecordedStack::read_all(&directory).unwrap()
});

#[test]
fn every_shape_is_recorded_for_each_major() {
    // On arm64 only the Node.js of the cell `node-arm64` is recorded.
    let majors = || MEASURED.iter().map(|node| node.major).filter(|major| cfg!(target_arch = "x86_64") || *major == 24);
    let all = || majors().flat_map(|major| SHAPES.iter().map(move |shape| (major.to_string(), shape.name)));
    let mut missing: Vec<_> = all().collect();
    for (path, stack) in RECORDED.iter() {
        let directory = path.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        assert!(stack.version.starts_with(&format!("v{directory}.")), "{}: {}", path.display(), stack.version);
        missing.retain(|(major, shape)| major != directory || *shape != stack.shape);
    }
    assert_eq!(missing, []);
    assert_eq!(RECORDED.len(), all().count());
}

#[test]
fn a_replay_finds_the_recorded_frames_and_context() {
    for (path, stack) in RECORDED.iter() {
        let replay = RecordedV8Walk::of(stack).unwrap().walk(&stack.memory());
        assert!(replay.is_walked, "{}", path.display());
        assert_eq!(replay.frames, stack.raw_frames(), "{}", path.display());
        assert_eq!(replay.context, stack.tables["context"], "{}", path.display());
    }
}

#[test]
fn the_handler_reads_a_context_where_the_version_stores_it_in_the_isolate() {
    for (path, stack) in RECORDED.iter() {
        let is_stored = ["v24.", "v26."].iter().any(|major| stack.version.starts_with(major));
        let is_read = is_stored && stack.shape != "collecting";
        assert_eq!(stack.tables["context"] != 0, is_read, "{}", path.display());
    }
}

#[test]
fn a_recording_has_the_functions_and_the_leaf_of_its_shape() {
    for (path, stack) in RECORDED.iter() {
        let shape = V8StackShape::named(&stack.shape).expect("a known shape");
        assert!(shape.is_named(stack.frames.iter().map(|frame| frame.name.as_str())), "{}", path.display());
        let recorded = RecordedV8Walk::of(stack).unwrap();
        let (leaf, memory, map) = (stack.frames[0].raw, stack.memory(), AtomicU64::new(0));
        let walk = recorded.prepared(&memory, &map);
        let is_builtin = recorded.builtin_ranges.builtins.contains((leaf.code + leaf.at) as usize);
        let is_v8 = walk.is_v8((leaf.code + leaf.at) as usize);
        let has_frame = frameless_return(&memory, &recorded.registers).is_none();
        let is_of_shape = match shape.leaf {
            Some(LeafCode::Native) => leaf.native_pc().is_some(),
            Some(LeafCode::Bytecode) => leaf.native_pc().is_none() && !is_v8,
            Some(LeafCode::Builtin) => is_builtin,
            Some(LeafCode::Baseline | LeafCode::Optimized) => is_v8 && !is_builtin && has_frame,
            Some(LeafCode::Frameless) => is_v8 && !is_builtin && !has_frame,
            None => leaf.native_pc().is_none(),
        };
        assert!(is_of_shape, "{}: {leaf:x?}", path.display());
    }
}

#[test]
fn memory_cut_at_any_word_gives_the_first_frames_and_no_other() {
    for (path, stack) in RECORDED.iter() {
        let (recorded, whole) = (RecordedV8Walk::of(stack).unwrap(), stack.raw_frames());
        for cut in 0..stack.words.len() {
            let frames = recorded.walk(&stack.memory_cut_at(cut)).frames;
            assert!(whole.starts_with(&frames), "{} cut at {cut}: {frames:x?}", path.display());
        }
    }
}

#[test]
fn one_unreadable_word_leaves_frames_out_but_adds_none() {
    for (path, stack) in RECORDED.iter() {
        let (recorded, whole) = (RecordedV8Walk::of(stack).unwrap(), stack.raw_frames());
        for hole in 0..stack.words.len() {
            let mut words = stack.words.clone();
            words.remove(hole);
            let replay = recorded.walk(&RecordedMemory::new(&words));
            let mut rest = whole.iter();
            let is_part = replay.frames.iter().all(|frame| rest.any(|other| other == frame));
            assert!(is_part, "{} without word {hole}: {replay:x?}", path.display());
            assert!([0, stack.tables["context"]].contains(&replay.context), "{}: {replay:x?}", path.display());
        }
    }
}

#[test]
fn a_chain_that_leads_back_to_itself_or_the_leaf_ends_within_the_bounds() {
    for (path, stack) in RECORDED.iter() {
        let recorded = RecordedV8Walk::of(stack).unwrap();
        let mut fp = recorded.registers.fp;
        let memory = stack.memory();
        while let Some(next) = memory.word(fp).filter(|next| *next > fp) {
            for caller in [fp, recorded.registers.fp] {
                let mut memory = memory.clone();
                memory.set(fp as u64, caller as u64);
                let frames = check(&recorded, &memory, MAX_FRAMES).unwrap();
                assert!(stack.raw_frames().starts_with(&frames), "{}: {frames:x?}", path.display());
            }
            fp = next;
        }
    }
}

#[test]
fn code_without_a_frame_that_the_interpreter_called_adds_no_frame_of_the_interpreter() {
    // The word that the walk reads first: with the instruction before, and two instructions.
    let (start, word) = if cfg!(target_arch = "x86_64") { (1, 0xc300) } else { (0, 0xd65f_03c0) };
    for (path, stack) in RECORDED.iter().filter(|(_, stack)| stack.shape == "interpreted") {
        let mut recorded = RecordedV8Walk::of(stack).unwrap();
        // In the first walk of a process.
        recorded.bytecode_map = 0;
        let ((low, high), (handler, _)) = (recorded.builtin_ranges.interpreter[0], recorded.builtin_ranges.hidden[0]);
        recorded.registers.pc = handler;
        let mut memory = stack.memory();
        memory.set(handler as u64 - start, word);
        memory.set(recorded.registers.sp as u64, (low + high) as u64 / 2);
        recorded.registers.link = (low + high) / 2;
        let frames = check(&recorded, &memory, MAX_FRAMES).unwrap();
        assert!(stack.raw_frames().ends_with(&frames) && !frames.is_empty(), "{}: {frames:x?}", path.display());
    }
}

/// Counts reads.
struct ReadCounter<M> {
    memory: M,
    reads: Cell<usize>,
}

impl<M: Memory> Memory for ReadCounter<M> {
    fn word(&self, address: usize) -> Option<usize> {
        self.reads.set(self.reads.get() + 1);
        self.memory.word(address)
    }
}

/// A chain of frames without an end, all of which return to the same address.
struct EndlessChain {
    return_to: usize,
}

impl Memory for EndlessChain {
    fn word(&self, address: usize) -> Option<usize> {
        // Frame pointers are multiples of 16.
        Some(if address.is_multiple_of(16) { address + 16 } else { self.return_to })
    }
}

#[test]
fn an_endless_chain_of_hidden_frames_ends_within_the_bounds() {
    let (_, stack) = &RECORDED[0];
    let mut recorded = RecordedV8Walk::of(stack).unwrap();
    let (return_to, _) = recorded.builtin_ranges.hidden[0];
    recorded.registers = StackRegisters { pc: return_to, sp: 1 << 20, fp: 1 << 20, link: 0 };
    let frames = check(&recorded, &EndlessChain { return_to }, MAX_FRAMES).unwrap();
    assert_eq!(frames, []);
}

#[test]
fn an_endless_chain_of_native_frames_ends_at_the_depth_limit() {
    for depth in [0, 1, 2, MAX_FRAMES] {
        let memory = ReadCounter { memory: EndlessChain { return_to: 1 << 16 }, reads: Cell::new(0) };
        let registers = StackRegisters { pc: 1 << 16, sp: 1 << 20, fp: 1 << 20, link: 0 };
        let mut frames = vec![RawFrame::default(); depth];
        let mut stack = RawStack::new(&mut frames);
        walk_native(&memory, &registers, None, &mut stack);
        assert!(stack.is_truncated() && stack.len() == depth && memory.reads.get() <= 2 * depth, "{depth}");
    }
}

/// Walks up to `depth` frames; checks the properties of every walk, also of arbitrary memory.
fn check(recorded: &RecordedV8Walk, memory: &impl Memory, depth: usize) -> Result<Vec<RawFrame>, TestCaseError> {
    let (memory, map) = (ReadCounter { memory, reads: Cell::new(0) }, AtomicU64::new(recorded.bytecode_map));
    let mut frames = vec![RawFrame::default(); depth];
    let mut stack = RawStack::new(&mut frames);
    let walk = recorded.prepared(&memory, &map);
    walk.walk_frame_pointers(&recorded.registers, recorded.activity, &mut stack);
    prop_assert!(memory.reads.get() <= MAX_READS, "{} reads", memory.reads.get());
    prop_assert!(stack.len() <= depth && (!stack.is_truncated() || stack.len() == depth));
    // Native frames are above those of V8, and between them is at most one synthetic frame.
    let of_v8 = stack.frames().iter().skip_while(|frame| frame.native_pc().is_some());
    for (index, frame) in of_v8.enumerate() {
        let is_activity = index == 0 && synthetic_names::resolve(*frame).is_some();
        prop_assert!(is_activity || frame.native_pc().is_none(), "{frame:x?}");
        // No frame is in a hidden builtin. Below the leaf, addresses are one byte before the return address.
        let address = frame.code.wrapping_add(frame.at) as usize;
        let pc = if address == walk.canonical(recorded.registers.pc) { address } else { address.wrapping_add(1) };
        prop_assert!(is_activity || !walk.is_hidden(pc), "{index}: {frame:x?} of {:x?}", stack.frames());
    }
    Ok(stack.frames().to_vec())
}

/// A change of a number: another number of the recording, any number, or one nearby.
#[derive(Clone, Debug)]
enum NumberChange {
    Address(Index),
    Value(Index),
    Any(u64),
    Near(i8),
    Bit(u8),
}

fn change() -> impl Strategy<Value = NumberChange> {
    prop_oneof![
        any::<Index>().prop_map(NumberChange::Address),
        any::<Index>().prop_map(NumberChange::Value),
        any::<u64>().prop_map(NumberChange::Any),
        prop_oneof![Just(0), Just(1), Just(u64::MAX), Just(1 << 47)].prop_map(NumberChange::Any),
        any::<i8>().prop_map(NumberChange::Near),
        (0u8..64).prop_map(NumberChange::Bit),
    ]
}

impl NumberChange {
    fn apply(&self, value: u64, words: &[RecordedWord]) -> u64 {
        match self {
            Self::Address(index) => index.get(words).address,
            Self::Value(index) => index.get(words).value,
            Self::Any(value) => *value,
            Self::Near(distance) => value.wrapping_add_signed(i64::from(*distance)),
            Self::Bit(bit) => value ^ 1 << bit,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_word_changes_no_frame_that_was_found_before_its_first_read(
        stack in any::<Index>(),
        word in any::<Index>(),
        change in change(),
    ) {
        let (path, stack) = stack.get(&RECORDED);
        let recorded = RecordedV8Walk::of(stack).unwrap();
        let index = word.index(stack.words.len());
        let RecordedWord { address, value } = stack.words[index];
        let mut memory = stack.memory();
        memory.set(address, change.apply(value, &stack.words));
        let (frames, above) = (recorded.walk(&memory).frames, recorded.walk(&stack.memory_cut_at(index)).frames);
        prop_assert!(frames.starts_with(&above), "{}, word {index}: {frames:x?}", path.display());
    }

    #[test]
    fn a_walk_over_changed_words_and_registers_ends_within_its_bounds(
        stack in any::<Index>(),
        words in proptest::collection::vec((any::<Index>(), change()), 0..6),
        registers in proptest::collection::vec((any::<Index>(), change()), 0..3),
        cut in proptest::option::of(any::<Index>()),
        depth in 0..=MAX_FRAMES,
    ) {
        let mut stack = stack.get(&RECORDED).1.clone();
        let original = stack.words.clone();
        for (at, change) in &words {
            let word = &mut stack.words[at.index(original.len())];
            word.value = change.apply(word.value, &original);
        }
        let count = stack.registers.len();
        for (at, change) in &registers {
            let register = stack.registers.values_mut().nth(at.index(count)).unwrap();
            *register = change.apply(*register, &original);
        }
        let memory = match cut {
            Some(cut) => stack.memory_cut_at(cut.index(original.len())),
            None => stack.memory(),
        };
        let recorded = RecordedV8Walk::of(&stack).unwrap();
        let whole = check(&recorded, &memory, MAX_FRAMES)?;
        prop_assert!(whole.starts_with(&check(&recorded, &memory, depth)?));
        let mut frames = vec![RawFrame::default(); depth];
        let mut native = RawStack::new(&mut frames);
        let memory = ReadCounter { memory, reads: Cell::new(0) };
        walk_native(&memory, &recorded.registers, None, &mut native);
        prop_assert!(memory.reads.get() <= 2 * depth);
    }
}
