//! Replays the stacks of `tests/recorded`, which `cargo xtask live node --record` recorded.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use spanprof_recorded_stack::RecordedStack;

use super::recorded_shape::V8StackShape;
use super::replay::RecordedV8Walk;

/// Every recorded stack and its path.
static RECORDED: LazyLock<Vec<(PathBuf, RecordedStack)>> =
    LazyLock::new(|| RecordedStack::read_all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")).unwrap());

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
fn a_recording_has_the_functions_of_its_shape() {
    for (path, stack) in RECORDED.iter() {
        let shape = V8StackShape::named(&stack.shape).expect("a known shape");
        assert!(shape.is_named(stack.frames.iter().map(|frame| frame.name.as_str())), "{}", path.display());
    }
}
