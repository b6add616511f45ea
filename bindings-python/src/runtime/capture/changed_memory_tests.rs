//! Replays of recorded stacks with memory that is cut, has holes, or is changed at random. Each walk ends within its bounds. No
//! frame is wrong while the memory that can be read is right.

use proptest::prelude::*;
use proptest::sample::Index;
use spanprof_recorded_stack::{RecordedMemory, RecordedStack, RecordedWord};
use spanprof_signal::{Captured, Context, DropReason, Memory, RawFrame};

use super::recorded_stack_tests::{interpreter, minor, recorded, replay_with, title, Replay, CONTEXT_ID, DEPTH};
use crate::runtime::interpreter::layout::{fixed, CurrentFrame, FrameChain};
use crate::runtime::interpreter::Interpreter;
use crate::runtime::walk::frame::FrameReader;
use crate::runtime::walk::frame_word::FrameWord;
use crate::runtime::walk::sampled_code::SampledCode;
use crate::runtime::walk::MAX_LINKS;

/// The handler's walk follows its links at most twice and reads at most 13 words of each: a frame, and of its code object the
/// reference count, the type and the first traceable instruction. The context and the registers take fewer than 2,000.
const MAX_READS_OF_THE_HANDLER: usize = 2 * 13 * MAX_LINKS + 2_000;
/// The walk of another thread verifies each link with at most 400 reads.
const MAX_READS_OF_A_CHAIN: usize = 400 * MAX_LINKS;
/// It follows its links at most eight times.
const MAX_READS_OF_ANOTHER_THREAD: usize = 8 * MAX_READS_OF_A_CHAIN;

fn thread(stack: &RecordedStack) -> u64 {
    stack.registers["thread"]
}

/// Whether the leaf's activation of the interpreter loop is verified against its caller (3.11, 3.12): if its frames are not
/// valid, the walk begins at this caller.
fn may_start_at_the_caller(interpreter: &Interpreter) -> bool {
    match &interpreter.layout.frames {
        FrameChain::Interpreter(frames) => matches!(frames.current, CurrentFrame::OnCStack { .. }),
        FrameChain::Objects(_) => false,
    }
}

#[test]
fn with_memory_cut_at_any_word_the_walk_drops_the_sample_after_a_prefix_of_its_frames() {
    for stack in recorded() {
        let expected = stack.raw_frames();
        for cut in 0..stack.words.len() {
            let replay = replay_with(stack, thread(stack), stack.memory_cut_at(cut), DEPTH);
            let is_dropped = matches!(
                replay.captured,
                Captured::Dropped(
                    DropReason::NoThreadState
                        | DropReason::FaultedRead
                        | DropReason::InvalidFrame
                        | DropReason::MovedDuringWalk
                )
            );
            assert!(is_dropped && expected.starts_with(&replay.frames), "{}, cut at {cut}: {replay:?}", title(stack));
        }
    }
}

/// Exceptions, both by design: the context is absent where it cannot be read; on 3.11 and 3.12 the walk begins at the caller
/// of the current activation if a frame of this activation cannot be read.
#[test]
fn with_any_one_word_unreadable_no_frame_is_wrong() {
    for stack in recorded() {
        let expected = stack.raw_frames();
        let may_start_at_the_caller = may_start_at_the_caller(&interpreter(stack));
        for hole in 0..stack.words.len() {
            let readable = stack.words.iter().enumerate().filter(|(index, _)| *index != hole).map(|(_, word)| word);
            let replay = replay_with(stack, thread(stack), RecordedMemory::new(readable), DEPTH);
            let message = || format!("{} without word {hole}: {replay:?}", title(stack));
            assert!([Context::Id(CONTEXT_ID), Context::None].contains(&replay.context), "{}", message());
            let is_right = match replay.captured {
                Captured::Walked if may_start_at_the_caller => {
                    !replay.frames.is_empty() && expected.ends_with(&replay.frames)
                }
                Captured::Walked => replay.frames == expected,
                Captured::Dropped(_) => expected.starts_with(&replay.frames),
            };
            assert!(is_right, "{}", message());
        }
    }
}

#[test]
fn a_chain_that_leads_back_to_itself_or_the_leaf_ends_within_the_bounds() {
    for stack in recorded() {
        let mut links = links(stack);
        let leaf = links.first().map_or(0, |(frame, _)| *frame);
        if stack.shape == "other_thread" {
            // 16,384 verified links take a second: only the root's, in one version.
            links = links.pop().into_iter().filter(|_| minor(stack) == 13).collect();
        }
        for (frame, previous) in links {
            for caller in [frame, leaf] {
                let mut memory = stack.memory();
                memory.set(previous, caller);
                let replay = replay_with(stack, thread(stack), memory.clone(), DEPTH);
                check(stack, &memory, &replay, DEPTH).unwrap();
            }
        }
    }
}

/// The address of each frame, and that of its link to the caller.
fn links(stack: &RecordedStack) -> Vec<(u64, u64)> {
    let (interpreter, memory) = (interpreter(stack), stack.memory());
    let sampled_code = Box::new(SampledCode::new());
    let reader = FrameReader { memory: &memory, interpreter: &interpreter, sampled_code: &sampled_code };
    let back = match &interpreter.layout.frames {
        FrameChain::Interpreter(layout) => layout.previous,
        FrameChain::Objects(layout) => layout.back,
    };
    // At the entry of the interpreter loop the chain does not start in the thread state.
    let mut frame = reader.start(thread(stack) as usize).map_or(0, |start| start.leaf);
    let mut links = Vec::new();
    while let Some(link) = reader.read(frame) {
        links.push((frame as u64, (frame + back) as u64));
        frame = link.previous;
    }
    assert!(!links.is_empty() || stack.shape == "loop_entry", "{}", title(stack));
    links
}

/// The properties of every walk, also of arbitrary memory.
fn check(stack: &RecordedStack, memory: &RecordedMemory, replay: &Replay, depth: usize) -> Result<(), TestCaseError> {
    let max_reads = match stack.registers["thread_id"] {
        0 => MAX_READS_OF_THE_HANDLER,
        // A chain without an end is followed once.
        _ if replay.captured == Captured::Dropped(DropReason::InvalidFrame) => MAX_READS_OF_A_CHAIN,
        _ => MAX_READS_OF_ANOTHER_THREAD,
    };
    prop_assert!(replay.reads <= max_reads, "{}: {} reads", title(stack), replay.reads);
    prop_assert!(replay.frames.len() <= depth);
    prop_assert!(!replay.is_truncated || replay.frames.len() == depth);
    prop_assert!(replay.captured != Captured::Walked || !replay.frames.is_empty() || depth == 0);
    for frame in &replay.frames {
        let code_type = memory.word(frame.code as usize + fixed::TYPE).map(|word| word as u64);
        let is_code_object = code_type == Some(stack.tables["code_type"]);
        let has_ended = *frame == RawFrame::reason(DropReason::CodeEnded);
        prop_assert!(is_code_object || has_ended, "{}: {frame:?} is no code object", title(stack));
        let unit = FrameWord(frame.at).unit().map_or(-1, i64::from);
        prop_assert!(has_ended || unit <= FrameWord::MAX_UNIT, "{}: {frame:?}", title(stack));
    }
    Ok(())
}

/// A change of one word.
#[derive(Clone, Debug)]
enum WordChange {
    Value(u64),
    Bit(u8),
    Difference(i8),
    /// The address of another recorded word.
    Address(Index),
    /// The value of another recorded word.
    Copy(Index),
}

impl WordChange {
    fn apply(&self, value: u64, words: &[RecordedWord]) -> u64 {
        match self {
            Self::Value(other) => *other,
            Self::Bit(bit) => value ^ 1 << bit,
            Self::Difference(bytes) => value.wrapping_add_signed(i64::from(*bytes)),
            Self::Address(index) => index.get(words).address,
            Self::Copy(index) => index.get(words).value,
        }
    }
}

fn word_change() -> impl Strategy<Value = WordChange> {
    prop_oneof![
        prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u64>()].prop_map(WordChange::Value),
        (0u8..64).prop_map(WordChange::Bit),
        any::<i8>().prop_map(WordChange::Difference),
        any::<Index>().prop_map(WordChange::Address),
        any::<Index>().prop_map(WordChange::Copy),
    ]
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn with_words_changed_at_random_each_walk_ends_within_the_bounds_and_shows_code_objects_only(
        stack in any::<Index>(),
        changes in proptest::collection::vec((any::<Index>(), word_change()), 1..6),
        depth in 0..=DEPTH,
    ) {
        let stack = stack.get(recorded());
        let mut memory = stack.memory();
        for (index, change) in &changes {
            let word = index.get(&stack.words);
            memory.set(word.address, change.apply(word.value, &stack.words));
        }
        let replay = replay_with(stack, thread(stack), memory.clone(), depth);
        check(stack, &memory, &replay, depth)?;
    }

    #[test]
    fn from_any_start_address_and_registers_each_walk_ends_within_the_bounds_and_shows_code_objects_only(
        stack in any::<Index>(),
        start in word_change(),
        registers in proptest::collection::vec((any::<Index>(), word_change()), 0..6),
    ) {
        let mut stack = stack.get(recorded()).clone();
        let names: Vec<_> = stack.registers.keys().filter(|name| name.starts_with("register_")).cloned().collect();
        for (index, change) in &registers {
            if !names.is_empty() {
                let name = index.get(&names).clone();
                let changed = change.apply(stack.registers[&name], &stack.words);
                stack.registers.insert(name, changed);
            }
        }
        let start = start.apply(thread(&stack), &stack.words);
        let replay = replay_with(&stack, start, stack.memory(), DEPTH);
        check(&stack, &stack.memory(), &replay, DEPTH)?;
    }
}
