//! Replays the recorded stacks of tests/recorded.

use std::path::{Path, PathBuf};

use spanprof_recorded_stack::RecordedStack;

use super::recorded_shape_signal::SHAPES;
use crate::runtime::replay::ReplayInputs;

fn recorded() -> Vec<(PathBuf, RecordedStack)> {
    RecordedStack::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")).unwrap()
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
