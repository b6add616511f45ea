//! Records registers, tables and words of a real program while a walker reads them, and replays them in tests without the runtime;
//! never is part of a released package.
//!
//! [`Recorder`] saves the reads of a walk inside a signal handler. [`RecordedStack`] is the fixture file. [`RecordedMemory`]
//! replays its words.

mod fixture;
mod memory;
mod recorder;

pub use fixture::{RecordedFrame, RecordedStack};
pub use memory::{RecordedMemory, RecordedWord};
pub use recorder::{CompleteRecording, Recorder, RecordingMemory, MAX_FRAMES};
