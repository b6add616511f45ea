//! Writes the recorded walk of `capture::recording` as a fixture: resolves its frames, and replays it first. In builds with the
//! feature `record-stacks` only (`cargo xtask live java --record`).

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use spanprof_recorded_stack::{RecordedFrame, RecordedStack};
use spanprof_signal::RawFrame;

use super::replay::{ReplayInputs, ENTRY_BCI};
use crate::runtime::capture::recording::{self, RECORDER, REGISTER_NAMES};
use crate::runtime::jvmti::this_vm::property;
use crate::runtime::names::methods::{self, MethodNames};
use crate::runtime::vm::layout::VmLayout;
use crate::runtime::vm::layout_tables;
use crate::runtime::vm::raw_frame::{self, FrameKind};
use crate::runtime::vm::structs::VmStructs;
use crate::runtime::walk::recorded_shape::{StackShape, SHAPES};

/// Name of the shape to record.
const SHAPE: &str = "RECORD_STACKS_SHAPE";
/// The directory of the fixture.
const DIRECTORY: &str = "RECORD_STACKS_DIRECTORY";
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Requests a walk of the shape that the environment names, and starts the thread that writes it. The error completes a
/// sentence "because …".
pub fn begin(layout: &'static VmLayout, structures: &VmStructs) -> Result<(), String> {
    let (Some(shape), Some(directory)) = (std::env::var_os(SHAPE), std::env::var_os(DIRECTORY)) else { return Ok(()) };
    let shape =
        SHAPES.iter().find(|listed| shape == listed.name).ok_or_else(|| format!("{SHAPE}={}", shape.display()))?;
    let entry_bci = structures.offset("nmethod", "_entry_bci")?;
    let version = property(c"java.vm.version").unwrap_or_default();
    recording::request(shape, entry_bci);
    let writer = FixtureWriter { layout, shape, entry_bci, version, directory: directory.into() };
    thread::Builder::new().spawn(move || writer.run()).map_err(|error| error.to_string())?;
    Ok(())
}

struct FixtureWriter {
    layout: &'static VmLayout,
    shape: &'static StackShape,
    entry_bci: usize,
    version: String,
    directory: PathBuf,
}

impl FixtureWriter {
    /// Writes the first recording that is as requested.
    fn run(&self) {
        let mut names = MethodNames::default();
        loop {
            thread::sleep(POLL_INTERVAL);
            let Some(stack) = self.take(&mut names) else { continue };
            if !self.is_as_requested(&stack) {
                RECORDER.arm();
                continue;
            }
            match stack.write(&self.directory) {
                Ok(path) => eprintln!("recorded {}", path.display()),
                Err(error) => eprintln!("{error}"),
            }
            return;
        }
    }

    fn take(&self, names: &mut MethodNames) -> Option<RecordedStack> {
        let walk = RECORDER.take()?;
        let registers = REGISTER_NAMES.into_iter().map(str::to_owned).zip(walk.numbers).collect();
        let mut tables = layout_tables::of(self.layout);
        tables.insert(ENTRY_BCI.to_owned(), self.entry_bci as u64);
        let frames = walk.frames.into_iter().map(|raw| RecordedFrame { raw, name: self.name_of(names, raw) }).collect();
        Some(RecordedStack {
            version: self.version.clone(),
            shape: self.shape.name.to_owned(),
            registers,
            tables,
            words: walk.words,
            frames,
        })
    }

    fn name_of(&self, names: &mut MethodNames, frame: RawFrame) -> String {
        let resolved = match raw_frame::decode(frame) {
            _ if frame.native_pc().is_some() => return "[native]".to_owned(),
            FrameKind::Method { address, fingerprint, index } => {
                names.frames(self.layout, address, fingerprint, index).pop()
            }
            FrameKind::Stub(pc) => methods::stub(Some(self.layout), pc),
            FrameKind::FramesInHeap => return "[frames_in_heap]".to_owned(),
            FrameKind::Thread(_) | FrameKind::MethodId { .. } | FrameKind::Class(_) | FrameKind::Collection(_) => None,
        };
        resolved.map_or_else(String::new, |resolved| resolved.function.to_string())
    }

    /// Whether the frames match the shape, and a walk over the recorded words alone finds them.
    fn is_as_requested(&self, stack: &RecordedStack) -> bool {
        let is_replayed = ReplayInputs::of(stack).is_ok_and(|inputs| {
            let replayed = inputs.walk(&stack.memory());
            replayed.frames == stack.raw_frames() && replayed.has_shape(self.shape)
        });
        is_replayed && self.shape.is_named(stack.frames.iter().map(|frame| frame.name.as_str()))
    }
}
